"""The stack RUNS: a host of durable runs on a simulated disk, and the world that it works on."""
