"""What is shown of sessions: a table of accounts, what was proven, what was migrated.

It decides what of a session is worth a column. It refuses to judge.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from protocol.errors import ErrorCode
from runnerd.runs.sessions.account import BackupState, Form, Outlook, SessionAccount
from runnerd.runs.sessions.backend import Opening


class Migrated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of one session; ``code`` says why nothing did."""

    session_id: str
    done: Opening | None = None
    messages: int | None = None
    entries: int | None = None
    code: ErrorCode | None = None
    words: str = ""


def lines_of_accounts(accounts: Sequence[SessionAccount]) -> Iterator[str]:
    """Return a table with one session a line, and what is to be said of it behind that."""
    rows = [("session", "form", "opening", "messages", "entries", "backup", "bytes")]
    rows += [
        (
            one.session_id,
            one.form.value,
            one.outlook.value,
            _number(one.messages),
            _number(one.entries),
            one.backup.value,
            _number(one.bytes),
        )
        for one in accounts
    ]
    notes = ["", *(_note(one.code, one.words) for one in accounts)]
    yield from _table(rows, notes)


def lines_of_proven(accounts: Iterable[SessionAccount]) -> Iterator[str]:
    """Return one line for each session: whether it is whole, and by what that is known."""
    for one in accounts:
        if one.code is not None:
            yield f"{one.session_id}: {_note(one.code, one.words)}"
        else:
            yield f"{one.session_id}: whole, {one.messages} messages; {_proof(one)}"


def lines_of_migrated(copy: str | None, done: Iterable[Migrated]) -> Iterator[str]:
    """Return where the copy is, and one line for each session."""
    if copy is not None:
        yield f"copy: {copy}"
    for one in done:
        if one.done is None:
            yield f"{one.session_id}: {_note(one.code, one.words)}"
        else:
            yield f"{one.session_id}: {_DONE[one.done]}, {one.messages} messages"


_DONE = {
    Opening.CREATED: "made",
    Opening.OPENED: "versioned already",
    Opening.MENDED: "mended",
    Opening.MIGRATED: "migrated",
}


def _proof(one: SessionAccount) -> str:
    if one.form is Form.LEGACY:
        return "legacy, every line can be migrated"
    mending = "" if one.outlook is Outlook.OPEN else ", to be mended when it is opened"
    if one.words:
        return one.words + mending
    if one.backup is BackupState.SOURCE:
        return "it goes on from its backup" + mending
    return "every line continues the one before" + mending


def _note(code: ErrorCode | None, words: str) -> str:
    return words if code is None else f"{code.value}: {words}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _table(rows: Sequence[tuple[str, ...]], notes: Sequence[str]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row, note in zip(rows, notes, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join([*cells, note]).rstrip()
