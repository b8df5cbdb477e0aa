"""A run's log as an observer reads it: from bytes alone, in the order in which they lie.

It decides which lines are whole, consecutive and linked, and what they say about effects. It
shares no reader with the product, and refuses to sort and to mend anything.
"""

import hashlib
import json
import struct
from dataclasses import dataclass, field
from typing import Any, Final

DOMAIN: Final = b"runnerd.run-record.v1"
_LINK_LENGTH: Final = len(b',"chain":"sha256:') + 64 + len(b'"}')
FINAL: Final = ("committed", "unknown", "not_started")


@dataclass
class Effect:
    """What the log says about one call, by its key."""

    key: str
    tool: str = ""
    call_id: str = ""
    statuses: list[str] = field(default_factory=list[str])
    decided: str | None = None
    is_retried: bool = False
    """A later attempt has begun and taken its place."""

    @property
    def status(self) -> str | None:
        """The newest receipt."""
        return self.statuses[-1] if self.statuses else None

    @property
    def is_in_doubt(self) -> bool:
        """True if nobody knows what it did, and nobody has decided."""
        is_open = self.status in ("started", "unknown")
        return is_open and self.decided is None and not self.is_retried

    @property
    def needs_person(self) -> bool:
        """True if nothing but a look at the world says what it did; no receipt says nothing."""
        return self.is_in_doubt or (self.status is None and self.decided is None)


@dataclass
class Log:
    """What lies in a log's file."""

    lines: list[bytes] = field(default_factory=list[bytes])
    """Whole lines with their ends."""
    records: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    is_torn: bool = False
    damage: str = ""
    """Why the whole lines are no log; empty if they are."""

    @property
    def whole_bytes(self) -> int:
        """Length of the whole lines."""
        return sum(len(line) for line in self.lines)


def read(data: bytes) -> Log:
    """Return what the bytes say; reading stops at the first damage."""
    log, chain = Log(), b""
    *lines, tail = data.split(b"\n")
    log.is_torn = bool(tail)
    for number, line in enumerate(lines, start=1):
        body = line[:-_LINK_LENGTH]
        chain = hashlib.sha256(_framed(chain, body)).digest()
        try:
            record: dict[str, Any] = json.loads(line)
            is_next = record["sequence"] == number
            is_linked = record["chain"] == "sha256:" + chain.hex()
        except (ValueError, KeyError, TypeError):
            log.damage = f"line {number} is no record"
            return log
        if not (is_next and is_linked):
            log.damage = f"line {number} is not the next"
            return log
        log.lines.append(line + b"\n")
        log.records.append(record)
    return log


def _framed(*parts: bytes) -> bytes:
    return DOMAIN + b"\0" + b"".join(struct.pack(">Q", len(part)) + part for part in parts)


def effects_of(log: Log) -> dict[str, Effect]:
    """Return every call and every receipt, by the key."""
    effects: dict[str, Effect] = {}
    attempts: dict[str, str] = {}
    for record in log.records:
        payload: Any = record.get("payload")
        if record["kind"] == "control" and payload.get("type") == "effect_reconciled":
            effects.setdefault(payload["effectId"], Effect(payload["effectId"])).decided = payload[
                "outcome"
            ]
        if record["kind"] != "event":
            continue
        event = payload["event"]
        if event["type"] in ("tool_call", "effect_receipt"):
            key = event["idempotencyKey"]
            effect = effects.setdefault(key, Effect(key))
            effect.tool, effect.call_id = event["tool"], event["callId"]
            if event["type"] == "effect_receipt":
                effect.statuses.append(event["status"])
            previous = attempts.get(effect.call_id)
            if previous in effects and effect.status == "started":
                effects[previous].is_retried = True
        elif event["type"] == "tool_attempt":
            attempts[event["callId"]] = event["previousReceiptId"]
    return effects
