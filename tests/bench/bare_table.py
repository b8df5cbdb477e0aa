"""The commit of one event, made by nothing but SQLite.

It decides what "bare" is: the least that makes the same row as durable as the product
promises. It refuses to know the product's own code for it.
"""

import sqlite3
from pathlib import Path


class BareTable:
    """One table of events in WAL mode with synchronous=FULL, and one commit for each row."""

    def __init__(self, directory: Path) -> None:
        self._connection = sqlite3.connect(directory / "bare.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE events (run_id TEXT, source_seq INTEGER, source_event_id TEXT,"
            " event_type TEXT, digest TEXT, body TEXT, PRIMARY KEY (run_id, source_seq))"
        )
        self._rows = 0

    def commit(self, body: bytes) -> None:
        """Store one event."""
        self._rows += 1
        event_id = f"event_{self._rows:016d}"
        row = ("run", self._rows, event_id, "item.delta", "0" * 64, body.decode())
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", row)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()
