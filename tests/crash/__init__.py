"""A crash, a power loss or an error at every call on the disk."""
