"""Primitives below the protocol: revisions, the driver, ports and the atomic file."""
