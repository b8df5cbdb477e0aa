"""The in-memory twin of the kernel locks of one machine."""

from collections.abc import Callable

from protocol.errors import ErrorCode, PrpError


class MemoryLocks:
    """Locks by name; a process that dies in a test gets a new instance, as its locks vanish."""

    def __init__(self, living: frozenset[int] = frozenset()) -> None:
        self.held: set[str] = set()
        self.living = living
        self.waits = 0

    def try_lock(self, directory: int, name: str) -> "MemoryLock":
        if name in self.held:
            raise PrpError(ErrorCode.STATE_LOCKED, "in use")
        self.held.add(name)
        return MemoryLock(self, name)

    def process_exists(self, pid: int) -> bool:
        return pid in self.living

    def wait(self, is_ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Time passes at once: a second look sees nothing new."""
        self.waits += 1
        return is_ready()


class MemoryLock:
    def __init__(self, locks: MemoryLocks, name: str) -> None:
        self._locks = locks
        self._name = name

    def release(self) -> None:
        self._locks.held.discard(self._name)
