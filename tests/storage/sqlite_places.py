"""What lies in the directory of a SQLite store.

It decides what counts as its content. It refuses to know who changed it.
"""

import hashlib
from pathlib import Path
from typing import Final

from controller_mock.storage.sqlite_files import DATABASE_NAME

WAL: Final = DATABASE_NAME + "-wal"


def contents(place: Path) -> dict[str, str]:
    """Return what is in a directory, but for the lock that an attempt to open may make."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in place.iterdir()
        if path.suffix != ".lock" and path.is_file()
    }
