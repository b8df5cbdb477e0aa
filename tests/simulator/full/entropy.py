"""What lies outside the ports and would make two runs differ: masks, and the log's clock.

It decides the bytes that the WebSocket library draws, and that nothing is logged. It refuses
to touch any other module.
"""

import contextlib
import random
from collections.abc import Generator
from typing import Final

import structlog
from websockets import frames, utils

_CRITICAL: Final = 50
"""Nothing of the product is logged at this level."""


class _Seeded:
    """What the library uses of `secrets`."""

    def __init__(self, seed: int) -> None:
        self.token_bytes = random.Random(seed).randbytes


@contextlib.contextmanager
def silent_logs() -> Generator[None]:
    """Let the controller log nothing while the block lasts."""
    kept = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**kept)


@contextlib.contextmanager
def seeded_library(seed: int) -> Generator[None]:
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
