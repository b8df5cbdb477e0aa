"""The identity of a process: its number, and the instant of the boot at which it was born.

It decides whether two looks at a process number saw the same process. It refuses to look:
file contents come in as bytes.
"""

from typing import Final

import msgspec

from protocol.base.clock import UnixMs

# Places in /proc/PID/stat behind the name, which stands in parentheses. Source: proc(5).
_PROCESS_GROUP: Final = 2
_SESSION: Final = 3
_START_TICKS: Final = 19

_MS: Final = 1000
_BOOT_ID_LENGTH_MAX: Final = 64


class ProcessBirth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A process as it may be recorded: a later process never equals it.

    Group and session are those of the moment, and 0 where the kernel shows none.
    """

    pid: int
    process_group_id: int
    session_id: int
    start_ticks: int
    """Clock ticks between boot and birth."""
    boot_id: str
    """Names the boot; ticks and numbers mean nothing in another one."""

    def __post_init__(self) -> None:
        if self.pid < 1 or min(self.process_group_id, self.session_id, self.start_ticks) < 0:
            raise ValueError("a process number or a birth that cannot be")
        if not 1 <= len(self.boot_id) <= _BOOT_ID_LENGTH_MAX:
            raise ValueError("the boot id is empty or too long")


def parse_stat(text: bytes, boot_id: str) -> ProcessBirth:
    """Read the content of `/proc/PID/stat`.

    Args:
        boot_id: content of `/proc/sys/kernel/random/boot_id` without its line end.

    Raises:
        ValueError: if it is not the content of such a file; nothing is guessed.

    Source: runner-behaviour 13.
    """
    # The name may hold anything, parentheses and line ends too: only the last one counts.
    front, parenthesis, behind = text.rpartition(b")")
    pid, opening, _ = front.partition(b" (")
    fields = behind.split()
    if not parenthesis or not opening or len(fields) <= _START_TICKS:
        raise ValueError("not the status of a process")
    return ProcessBirth(
        pid=_number(pid),
        process_group_id=_number(fields[_PROCESS_GROUP]),
        session_id=_number(fields[_SESSION]),
        start_ticks=_number(fields[_START_TICKS]),
        boot_id=boot_id,
    )


def same_process(one: ProcessBirth, other: ProcessBirth) -> bool:
    """Tell whether both are the same process; it may have changed group or session between."""
    return (one.pid, one.start_ticks, one.boot_id) == (other.pid, other.start_ticks, other.boot_id)


def birth_unix_ms(start_ticks: int, btime_s: int, clk_tck: int) -> UnixMs:
    """Return the instant of a birth on the wall clock, for people and for foreign records.

    Args:
        btime_s: `btime` of `/proc/stat`, seconds since 1970 at boot.
        clk_tck: ticks in a second, `sysconf(_SC_CLK_TCK)`.

    Source: runner-behaviour 13.
    """
    if start_ticks < 0 or btime_s <= 0 or clk_tck <= 0:
        raise ValueError("the clock of this boot is not known")
    return UnixMs(btime_s * _MS + start_ticks * _MS // clk_tck)


def _number(digits: bytes) -> int:
    # int() would also take signs, spaces and underscores.
    if not digits.isdigit() or len(digits) > len(str(2**64)):
        raise ValueError("not a number of /proc")
    return int(digits)
