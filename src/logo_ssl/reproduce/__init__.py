"""The paper's tables and figures: which runs they need, how these are run, and what came out."""
