"""A real run that loses its socket and its runner, and an independent check of what was kept."""
