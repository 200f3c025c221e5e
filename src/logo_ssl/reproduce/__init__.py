"""Do the paper's tables come out again? Which rows, what is left to run, running it, and the tables that result."""
