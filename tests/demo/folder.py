"""The demo's real folder: source files of Python itself, and names that are hard to report.

It decides which files are hashed. It refuses to know who hashes them.
"""

import itertools
import os
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 64 * 1024
"""Larger files are left out: the demo is about many files."""

HARD_NAMES: Final = (
    b"an empty file",
    b"a name with\na line end",
    b"-rf",
    b'"quoted" \\ and escaped',
    b"not UTF-8 \xff\xfe",
    "größer als ASCII €".encode(),
)
FILES_MIN: Final = 2 * len(HARD_NAMES)


def make_folder(folder: Path, count: int) -> None:
    """Fill a new folder with ``count`` files, `FILES_MIN` or more."""
    root = os.fsencode(folder)
    os.makedirs(root)
    for name in HARD_NAMES:
        with open(os.path.join(root, name), "xb") as file:
            file.write(b"" if b"empty" in name else name)
    for path, source in itertools.islice(_sources(), count - len(HARD_NAMES)):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _sources() -> Iterator[tuple[Path, Path]]:
    """Yield names and sources without end; the library is taken again when it is used up."""
    library = Path(sysconfig.get_path("stdlib"))
    found = [
        path
        for path in sorted(library.rglob("*.py"))
        if "site-packages" not in path.parts
        and path.is_file()
        and not path.is_symlink()
        and path.stat().st_size <= FILE_BYTES_MAX
    ]
    for turn in itertools.count(1):
        for path in found:
            yield Path(f"library {turn}") / path.relative_to(library), path
