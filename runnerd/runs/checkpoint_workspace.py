"""The files of a workspace that a tool may change: found, looked at, put back.

It decides whether a path leads into the workspace and in which order a file is replaced.
It refuses to know why, and never follows a link that appeared after the path was resolved:

    path ─▶ resolve links ─▶ inside? ─▶ walk down by descriptors, no link followed ─▶ file
"""

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import msgspec

from protocol.base.ports import Entropy, FileStatus, Filesystem
from protocol.base.private_directory import close_quietly
from protocol.errors import ErrorCode, PrpError
from protocol.limits import RUN_READ_BYTES, SYMLINKS_FOLLOWED_MAX
from runnerd.runs.checkpoint_records import FileState
from runnerd.runs.run_file import RunFolder, failures_as

_SIBLING: Final = "runnerd-restore"
"""Stem of the files that a restore makes beside its target."""


class Place(msgspec.Struct, frozen=True):
    """A path whose links are resolved: below the workspace, or not there yet."""

    parents: tuple[str, ...]
    """Directories below the workspace, outermost first."""
    name: str
    path: str


class Sight(msgspec.Struct, frozen=True):
    """What was seen of a file; its status tells whether it was touched since."""

    state: FileState
    status: FileStatus | None = None
    content: bytes | None = None
    """The bytes, if they were asked for."""


class Workspace:
    """One directory, under whose exclusive lease the caller changes files.

    Mode bits are kept; owner, access lists and further names of a file are not.
    """

    def __init__(self, fs: Filesystem, entropy: Entropy, root: str) -> None:
        self._fs = fs
        self._entropy = entropy
        self._root = root

    def locate(self, path: str) -> Place:
        """Resolve a path, relative to the workspace or absolute, that may not exist yet.

        Raises PrpError ``checkpoint_failed`` if it is blank, leads out of the workspace
        or is the workspace, or cannot be resolved.
        """
        if not path.strip():
            raise _failed("an empty path")
        with failures_as(ErrorCode.CHECKPOINT_FAILED):
            root = self._resolved_root()
            start = [] if path.startswith("/") else root
            found = self._resolved([*start, *_parts(path)])
        if found[: len(root)] != root or len(found) == len(root):
            raise _failed("the path leads out of the workspace")
        below = found[len(root) :]
        return Place(tuple(below[:-1]), below[-1], "/" + "/".join(found))

    def holds(self, directory: str, place: Place) -> bool:
        """Tell whether a place lies in a directory that lies in the workspace."""
        with failures_as(ErrorCode.CHECKPOINT_FAILED):
            found = self._resolved(_parts(directory))
            is_below = len(found) > len(self._resolved_root())
        return is_below and _parts(place.path)[: len(found)] == found

    def look(self, place: Place) -> Sight:
        """Return the state of a file of any size.

        Raises PrpError ``checkpoint_failed`` if it is no regular file, cannot be read, or
        changes while it is read.
        """
        return self._seen(place, None)

    def read(self, place: Place, size_max: int) -> Sight:
        """Return the state of a file with its bytes.

        Raises what `look` raises, and ``checkpoint_too_large`` beyond ``size_max`` bytes.
        """
        return self._seen(place, size_max)

    def replace(self, place: Place, content: bytes, mode: int, seen: Sight) -> None:
        """Give a file other bytes and mode at once, if it is still what was ``seen``.

        Raises PrpError: ``checkpoint_conflict`` if it is not, or if its directory is gone;
        ``checkpoint_failed`` if the file surely stands as it was;
        ``durability_barrier_failed`` if either one may be found.
        """
        with failures_as(ErrorCode.CHECKPOINT_FAILED), self._present(place) as folder:
            folder.remove_leftovers(_SIBLING)
            temp = folder.write_sibling(_SIBLING, (content,), mode)
            try:
                _check_untouched(folder, place.name, seen)
            except BaseException:
                folder.discard(temp)
                raise
            folder.put_in_place(temp, place.name)

    def remove(self, place: Place, seen: Sight) -> None:
        """Remove a file, if it is still what was ``seen``; raises what `replace` raises."""
        with failures_as(ErrorCode.CHECKPOINT_FAILED), self._present(place) as folder:
            folder.remove_leftovers(_SIBLING)
            _check_untouched(folder, place.name, seen)
            if seen.status is not None:
                error = folder.discard(place.name)
                if error is not None and folder.status(place.name) is not None:
                    raise error
            folder.sync()

    def _seen(self, place: Place, size_max: int | None) -> Sight:
        with failures_as(ErrorCode.CHECKPOINT_FAILED), self._folder(place) as folder:
            if folder is None or folder.status(place.name) is None:
                return Sight(FileState(existed=False))
            return self._look(folder, place.name, size_max)

    def _look(self, folder: RunFolder, name: str, size_max: int | None) -> Sight:
        descriptor = self._fs.open_read(folder.directory, name)
        try:
            status = self._fs.fstat(descriptor)
            if not status.is_regular:
                raise _failed("not a regular file")
            if size_max is not None and status.size_bytes > size_max:
                reason = f"larger than {size_max} bytes"
                raise PrpError(ErrorCode.CHECKPOINT_TOO_LARGE, reason)
            digest, parts, size = hashlib.sha256(), list[bytes](), 0
            while size <= status.size_bytes and (data := self._fs.read(descriptor, RUN_READ_BYTES)):
                digest.update(data)
                size += len(data)
                if size_max is not None:
                    parts.append(data)
            if size != status.size_bytes or self._fs.fstat(descriptor) != status:
                raise _failed("the file changes while it is read")
        finally:
            close_quietly(self._fs, descriptor)
        state = FileState(existed=True, sha256=digest.hexdigest())
        return Sight(state, status, None if size_max is None else b"".join(parts))

    @contextmanager
    def _present(self, place: Place) -> Generator[RunFolder]:
        with self._folder(place) as folder:
            if folder is None:
                raise _conflict("the directory of the file is gone")
            yield folder

    @contextmanager
    def _folder(self, place: Place) -> Generator[RunFolder | None]:
        """Open the directory of a file, None if it or one above it is not there."""
        try:
            directory = self._descend(place.parents)
        except FileNotFoundError:
            yield None
            return
        try:
            yield RunFolder(self._fs, self._entropy, directory)
        finally:
            close_quietly(self._fs, directory)

    def _descend(self, parents: tuple[str, ...]) -> int:
        directory = self._fs.open_directory("/" + "/".join(self._resolved_root()))
        for name in parents:
            try:
                below = self._fs.open_directory_in(directory, name)
            finally:
                close_quietly(self._fs, directory)
            directory = below
        return directory

    def _resolved_root(self) -> list[str]:
        root = self._resolved(_parts(self._root))
        status = self._status("/" + "/".join(root))
        if not self._root.startswith("/") or status is None or not status.is_directory:
            raise _failed("the workspace is not a directory")
        return root

    def _resolved(self, parts: list[str]) -> list[str]:
        """Follow every link on the way; what does not exist yet is taken as it is spelled."""
        pending, done = parts[::-1], list[str]()
        links, is_missing = 0, False
        while pending:
            part = pending.pop()
            if part == "..":
                if is_missing:
                    raise _failed("a way back from what does not exist")
                del done[-1:]
                continue
            path = "/" + "/".join([*done, part])
            status = None if is_missing else self._status(path)
            is_missing = status is None
            if status is not None and status.is_symlink:
                links += 1
                if links > SYMLINKS_FOLLOWED_MAX:
                    raise _failed("too many links on the way")
                target = self._fs.read_link(path)
                pending += _parts(target)[::-1]
                done = [] if target.startswith("/") else done
                continue
            if status is not None and pending and not status.is_directory:
                raise _failed("a file stands where a directory must")
            done.append(part)
        return done

    def _status(self, path: str) -> FileStatus | None:
        try:
            return self._fs.lstat(path)
        except FileNotFoundError:
            return None
        except ValueError:
            raise _failed("not a path that a file can have") from None


def _check_untouched(folder: RunFolder, name: str, seen: Sight) -> None:
    if folder.status(name) != seen.status:
        raise _conflict("the file was changed at this moment")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _failed(reason: str) -> PrpError:
    return PrpError(ErrorCode.CHECKPOINT_FAILED, reason)


def _conflict(reason: str) -> PrpError:
    return PrpError(ErrorCode.CHECKPOINT_CONFLICT, reason)
