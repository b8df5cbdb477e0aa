"""A stand-alone agent program: hashes every file of a folder and prints one line for each.

It decides how work survives a kill: a finished line is in its checkpoint, synced, before it
is printed, and a new start prints again what its reader has not made durable. It refuses to
know who starts it, kills it or reads it; the environment's RUNNERD_LINES_ACCEPTED is all.
"""

import argparse
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ACCEPTED_VARIABLE: Final = "RUNNERD_LINES_ACCEPTED"
_READ_BYTES: Final = 1 << 20

EXIT_DONE: Final = 0
EXIT_USAGE: Final = 64
EXIT_CHECKPOINT_LOST: Final = 65
EXIT_IO: Final = 74
EXIT_ALREADY_RUNNING: Final = 75


class Checkpoint:
    """The lines that are finished, in order; this process alone appends while it lives."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; BlockingIOError if another agent has it."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            # A kill during the last append left a part of a line; it was never printed.
            os.ftruncate(self._fd, whole)
            os.fsync(self._fd)
        self.lines = content[:whole].decode("ascii").splitlines()
        _sync_folder(path.parent)

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def append(self, line: str) -> None:
        """Make one more line durable."""
        _write(self._fd, f"{line}\n")
        os.fsync(self._fd)


def main(argv: Sequence[str]) -> int:
    """Print what the reader lacks of the recorded lines, then work on."""
    arguments = _arguments(argv)
    accepted = os.environ.get(ACCEPTED_VARIABLE, "0")
    if not (accepted.isascii() and accepted.isdigit()):
        return _fail(EXIT_USAGE, f"{ACCEPTED_VARIABLE} is not a number")
    if arguments.checkpoint.resolve().is_relative_to(arguments.folder.resolve()):
        return _fail(EXIT_USAGE, "the checkpoint lies in the folder that is to be hashed")
    try:
        with Checkpoint(arguments.checkpoint) as checkpoint:
            if int(accepted) > len(checkpoint.lines):
                return _fail(EXIT_CHECKPOINT_LOST, "more lines were accepted than are recorded")
            for line in checkpoint.lines[int(accepted) :]:
                _write(sys.stdout.fileno(), f"{line}\n")
            _work(arguments, checkpoint)
    except BlockingIOError:
        return _fail(EXIT_ALREADY_RUNNING, "another agent works with this checkpoint")
    except OSError as error:
        return _fail(EXIT_IO, str(error))
    return EXIT_DONE


def _work(arguments: argparse.Namespace, checkpoint: Checkpoint) -> None:
    finished = {line.split("  ", 1)[1] for line in checkpoint.lines}
    for number, path in enumerate(walk(arguments.folder), start=1):
        if arguments.hold is not None:
            _hold(number, *arguments.hold)
        name = quote(path)
        if name in finished:
            continue
        line = f"{digest(os.path.join(os.fsencode(arguments.folder), path))}  {name}"
        checkpoint.append(line)
        _write(sys.stdout.fileno(), f"{line}\n")


def _hold(number: int, first: str, fifo: str) -> None:
    if number >= int(first) and os.path.exists(fifo):
        # The open waits until somebody opens the other end.
        os.close(os.open(fifo, os.O_RDONLY))


def walk(folder: Path) -> Iterator[bytes]:
    """Yield the relative path of each regular file, in the order of their bytes."""
    root = os.fsencode(folder)
    found: list[bytes] = []
    for directory, _, names in os.walk(root, onerror=_raise):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path):
                found.append(os.path.relpath(path, root))
    yield from sorted(found)


def quote(path: bytes) -> str:
    """Return a file name as an ASCII JSON string, whatever bytes it has."""
    return json.dumps(os.fsdecode(path), ensure_ascii=True)


def digest(path: bytes) -> str:
    """Return the SHA-256 of a file's content as hex digits."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_READ_BYTES):
            total.update(block)
    return total.hexdigest()


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="agent", description="Hash every file of a folder; continue after a kill."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument(
        "--hold",
        nargs=2,
        metavar=("NUMBER", "FIFO"),
        help="before this file and each later one wait at the FIFO for as long as it exists",
    )
    return parser.parse_args(argv)


def _write(descriptor: int, text: str) -> None:
    data = text.encode("ascii")
    while data:
        data = data[os.write(descriptor, data) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raise(error: OSError) -> None:
    raise error


def _fail(status: int, words: str) -> int:
    print(f"agent: {words}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
