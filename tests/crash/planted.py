"""Copies of product modules with one bug put in by a text patch.

It decides that a stale patch is a failure. It refuses to touch the product: the copy lives
in a temporary directory and under another name.
"""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from protocol.base import atomic_file, private_directory


@dataclass(frozen=True)
class Patch:
    """One bug: in which module, what is replaced by what, and what must notice it."""

    name: str
    module: ModuleType
    old: str
    new: str
    dies_by: str


PATCHES = (
    Patch(
        "file_sync_removed",
        atomic_file,
        "                self._fs.sync(descriptor)\n",
        "",
        dies_by="I8",
    ),
    Patch(
        "directory_sync_removed",
        atomic_file,
        "            raise self._failure(error, renamed=self._is_undecided) from error\n"
        "        self._sync_directory()\n",
        "            raise self._failure(error, renamed=self._is_undecided) from error\n",
        dies_by="I7",
    ),
    Patch(
        "directory_sync_after_load_removed",
        atomic_file,
        "        self._sync_directory()\n        return content\n",
        "        return content\n",
        dies_by="I7",
    ),
    Patch(
        "recovered_state_not_published_anew",
        atomic_file,
        "                self.replace(content)\n",
        "                pass\n",
        dies_by="I7",
    ),
    Patch(
        "failed_sync_tried_again",
        atomic_file,
        "                self._fs.sync(descriptor)\n",
        "                try:\n"
        "                    self._fs.sync(descriptor)\n"
        "                except OSError:\n"
        "                    self._fs.sync(descriptor)\n",
        dies_by="I7",
    ),
    Patch(
        "failed_directory_sync_called_an_old_state",
        atomic_file,
        "            self._is_undecided = True\n"
        "            raise self._failure(error, renamed=True) from error\n",
        "            raise self._failure(error, renamed=False) from error\n",
        dies_by="I7",
    ),
    Patch(
        "short_write_believed",
        atomic_file,
        "        while written < len(data):\n",
        "        while False:\n",
        dies_by="I8",
    ),
    Patch(
        "written_in_place",
        atomic_file,
        "        temp = self._temp_name(self._entropy.token_bytes(_TEMP_RANDOM_BYTES).hex())\n",
        "        temp = self._name\n        self._discard(temp)\n",
        dies_by="I8",
    ),
    Patch(
        "failed_sibling_left_open",
        atomic_file,
        "                close_quietly(self._fs, descriptor)\n                raise\n",
        "                raise\n",
        dies_by="I21",
    ),
    Patch(
        "leftovers_kept",
        atomic_file,
        "            if self._is_leftover(name) and self._discard(name) is None:\n",
        "            if self._is_leftover(name):\n",
        dies_by="I10",
    ),
    Patch(
        "name_of_new_directory_not_synchronised",
        private_directory,
        "    try:\n        fs.sync(descriptor)\n",
        "    try:\n        pass\n",
        dies_by="I7",
    ),
    Patch(
        "directory_with_uncertain_name_kept",
        private_directory,
        "            fs.remove_directory(path)\n",
        "            pass\n",
        dies_by="I7",
    ),
)


def load_with(patch: Patch, folder: Path) -> ModuleType:
    """Return a copy of the patch's module with the bug in it."""
    assert patch.module.__file__ is not None
    source = Path(patch.module.__file__).read_text(encoding="utf-8")
    assert source.count(patch.old) == 1, f"the patch {patch.name} is stale"
    path = folder / f"planted_{patch.name}.py"
    path.write_text(source.replace(patch.old, patch.new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # msgspec resolves annotations through the table of modules.
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return module
