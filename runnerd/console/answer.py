"""How a command answers: one value for machines or lines for people, and an exit status.

It decides the two forms of an answer and of a refusal. It refuses to know what was asked.
"""

import json
import os
from collections.abc import Iterable
from typing import Final

import msgspec

from protocol.errors import ErrorCode, ExitStatus, PrpError, exit_status
from runnerd.ending import tell_end
from runnerd.help import words_of

_STANDARD_OUTPUT: Final = 1


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a command found: for machines, for people, and how it ends."""

    value: object
    lines: Iterable[str]
    refusal: ErrorCode | None = None
    """The code whose status the command ends with although it could answer."""


def give(answer: Answer, *, as_json: bool) -> int:
    """Print an answer and return the exit status."""
    if as_json:
        show(_json(answer.value))
    else:
        show("".join(_clean(line) + "\n" for line in answer.lines))
    return ExitStatus.OK if answer.refusal is None else exit_status(answer.refusal)


def refuse(error: PrpError, *, group: str, as_json: bool) -> int:
    """Say why there is no answer, and return the exit status.

    Args:
        group: the word behind the program's name, whose help explains the command line.
    """
    words, remedy = words_of(error.code)
    if error.code is ErrorCode.USAGE_INVALID:
        remedy = f"see runnerd {group} --help"
    if as_json:
        refused = {
            "code": error.code,
            "exitStatus": exit_status(error.code),
            "words": error.message or words,
            "remedy": remedy,
        }
        show(_json({"refused": refused}))
    return tell_end(
        error.code, error.message, last_failure=None, diagnostics_directory=None, remedy=remedy
    )


def show(text: str) -> None:
    """Write to standard output, as long as somebody reads."""
    data = text.encode(errors="replace")
    try:
        while data:
            data = data[os.write(_STANDARD_OUTPUT, data) :]
    except OSError:
        # Whoever wanted to read has gone.
        return


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode() + "\n"
    except UnicodeEncodeError:
        # Half a character from a log; this spelling has an escape for it.
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")) + "\n"


def _clean(line: str) -> str:
    # Texts of a log may hold anything that once stood in an output.
    return "".join(character if character.isprintable() else "?" for character in line)
