"""The command `runnerd inspect`: its arguments, its output, its exit status.

It decides how a refusal is told. It refuses to know what a report holds.
"""

import os
from collections.abc import Sequence
from typing import Final

import msgspec

from protocol.base.posix_fs import PosixFilesystem, SystemClock
from protocol.errors import ErrorCode, ExitStatus, PrpError, exit_status
from runnerd.core.prospect import prospect
from runnerd.ending import tell_end
from runnerd.flags import read_flags, usage
from runnerd.help import ENDS
from runnerd.inspection import Report, lines_of, report
from runnerd.io.state_reader import look_at

_STANDARD_OUTPUT: Final = 1
_JSON_FLAG: Final = "--json"
_STATE_DIR: Final = "--state-dir"


class Refusal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why nothing can be shown, and how a start on this directory would end."""

    code: ErrorCode
    exit_status: int
    words: str
    remedy: str


class Refused(msgspec.Struct, frozen=True):
    """The JSON answer instead of a report."""

    refused: Refusal


def run_inspect(arguments: Sequence[str]) -> int:
    """Show a state directory and return the exit status; nothing is changed.

    Args:
        arguments: behind the word `inspect`.

    Returns:
        0, or the status with which a start on the same directory would end.
    """
    as_json = _JSON_FLAG in arguments
    try:
        path = _state_dir([word for word in arguments if word != _JSON_FLAG])
        look = look_at(PosixFilesystem(), path)
        shown = report(look, prospect(look.durable, SystemClock().now()))
    except PrpError as error:
        if as_json:
            _print(msgspec.json.encode(Refused(_refusal(error))).decode() + "\n")
        return tell_end(error.code, error.message, last_failure=None, diagnostics_directory=None)
    _print(msgspec.json.encode(shown).decode() + "\n" if as_json else _text(shown))
    return ExitStatus.OK


def _state_dir(arguments: Sequence[str]) -> str:
    flags = read_flags(arguments)
    path = flags.pop(_STATE_DIR, "")
    if flags:
        raise usage(f"inspect takes no {min(flags)}")
    if not path:
        raise usage(f"{_STATE_DIR} is missing")
    return path


def _refusal(error: PrpError) -> Refusal:
    words, remedy = ENDS[error.code]
    return Refusal(
        code=error.code,
        exit_status=exit_status(error.code),
        words=error.message or words,
        remedy=remedy,
    )


def _text(shown: Report) -> str:
    # Texts of the state may hold anything that once stood in an output.
    return "".join(
        "".join(character if character.isprintable() else "?" for character in line) + "\n"
        for line in lines_of(shown)
    )


def _print(text: str) -> None:
    data = text.encode(errors="replace")
    try:
        while data:
            data = data[os.write(_STANDARD_OUTPUT, data) :]
    except OSError:
        # Whoever wanted to read has gone.
        return
