"""What waits to be fed to the core: inputs and ends of writes, in the order of their arrival.

It decides when the loop wakes. It refuses to look at what it holds.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

import anyio

ItemT = TypeVar("ItemT")


class Inbox(Generic[ItemT]):
    """A queue with one reader, who takes everything at once."""

    def __init__(self) -> None:
        self._items: deque[ItemT] = deque()
        self._arrived = anyio.Event()

    def post(self, item: ItemT) -> None:
        """Put an item behind the others; called in the event loop's thread."""
        self._items.append(item)
        self._arrived.set()

    async def wait(self, timeout_s: float) -> None:
        """Return when there is an item or the time is over, after one turn of the loop at least."""
        timer = asyncio.get_running_loop().call_later(timeout_s, self._arrived.set)
        try:
            await self._arrived.wait()
        finally:
            timer.cancel()
        self._arrived = anyio.Event()

    def take(self) -> deque[ItemT]:
        """Return everything that waits."""
        items, self._items = self._items, deque()
        return items
