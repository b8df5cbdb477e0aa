"""The bootstrap ticket's way out of the environment, before anything else is imported.

It decides what is left of the ticket where others could read it: nothing. It refuses to
know what the ticket opens and whether it is any good.
"""

import os

VARIABLE = "PAPERCLIP_RUNNER_BOOTSTRAP_TICKET"

# Fields 50 and 51 of /proc/self/stat, counted after the process name. Source: proc(5).
_ENVIRONMENT_START = 47
_ENVIRONMENT_END = 48
_PR_SET_DUMPABLE = 4


class CapturedTicket:
    """What the environment held: ``token``, or None; ``is_overwritten`` tells if no trace stays."""

    __slots__ = ("is_overwritten", "token")

    def __init__(self, token: bytearray | None, *, is_overwritten: bool) -> None:
        self.token = token
        self.is_overwritten = is_overwritten

    def __repr__(self) -> str:
        return "CapturedTicket(<redacted>)"


def capture() -> CapturedTicket:
    """Take the ticket out of the environment, then make this process unreadable to others.

    The variable leaves the mapping that children inherit, and its value is overwritten in
    the block that the kernel shows as `/proc/PID/environ`, which no unsetting reaches.
    After that the process cannot be dumped or traced by its own user.

    Source: faults R23, architecture 8.5.
    """
    value = os.environb.pop(VARIABLE.encode(), None)
    token = None if value is None else bytearray(value)
    is_overwritten = token is None or _overwrite_initial_block()
    _forbid_dumps()
    return CapturedTicket(token, is_overwritten=is_overwritten)


def _overwrite_initial_block() -> bool:
    """Overwrite the value, wherever the variable stands in the block; False if that failed."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[_ENVIRONMENT_START]), int(fields[_ENVIRONMENT_END])
        memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            _overwrite_value(memory, start, os.pread(memory, end - start, start))
        finally:
            os.close(memory)
    except (OSError, ValueError, IndexError):
        return False
    return True


def _overwrite_value(memory: int, start: int, block: bytes) -> None:
    name = VARIABLE.encode() + b"="
    offset = 0
    for entry in block.split(b"\0"):
        if entry.startswith(name):
            length = len(entry) - len(name)
            if os.pwrite(memory, bytes(length), start + offset + len(name)) != length:
                raise OSError("the value was not overwritten whole")
        offset += len(entry) + 1


def _forbid_dumps() -> None:
    # Imported here and below: the ticket has left the environment by now.
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    try:
        _prctl(_PR_SET_DUMPABLE, 0)
    except (OSError, AttributeError):
        # Not Linux: the core limit is all there is.
        return


def _prctl(option: int, value: int) -> None:
    """Call prctl(2), which the standard library does not have."""
    arguments = (option, value, 0, 0, 0)
    try:
        # What `ctypes` itself calls; importing all of that costs every start 2 ms.
        import _ctypes

        # None is this program itself, which the annotation forgets.
        program = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
        address = _ctypes.dlsym(program, "prctl")
        _ctypes.call_function(address, arguments)
    except (ImportError, AttributeError, TypeError):
        import ctypes

        ctypes.CDLL(None).prctl(*arguments)
