"""Bugs put into a copy of the tree, each of which the simulator must name by its invariant."""
