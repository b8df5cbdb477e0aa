"""Weeks of one run in seconds: the production cores and the real wire, with nothing but time."""
