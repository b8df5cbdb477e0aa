"""One module for each feature: what it adds to the swarm, and what must then be seen."""
