"""Run a matrix of commands in a random order: its file, its cells, its state on disk, and what it writes."""
