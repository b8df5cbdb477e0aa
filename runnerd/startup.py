"""The first moments after the ticket is safe: requests to stop are heard, then the rest loads.

It decides what a start does not pay for. It refuses to know what is loaded.
"""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from runnerd.io.signals import StopSignals

if TYPE_CHECKING:
    from runnerd.daemon import Run

_METADATA = "importlib.metadata"


def fill_standard_descriptors() -> None:
    """Give a process that was started without standard streams empty ones.

    Otherwise the next file that is opened would become standard error, and receive the log.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one. Programs that are started inherit it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def listen_to_signals(noted: list[int]) -> StopSignals:
    """Take over SIGTERM and SIGINT from who noted them so far."""
    stops = StopSignals(noted)
    stops.install()
    return stops


def import_daemon() -> "Run":
    """Load everything that a first contact needs and return the daemon's entry."""
    with _without_package_metadata():
        from runnerd.daemon import run
    return run


@contextmanager
def _without_package_metadata() -> Generator[None]:
    """Spare the imports inside the standard library's reader of package metadata.

    The WebSocket library imports it to find the version of an unreleased copy of itself,
    and with it all of `email` and `zipfile`: a fifth of the whole start (architecture 8.3).
    Whoever does use it gets the real module.
    """
    if _METADATA in sys.modules:
        yield
        return
    stand_in = ModuleType(_METADATA)
    stand_in.__getattr__ = _from_real_module  # type: ignore[method-assign]  # PEP 562
    sys.modules[_METADATA] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(_METADATA) is stand_in:
            del sys.modules[_METADATA]


def _from_real_module(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    del sys.modules[_METADATA]
    import importlib.metadata

    return getattr(importlib.metadata, name)
