"""How the published upstream controller is driven by a test."""
