"""Schedules of a runner and a controller, byte for byte over a simulated network."""
