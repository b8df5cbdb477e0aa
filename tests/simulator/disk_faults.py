"""What may happen to a call on a simulated disk, and what it is told of.

It decides which faults there are. It refuses to know when one happens and what it does.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec


class Died(BaseException):
    """The process is gone. No `except OSError` sees it, and no call of it does anything."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """One call on the port: the how-manieth of this process, its name, what it is about."""

    index: int
    name: str
    subject: str


@dataclass(frozen=True)
class Refuse:
    """The call fails; a failed sync also forgets what it should have kept."""

    errno: int


@dataclass(frozen=True)
class Shorten:
    """A read or write does at most this many bytes."""

    count: int


@dataclass(frozen=True)
class Lie:
    """A sync reports success and does nothing."""


@dataclass(frozen=True)
class TurnReadOnly:
    """From this call on every change fails."""


@dataclass(frozen=True)
class Die:
    """The process ends before or after the call takes effect."""

    is_after: bool


Fault = Refuse | Shorten | Lie | TurnReadOnly | Die
Nemesis = Callable[[Call], Fault | None]
