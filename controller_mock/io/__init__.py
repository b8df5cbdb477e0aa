"""Adapters of the controller: sockets, the writer thread, the clock and the runner's process."""
