"""The real daemon as a process: real sockets, real signals, real files; few."""
