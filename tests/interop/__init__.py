"""Our ends against the published upstream peers."""
