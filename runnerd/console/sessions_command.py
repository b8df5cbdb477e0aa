"""The command `runnerd sessions`: a person looks at a folder of sessions, and migrates them.

It decides which sessions are asked for, where a copy is made, and with which status the
command ends. It refuses to judge files itself, and only `migrate` writes.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from protocol.base.posix_fs import PosixFilesystem, PosixLocks, SystemClock, SystemEntropy
from protocol.base.private_directory import reason_of
from protocol.errors import ErrorCode, ExitStatus, PrpError
from runnerd.console.answer import Answer, give, refuse, show
from runnerd.console.forms import Form, Words, read_words
from runnerd.console.session_views import (
    Migrated,
    lines_of_accounts,
    lines_of_migrated,
    lines_of_proven,
)
from runnerd.flags import usage
from runnerd.runs.sessions.account import SessionAccount, account_of
from runnerd.runs.sessions.file_backend import FileSessions
from runnerd.runs.sessions.files import SessionFiles
from runnerd.runs.sessions.records import check_session_id, damaged
from runnerd.runs.sessions.session import Sessions

USAGE: Final = """\
usage: runnerd sessions inspect [SESSION]         what is there, and what opening would do
       runnerd sessions verify [SESSION]          reads every session against its backup
       runnerd sessions migrate [SESSION] [--copy]
                                                  makes versioned sessions of legacy ones

Each takes `--sessions DIR`, the folder of the sessions, and `--json`. Only `migrate` writes.
With `--copy` it works on a copy beside the folder, and says where: look at that first.

exit status:
   0  done; `inspect`: whatever it found          64  the command line
  65  no such session, or one cannot be kept, is damaged or contradicts its backup
  70  a fault of the program                      73  another process has the session
  74  the disk refused
"""

_FOLDER: Final = "--sessions"
_COPY: Final = "--copy"
_FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {
        "inspect": Form(positionals=(0, 1)),
        "verify": Form(positionals=(0, 1)),
        "migrate": Form(positionals=(0, 1), bare=(_COPY,)),
    }
)
_SUFFIX_BYTES: Final = 4
_DIGEST_READ_BYTES: Final = 1 << 20


def run_sessions(arguments: Sequence[str]) -> int:
    """Carry out a command and return its exit status; nothing is raised for what is found.

    Args:
        arguments: behind the word `sessions`.
    """
    if not {"--help", "-h"}.isdisjoint(arguments):
        show(USAGE)
        return ExitStatus.OK
    try:
        words = read_words("sessions", _FORMS, arguments, (_FOLDER,))
        if not words.values.get(_FOLDER):
            raise usage(f"{_FOLDER} is missing")
        return give(_COMMANDS[words.command](words), as_json=words.as_json)
    except PrpError as error:
        return refuse(error, group="sessions", as_json="--json" in arguments)


def _inspect(words: Words) -> Answer:
    accounts = _accounts(words)
    return Answer(value={"sessions": accounts}, lines=lines_of_accounts(accounts))


def _verify(words: Words) -> Answer:
    accounts = _accounts(words)
    first = next((one.code for one in accounts if one.code is not None), None)
    return Answer(value={"sessions": accounts}, lines=lines_of_proven(accounts), refusal=first)


def _migrate(words: Words) -> Answer:
    folder = words.values[_FOLDER]
    wanted = _wanted(words, folder)
    if _COPY not in words.bare:
        return _answer(folder, None, [_migrated(folder, session_id) for session_id in wanted])
    before = _digests(folder)
    copy = _copied(folder)
    done = [_migrated(copy, session_id) for session_id in wanted]
    if _digests(folder) != before:
        raise damaged("the folder was changed while its copy was migrated")
    return _answer(folder, copy, done)


def _answer(folder: str, copy: str | None, done: list[Migrated]) -> Answer:
    first = next((one.code for one in done if one.code is not None), None)
    value = {"folder": folder, "copy": copy, "sessions": done}
    return Answer(value=value, lines=lines_of_migrated(copy, done), refusal=first)


def _migrated(folder: str, session_id: str) -> Migrated:
    """Open a session twice: the second time nothing may be left to do."""
    entropy = SystemEntropy()
    backend = FileSessions(PosixFilesystem(), entropy, PosixLocks(), folder)
    sessions = Sessions(backend, entropy)
    try:
        now = SystemClock().now().unix_ms
        first = sessions.open(session_id, None, now)
        again = sessions.open(session_id, None, now)
    except PrpError as error:
        return Migrated(session_id=session_id, code=error.code, words=error.message)
    finally:
        backend.close()
    if again.mark != first.mark:
        code = ErrorCode.SESSION_MIGRATION_FAILED
        return Migrated(session_id=session_id, code=code, words="opened again it is another one")
    return Migrated(
        session_id=session_id,
        done=first.opening,
        messages=len(first.messages()),
        entries=first.tree.entry_count,
    )


def _accounts(words: Words) -> list[SessionAccount]:
    folder = words.values[_FOLDER]
    wanted = _wanted(words, folder)
    files = SessionFiles.for_reading(PosixFilesystem(), SystemEntropy(), folder)
    assert files is not None, "its sessions were listed"
    try:
        return [account_of(files, session_id) for session_id in wanted]
    finally:
        files.close()


def _wanted(words: Words, folder: str) -> list[str]:
    """Return the sessions that are asked for: the one that is named, or all there are."""
    files = SessionFiles.for_reading(PosixFilesystem(), SystemEntropy(), folder)
    if files is None:
        raise usage(f"{_FOLDER} names no folder")
    try:
        found = files.list_sessions()
    finally:
        files.close()
    for session_id in words.names:
        check_session_id(session_id)
        if session_id not in found:
            raise damaged("there is no such session in this folder")
    return list(words.names) or found


def _copied(folder: str) -> str:
    """Copy a folder beside itself under a name that nothing has."""
    suffix = SystemEntropy().token_bytes(_SUFFIX_BYTES).hex()
    copy = f"{os.path.abspath(folder)}.copy-{suffix}"
    try:
        shutil.copytree(folder, copy, symlinks=True)
    except OSError as error:
        shutil.rmtree(copy, ignore_errors=True)
        reason = f"the copy: {reason_of(error)}"
        raise PrpError(ErrorCode.SESSION_MIGRATION_FAILED, reason) from error
    return copy


def _digests(folder: str) -> dict[str, str]:
    """Return the digest of every file, so that a promise to change none can be kept."""
    return {name: _digest(path) for name, path in _files(folder)}


def _files(folder: str) -> Iterator[tuple[str, str]]:
    for directory, _, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path, folder), path


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while data := file.read(_DIGEST_READ_BYTES):
                digest.update(data)
    except OSError as error:
        raise damaged(reason_of(error)) from error
    return digest.hexdigest()


_COMMANDS: Final[Mapping[str, Callable[[Words], Answer]]] = MappingProxyType(
    {"inspect": _inspect, "verify": _verify, "migrate": _migrate}
)
