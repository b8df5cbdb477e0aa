"""The WebSocket library's own randomness, seeded: masks and keys that follow from the seed.

It decides the bytes that the library draws. It refuses to touch any other module.
"""

import contextlib
import random
from collections.abc import Iterator

from websockets import frames, utils


class _Seeded:
    """What the library uses of `secrets`."""

    def __init__(self, seed: int) -> None:
        self.token_bytes = random.Random(seed).randbytes


@contextlib.contextmanager
def seeded_library(seed: int) -> Iterator[None]:
    """Let masks and upgrade keys follow from the seed while the block lasts."""
    modules = (frames, utils)
    kept = [vars(module)["secrets"] for module in modules]
    for module in modules:
        vars(module)["secrets"] = _Seeded(seed)
    try:
        yield
    finally:
        for module, original in zip(modules, kept, strict=True):
            vars(module)["secrets"] = original
