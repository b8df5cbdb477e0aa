"""A process that owns a store, to be killed or to run out of room.

    python -m tests.storage.child KIND PLACE ROLE

Each line it prints is a fact of which its parent may rely on.
"""

import contextlib
import resource
import sys
from pathlib import Path

from controller_mock.storage.store import Store, StoreFailed
from protocol.errors import PrpError
from tests.controller_mock.core.world import CONFIG
from tests.storage.changes import RUN, events
from tests.storage.kinds import kind_named

BATCH = 7
BODY = b'{"text":"' + b"x" * 1_000 + b'"}'
FILE_BYTES_MAX = 1_000_000


def main(kind: str, place: str, role: str) -> None:
    """Open the store and play a role until killed, refused or full."""
    try:
        store = kind_named(kind).open(Path(place))
    except PrpError as error:
        say(error.code.value)
        return
    with contextlib.suppress(PrpError):
        store.create_run(CONFIG)
    say("opened")
    if role == "hold":
        sys.stdin.read()
    elif role == "write":
        write_until_killed(store)
    else:
        if role == "limited":
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
        say(write_until_full(store))
        # Give nothing back: what was committed must not need a clean end.
        sys.stdout.flush()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def write_until_killed(store: Store) -> None:
    """Commit for ever and report each commit once it has returned."""
    seq = len(store.events(RUN, 0, 1_000_000))
    while True:
        store.commit([(RUN, events(range(seq + 1, seq + BATCH + 1), body=BODY))])
        seq += BATCH
        say(str(seq))


def write_until_full(store: Store) -> str:
    """Commit until the disk refuses, and return the code and the last commit."""
    seq = 0
    while True:
        try:
            store.commit([(RUN, events(range(seq + 1, seq + BATCH + 1), body=BODY))])
        except StoreFailed as error:
            return f"{error.code.value} {seq}"
        seq += BATCH


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
