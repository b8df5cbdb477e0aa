"""Where the command line keeps a controller's data.

It decides the default place and the names inside. It refuses to know what the files hold.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from protocol.base.private_directory import refusal_of
from protocol.ids import RunId

RUNNERS_NAME: Final = "runners"


def default_directory(environment: Mapping[str, str]) -> Path | None:
    """Return $XDG_STATE_HOME/runnerd, or ~/.local/state/runnerd; None without a home."""
    configured = environment.get("XDG_STATE_HOME", "")
    # A relative path there must be ignored. Source: XDG Base Directory specification.
    if os.path.isabs(configured):
        return Path(configured) / "runnerd"
    try:
        return Path.home() / ".local" / "state" / "runnerd"
    except RuntimeError:
        return None


def runner_directory(data: Path, run_id: RunId) -> Path:
    """Return the state directory of a run's runner."""
    return data / RUNNERS_NAME / run_id


def make_private(directory: Path) -> None:
    """Create a directory that only this user can enter, with its parents.

    Raises:
        PrpError: ``state_unsafe``, ``storage_unavailable``.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise refusal_of(error, directory.name) from None
