"""What can be done from a shell? A module for each family of commands: typed functions, nothing else."""
