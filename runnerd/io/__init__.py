"""Adapters of the daemon: its socket, its signals, its files, its log."""
