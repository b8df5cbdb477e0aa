"""Tests of the controller: its core, its shell, its sockets and its command line."""
