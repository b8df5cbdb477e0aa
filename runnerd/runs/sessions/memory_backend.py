"""Sessions that live as long as the process: the backend without a disk.

It decides nothing that `backend` does not ask for. It refuses to know what lines mean.
"""

from protocol.base.clock import UnixMs
from protocol.errors import ErrorCode, PrpError
from runnerd.runs.sessions.backend import Opened, Opening
from runnerd.runs.sessions.log import SessionMark, encode_session, mark_of, scan
from runnerd.runs.sessions.records import Header, check_session_id, damaged


class MemorySessions:
    """Sessions by their ids."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.leased: set[str] = set()

    def exists(self, session_id: str) -> bool:
        """Tell whether there is such a session."""
        check_session_id(session_id)
        return session_id in self.contents

    def open(self, session_id: str, cwd: str | None, now: UnixMs) -> Opened:
        """Return a session, made if there is none; see `SessionBackend.open`."""
        check_session_id(session_id)
        opening = Opening.OPENED
        if session_id not in self.contents:
            if cwd is None:
                raise damaged("there is no such session")
            header = Header(session_id=session_id, created_at=now, cwd=cwd)
            self.contents[session_id] = encode_session(header, ())
            opening = Opening.CREATED
        return Opened(scan(self.contents[session_id], session_id), opening)

    def lease(self, session_id: str, seen: SessionMark) -> "MemoryLease":
        """Become the one writer; see `SessionBackend.lease`."""
        check_session_id(session_id)
        if session_id in self.leased:
            raise PrpError(ErrorCode.SESSION_WRITE_LOCKED, "another handle writes the session")
        if mark_of(self.contents.get(session_id, b"")) != seen:
            raise PrpError(ErrorCode.SESSION_SNAPSHOT_STALE, "open the session again")
        self.leased.add(session_id)
        return MemoryLease(self, session_id)


class MemoryLease:
    """The right to write one session, until `close`."""

    def __init__(self, sessions: MemorySessions, session_id: str) -> None:
        self._sessions = sessions
        self._session_id = session_id
        self._is_valid = True

    @property
    def mark(self) -> SessionMark:
        """What the session holds now."""
        return mark_of(self._sessions.contents[self._session_id])

    def append(self, lines: bytes) -> SessionMark:
        """Add whole lines."""
        if not self._is_valid:
            raise PrpError(ErrorCode.SESSION_WRITE_LEASE_INVALID, "open the session again")
        self._sessions.contents[self._session_id] += lines
        return self.mark

    def close(self) -> None:
        """Let others write."""
        if self._is_valid:
            self._is_valid = False
            self._sessions.leased.discard(self._session_id)
