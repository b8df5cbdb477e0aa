"""The controller's decisions about one run; pure."""
