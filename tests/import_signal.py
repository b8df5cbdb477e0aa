"""A process that gets a signal at a chosen moment of its start: when it imports a module."""

import signal
from collections.abc import Mapping
from pathlib import Path

_HOOK = """
import os, sys

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            for _ in range({times}):
                os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Hook())
"""


def signalled_at(
    module: str, number: signal.Signals, directory: Path, *, times: int = 1
) -> Mapping[str, str]:
    """Return the environment of a Python that sends itself a signal when it looks for a module.

    Args:
        directory: an empty one, from which the process imports.
        times: how often the signal is sent, without anything in between.
    """
    hook = _HOOK.format(module=module, number=int(number), times=times)
    (directory / "sitecustomize.py").write_text(hook)
    return {"PYTHONPATH": str(directory)}
