"""What a process runs on: terminal, signals, hardware, random streams, and the other processes of a run."""
