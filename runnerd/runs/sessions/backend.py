"""The port behind which a session is kept: whole contents, marks, and one writer at a time.

It decides what every backend must do. It refuses to know where contents lie and what their
lines mean.
"""

import enum
from typing import Protocol

import msgspec

from protocol.base.clock import UnixMs
from runnerd.runs.sessions.log import SessionLog, SessionMark


class Opening(enum.StrEnum):
    """What opening a session came to."""

    CREATED = "created"
    OPENED = "opened"
    MENDED = "mended"
    """A torn tail was cut, or a name was given back."""
    MIGRATED = "migrated"


class Opened(msgspec.Struct, frozen=True):
    """A session as it was found or made."""

    log: SessionLog
    opening: Opening


class WriteLease(Protocol):
    """The right to write one session, until it is closed."""

    @property
    def mark(self) -> SessionMark:
        """What the session holds now."""
        ...

    def append(self, lines: bytes) -> SessionMark:
        """Add whole lines and return the new mark; they will be found.

        Raises PrpError: ``storage_write_failed`` if nothing was added,
        ``durability_barrier_failed`` if that is not known,
        ``session_snapshot_stale`` if somebody else changed the session,
        ``session_write_lease_invalid`` after either or after `close`.
        """
        ...

    def close(self) -> None:
        """Let others write."""
        ...


class SessionBackend(Protocol):
    """Sessions by their ids. Every method raises ``invalid_session_id`` for a bad one."""

    def exists(self, session_id: str) -> bool:
        """Tell whether there is such a session, in whatever form; nothing is changed."""
        ...

    def open(self, session_id: str, cwd: str | None, now: UnixMs) -> Opened:
        """Return a session, made if there is none.

        Args:
            cwd: the working directory of a session that is made here; None to refuse
                with ``session_restore_failed`` where there is none.
        """
        ...

    def lease(self, session_id: str, seen: SessionMark) -> WriteLease:
        """Become the one writer of a session that is still what was ``seen``.

        Raises PrpError: ``session_write_locked`` while somebody else is,
        ``session_snapshot_stale`` if the session is another one by now.
        """
        ...
