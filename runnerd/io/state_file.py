"""The runner's state on disk: one locked directory, one file.

It decides that one process owns a state, that what is loaded was checked, and that there is
room for the last words. It refuses to know what a state means.
"""

from collections.abc import Callable
from typing import Final, Protocol

from protocol.base.atomic_file import AtomicFile, is_leftover
from protocol.base.ports import Entropy, Filesystem
from protocol.base.posix_fs import LOCK_FILE_NAME, lock_directory
from protocol.base.reserve import Reserve
from protocol.errors import ErrorCode, PrpError
from protocol.limits import OUTBOX_PAUSE_BYTES, STATE_BYTES_OVERHEAD_MAX
from runnerd.core.state import STATE_SCHEMA, Durable, Settings
from runnerd.core.state_codec import encode, load

STATE_FILE_NAME: Final = "runner-state.json"
RUNS_FOLDER: Final = "runs"
"""The folder of the run's log, beside the state."""
RESERVE_NAME: Final = "runner-state.reserve"


_NEIGHBOURS: Final = (LOCK_FILE_NAME, RUNS_FOLDER)


def is_ours(name: str) -> bool:
    """Tell whether a name in a state directory is one that a runner makes there."""
    names = (STATE_FILE_NAME, RESERVE_NAME, *_NEIGHBOURS)
    return name in names or is_leftover(STATE_FILE_NAME, name)


class HeldLock(Protocol):
    """A directory that is ours until it is given up, or until the process ends."""

    def release(self) -> None:
        """Give the directory up."""
        ...


class StateFile:
    """`runner-state.json` in a directory that this process has locked."""

    def __init__(
        self,
        fs: Filesystem,
        entropy: Entropy,
        directory: str,
        settings: Settings,
        lock: Callable[[str], HeldLock] = lock_directory,
    ):
        self._directory = directory
        self._settings = settings
        self._take_lock = lock
        self._lock: HeldLock | None = None
        # What was asked of the harness before the disk was full is taken as well.
        extra_bytes = settings.p0_reserve_bytes + OUTBOX_PAUSE_BYTES
        self._file = AtomicFile(
            fs,
            entropy,
            directory=directory,
            name=STATE_FILE_NAME,
            schema=STATE_SCHEMA,
            size_max=settings.max_outbox_bytes + STATE_BYTES_OVERHEAD_MAX,
            neighbours=_NEIGHBOURS,
            reserve=Reserve(fs, name=RESERVE_NAME, extra_bytes=extra_bytes),
        )

    @property
    def is_tight(self) -> bool:
        """True while the disk has no room: what is stored now is stored in the reserve (R15)."""
        return self._file.is_tight

    def find_room(self) -> None:
        """Look whether the disk has room again, and make the reserve whole."""
        self._file.find_room()

    def open(self) -> Durable | None:
        """Make the directory private and ours, and return the state in it, None if there is none.

        Raises PrpError ``state_*`` or ``storage_*``; the file is as it was. A reserve without
        its state is no new run but one whose state is gone: ``state_missing`` (faults S16).
        """
        self._file.open_directory()
        # The lock file is of this user, so the directory had to be made private first.
        self._lock = self._take_lock(self._directory)
        self._file.remove_leftovers()
        self._file.adopt_reserve()
        content = self._file.recover()
        if content is None and self._file.had_content:
            raise PrpError(ErrorCode.STATE_MISSING, f"{RESERVE_NAME} is left and the state is gone")
        return None if content is None else load(content, self._settings)

    def replace(self, durable: Durable) -> None:
        """Make ``durable`` the state on disk; raises WriteFailed."""
        self._file.replace(encode(durable))

    def close(self) -> None:
        """Give the directory up."""
        if self._lock is not None:
            self._lock.release()
        self._file.close()
