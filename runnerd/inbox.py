"""What waits to be fed to the core: inputs and ends of writes, in the order of their arrival.

It decides when its reader is woken. It refuses to look at what it holds.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class Inbox(Generic[ItemT]):
    """A queue with one reader, who takes everything at once."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Begin empty.

        Args:
            wake: is called when the first item arrives after everything was taken.
        """
        self._items: deque[ItemT] = deque()
        self._wake = wake

    def post(self, item: ItemT) -> None:
        """Put an item behind the others; called in the event loop's thread."""
        self._items.append(item)
        if len(self._items) == 1:
            self._wake()

    @property
    def is_empty(self) -> bool:
        """True if nothing waits."""
        return not self._items

    def take(self) -> deque[ItemT]:
        """Return everything that waits."""
        items, self._items = self._items, deque()
        return items
