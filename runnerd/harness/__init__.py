"""The harness: the program that does the work, its processes and its output."""
