"""What a harness can say, as values.

It decides which messages exist. It refuses to know their spelling: a driver reads them.
"""

import msgspec

from protocol.canonical_json import JsonValue
from protocol.errors import ErrorCode


class Ready(msgspec.Struct, frozen=True):
    """The program takes commands; the first message of every generation."""

    driver_version: str | None = None


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened in its work; ``item_id`` names one of its items."""

    event_type: str
    payload: dict[str, JsonValue]
    item_id: str = ""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question for a person or the controller; the program waits for the answer."""

    request_id: str
    kind: str
    question: dict[str, JsonValue]
    """The exact question: everything that its digest covers."""
    expires_in_ms: int | None = None


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a controller's tool. ``fault`` says why there is no input that could be used."""

    call_id: str
    operation_id: str
    idempotency_key: str | None = None
    input: JsonValue = None
    fault: ErrorCode | None = None


class Proposed(msgspec.Struct, frozen=True):
    """The result of the run, as the program sees it."""

    result: dict[str, JsonValue]


class Concluded(msgspec.Struct, frozen=True):
    """The program's work has ended, it says, and how."""

    proposal: dict[str, JsonValue]


class Logged(msgspec.Struct, frozen=True):
    """A line for the bounded log, which a driver keeps."""

    text: str


class Diagnosed(msgspec.Struct, frozen=True):
    """A diagnostic of the program."""

    code: str
    text: str


class Misspoken(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the right form with a payload that says nothing.

    ``request_id`` and ``call_id`` are what the program waits for, if it says so much.
    """

    type: str
    reason: str
    request_id: str | None = None
    call_id: str | None = None


HarnessMessage = (
    Ready | Reported | Asked | Called | Proposed | Concluded | Logged | Diagnosed | Misspoken
)
