"""The owner epoch of a SQLite store: one more with each opening, for ever (R7).

It decides which start of a controller a store belongs to. It refuses to know who is told.
"""

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final

from controller_mock.storage.sqlite_files import name_of, open_for_writing
from protocol.base.private_directory import reason_of
from protocol.envelope import OwnerEpoch
from protocol.errors import ErrorCode, PrpError

_ID_BYTES: Final = 16
_INSERT: Final = "INSERT INTO owners (owner_id) VALUES (?)"
_FORGET: Final = "DELETE FROM owners WHERE epoch < ?"
"""The table never gives a number again, whether its row is still there or not."""


def claim(path: Path) -> OwnerEpoch:
    """Begin a new epoch, durable when this returns; PrpError ``storage_write_failed``."""
    try:
        owner_id = os.urandom(_ID_BYTES).hex()
        with contextlib.closing(open_for_writing(path)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            epoch = writer.execute(_INSERT, (owner_id,)).lastrowid
            assert epoch is not None, "an insertion has a row"
            writer.execute(_FORGET, (epoch,))
            writer.execute("COMMIT")
    except sqlite3.Error as error:
        raise PrpError(ErrorCode.STORAGE_WRITE_FAILED, name_of(error) or "") from None
    except OSError as error:
        raise PrpError(ErrorCode.STORAGE_WRITE_FAILED, reason_of(error)) from error
    return OwnerEpoch(owner_epoch=epoch, owner_id=owner_id)
