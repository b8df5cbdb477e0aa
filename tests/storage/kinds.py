"""The stores that the contract suite runs over; a later store adds one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from controller_mock.storage.sqlite import open_store
from controller_mock.storage.store import Store
from tests.storage.memory import MemoryStore


class StoreKind(msgspec.Struct, frozen=True, kw_only=True):
    """One implementation. ``open`` takes a place of the test's own, the same one each time."""

    name: str
    open: Callable[[Path], Store]
    is_durable: bool = True
    """What was committed is there when the place is opened again, also after a crash."""


KINDS: Final = (
    StoreKind(name="memory", open=lambda place: MemoryStore(), is_durable=False),
    StoreKind(name="sqlite", open=open_store),
)
DURABLE: Final = tuple(kind for kind in KINDS if kind.is_durable)


def kind_named(name: str) -> StoreKind:
    """Return a kind in another process, which got its name."""
    (found,) = [kind for kind in KINDS if kind.name == name]
    return found
