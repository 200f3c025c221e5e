"""How is what a run learned shown? Commands that compute pictures and figures, and hand them to the report."""
