"""In-memory twins of the ports, with the faults that real ones show rarely."""
