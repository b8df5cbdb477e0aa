"""A look at a state directory from beside: who has it, and what its file holds.

It decides who counts as the living owner. It refuses to create, lock, tighten or synchronise
anything: a directory that was looked at is as it was.
"""

import os
from typing import Final, Literal

import msgspec

from protocol.base.ports import Filesystem
from protocol.base.posix_fs import LOCK_FILE_NAME, LockOwner
from protocol.base.private_directory import (
    UNSAFE_ERRNOS,
    check_private_file,
    close_quietly,
    open_untouched,
    reason_of,
    unsafe,
)
from protocol.base.proven_content import disclose
from protocol.errors import ErrorCode, PrpError
from protocol.limits import MIB, OUTBOX_BYTES_CEILING, STATE_BYTES_OVERHEAD_MAX
from protocol.process_birth import ProcessBirth, same_process
from runnerd.core.state import STATE_SCHEMA, Durable
from runnerd.core.state_codec import believe
from runnerd.harness.proc import boot_id, read_process
from runnerd.io.state_file import RESERVE_NAME, STATE_FILE_NAME, is_ours

Life = Literal["running", "not_running", "unknown"]

_STATE_BYTES_MAX: Final = OUTBOX_BYTES_CEILING + STATE_BYTES_OVERHEAD_MAX
_OWNER_BYTES_MAX: Final = 4096
_READ_BYTES: Final = MIB
_LOOKS_MAX: Final = 100


class Owner(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The daemon of a directory, by the record beside its lock.

    ``unknown`` if the record is of another machine, or cannot be judged from here.
    """

    status: Life
    pid: int | None = None
    host: str | None = None


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a directory showed: its owner, and its state if there is one."""

    owner: Owner
    state_bytes: int = 0
    durable: Durable | None = None


def look_at(fs: Filesystem, path: str) -> Look:
    """Read a state directory without touching it, whether its daemon runs or not.

    A running daemon replaces the file whole, so what is read is one of its states.

    Raises:
        PrpError: ``state_missing`` if there is no such directory, or one whose state is gone;
            ``state_unsafe``, ``state_corrupt``, ``state_foreign``,
            ``state_version_unsupported`` or ``storage_read_failed`` as a start would.
    """
    directory = open_untouched(fs, path, is_ours)
    if directory is None:
        raise PrpError(ErrorCode.STATE_MISSING, "there is no such directory")
    try:
        owner = _owner_of(fs, directory)
        data = _read(fs, directory, STATE_FILE_NAME, _STATE_BYTES_MAX)
        if data is None and _has_reserve(fs, directory):
            raise PrpError(ErrorCode.STATE_MISSING, f"{RESERVE_NAME} is left and the state is gone")
    finally:
        close_quietly(fs, directory)
    if data is None:
        return Look(owner=owner)
    durable = believe(disclose(STATE_SCHEMA, data))
    return Look(owner=owner, state_bytes=len(data), durable=durable)


def life_of(birth: ProcessBirth) -> Life:
    """Tell whether the process that was born so still lives."""
    try:
        boot = boot_id()
        process = read_process(birth.pid, boot)
    except OSError:
        return "unknown"
    is_alive = process is not None and not process.is_dead and same_process(process.birth, birth)
    return "running" if is_alive else "not_running"


def _has_reserve(fs: Filesystem, directory: int) -> bool:
    """Tell whether there is a reserve, which is made only beside a state (see `StateFile`)."""
    try:
        descriptor = fs.open_read(directory, RESERVE_NAME)
    except OSError:
        return False
    try:
        return fs.fstat(descriptor).size_bytes > 0
    finally:
        close_quietly(fs, descriptor)


def _owner_of(fs: Filesystem, directory: int) -> Owner:
    data = _read(fs, directory, LOCK_FILE_NAME, _OWNER_BYTES_MAX)
    if data is None:
        return Owner(status="not_running")
    try:
        record = msgspec.json.decode(data.partition(b"\n")[0], type=LockOwner)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # A record that is being written at this moment.
        return Owner(status="unknown")
    return Owner(status=_life_of_owner(record), pid=record.pid, host=record.host)


def _life_of_owner(record: LockOwner) -> Life:
    if record.start_ticks is None or record.boot_id is None:
        return "unknown"
    if record.host is not None and record.host != os.uname().nodename:
        return "unknown"
    try:
        birth = ProcessBirth(
            pid=record.pid,
            process_group_id=0,
            session_id=0,
            start_ticks=record.start_ticks,
            boot_id=record.boot_id,
        )
    except ValueError:
        return "unknown"
    return life_of(birth)


def _read(fs: Filesystem, directory: int, name: str, size_max: int) -> bytes | None:
    """Return a private file's bytes, None if there is no such file."""
    try:
        for _ in range(_LOOKS_MAX):
            descriptor = fs.open_read(directory, name)
            try:
                status = fs.fstat(descriptor)
                # A daemon has just put another file in its place.
                if status.link_count > 0:
                    check_private_file(fs, status, name)
                    return _content(fs, descriptor, name, size_max)
            finally:
                close_quietly(fs, descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in UNSAFE_ERRNOS:
            raise unsafe(f"{name}: {reason_of(error)}") from error
        raise PrpError(ErrorCode.STORAGE_READ_FAILED, reason_of(error)) from error
    raise PrpError(ErrorCode.STORAGE_READ_FAILED, f"{name} is replaced all the time")


def _content(fs: Filesystem, descriptor: int, name: str, size_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := fs.read(descriptor, _READ_BYTES):
        parts.append(part)
        size += len(part)
        if size > size_max:
            raise PrpError(ErrorCode.STATE_CORRUPT, f"{name} is larger than {size_max} bytes")
    return b"".join(parts)
