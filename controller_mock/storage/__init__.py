"""Where a controller keeps runs: the port, and the stores behind it."""
