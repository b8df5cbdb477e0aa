"""The two file operations that an event cannot do without, made by nothing but system calls.

It decides what "bare" is: the least that makes the same bytes as durable as the product
promises. It refuses to know the product's own code for it.
"""

import os
import sqlite3
from pathlib import Path

_PRIVATE = 0o600


class BareFile:
    """A file that is replaced whole: sibling, sync, rename, sync of the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)

    def replace(self, data: bytes) -> None:
        """Make ``data`` the durable content."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open("state.tmp", flags, _PRIVATE, dir_fd=self._directory)
        assert os.write(descriptor, data) == len(data)
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename("state.tmp", "state", src_dir_fd=self._directory, dst_dir_fd=self._directory)
        os.fsync(self._directory)

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._directory)


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
