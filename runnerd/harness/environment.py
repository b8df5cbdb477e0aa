"""The environment of a harness: an allow-list, the extras that were named, and our own facts.

It decides which variables a program may see. It refuses to hand on the bootstrap ticket,
whoever names it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from runnerd.core.actions import StartHarness
from runnerd.ticket import VARIABLE as TICKET_VARIABLE

INHERITED: Final = (
    "PATH",
    "PATHEXT",
    "SystemRoot",
    "WINDIR",
    "HOME",
    "USERPROFILE",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "TEMP",
    "TMP",
    "TZ",
)
"""Source: runner-behaviour 12, "Supervision"."""

OWN_PREFIX: Final = "RUNNERD_"
_LAUNCH: Final = "RUNNERD_LAUNCH"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def child_environment(
    start: StartHarness, run_id: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment of a program.

    Names that a POSIX shell could not hand on are left out, like names that do not exist;
    those that begin with ``RUNNERD_`` are ours alone.

    Args:
        start: names the extras, which are taken from ``environ``.
    """
    kept = {
        name: environ[name] for name in (*INHERITED, *_allowed(start.env_names)) if name in environ
    }
    return kept | {
        _LAUNCH: start.launch_mark,
        "RUNNERD_RUN_ID": run_id,
        "RUNNERD_TURN": str(start.turn_ordinal),
        "RUNNERD_LINES_ACCEPTED": str(start.lines_accepted),
    }


def mark_variable(launch_mark: str) -> bytes:
    """Return the entry of a process's environment by which a launch is known."""
    return f"{_LAUNCH}={launch_mark}".encode()


def _allowed(names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if _NAME.fullmatch(name) and name != TICKET_VARIABLE and not name.startswith(OWN_PREFIX)
    ]
