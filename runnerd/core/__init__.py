"""The runner's decisions; pure."""
