"""The runner daemon: one process per agent run, which outlives sockets and its own crashes."""
