"""The outside world: what really happened there, under which key.

It decides whether something that was asked for twice happens twice. It refuses to know logs
and receipts.
"""

from dataclasses import dataclass, field

from tests.simulator.verdict import Violation


@dataclass
class Request:
    """Something that was asked for; it may happen even after the one who asked is gone."""

    work: str
    key: str
    honours_key: bool
    is_harmless: bool
    """Done twice it does no more than done once."""
    is_open: bool = True
    """It may still happen."""


@dataclass
class Ledger:
    """Everything that was asked for, and what came of it."""

    done: dict[str, int] = field(default_factory=dict[str, int])
    """How often each work was done."""
    keys: set[str] = field(default_factory=set[str])
    """Keys under which something was done where keys are honoured."""
    requests: list[Request] = field(default_factory=list[Request])
    was_asked_twice: bool = False

    def ask(self, work: str, key: str, *, honours_key: bool, is_harmless: bool) -> Request:
        """Take a request; it has not happened yet."""
        request = Request(work, key, honours_key, is_harmless)
        self.requests.append(request)
        return request

    def happen(self, request: Request) -> None:
        """Let what was asked for happen, once under each key that counts (I14)."""
        if not request.is_open:
            return
        request.is_open = False
        if request.honours_key:
            if request.key in self.keys:
                self.was_asked_twice = True
                return
            self.keys.add(request.key)
        count = self.done[request.work] = self.done.get(request.work, 0) + 1
        if count > 1 and not request.is_harmless:
            raise Violation("I14", f"{request.work} was done twice")

    def refuse(self, request: Request) -> None:
        """Make sure that a request will never happen any more."""
        request.is_open = False

    def is_done(self, work: str) -> bool:
        """Tell the truth about a work."""
        return self.done.get(work, 0) > 0
