"""What a batch must have seen, item by item of faults.md 5.10, and which stack shows it.

It decides which facts of which stack stand for an item, and names why one is left to others.
It refuses to count: a batch does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class Item:
    """One item of the list."""

    words: str
    facts: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By stack, the facts that show it; all of them must be seen."""
    why_not: str = ""
    """Who shows it instead, if no stack does."""


_SAVE_STEPS: Final = tuple(
    f"fault at {call}"
    for call in ("open_directory", "create_exclusive", "write", "sync", "close", "rename", "unlink")
)

ITEMS: Final = (
    Item("duplicate delivery absorbed", {"full": ("duplicate delivery absorbed",)}),
    Item(
        "result replayed from cache",
        {"short": ("result replayed",)},
    ),
    Item("filter hit", {"short": ("id reused", "compacted command refused")}),
    Item("indeterminate reported", {"full": ("indeterminate reported",)}),
    Item("P0 written inside the reserve", {"short": ("reserve used",)}),
    Item(
        "backpressure entered and left",
        {"full": ("backpressure entered", "backpressure left")},
    ),
    Item("save failed at each of the eight steps", {"short": _SAVE_STEPS}),
    Item("power loss that dropped a rename", {"full": ("power loss dropped a rename",)}),
    Item("power loss that tore a temp", {"full": ("power loss tore a file",)}),
    Item("ACK lost", {"short": ("control data lost",), "full": ("bytes lost",)}),
    Item(
        "welcome lost after ticket use",
        {"short": ("welcome lost after ticket use",)},
    ),
    Item("lease expired during pause", {"full": ("lease expired during a pause",)}),
    Item("renewal reply lost", {"full": ("renewal reply lost",)}),
    Item(
        "two incarnations contending",
        {"full": ("two incarnations contend", "superseded by a newer incarnation")},
    ),
    Item(
        "rollback detected both ways",
        {
            "short": ("runner rollback detected", "controller rollback detected"),
            "full": ("runner rollback detected", "controller rollback detected"),
        },
    ),
    Item("sparse recovery", {"full": ("sparse recovery",)}),
    Item("late result after turn end", {"full": ("late result after turn end",)}),
    Item("conflict of results", {"full": ("conflict of results",)}),
    Item("torn tail repaired", {"runs": ("torn tail repaired",)}),
    Item("migration resumed", {"runs": ("migration resumed",)}),
    Item("relay splice refused", {"full": ("relay: splice",)}),
    Item(
        "harness group killed hard", why_not="real processes: tests/process, tests/runnerd/harness"
    ),
)


def table() -> Iterator[str]:
    """Yield one line for each item."""
    for item in ITEMS:
        shown = "; ".join(f"{stack}: {', '.join(facts)}" for stack, facts in item.facts.items())
        yield f"{item.words:38} {shown or 'not here, ' + item.why_not}"
