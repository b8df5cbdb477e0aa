"""Names that follow from content: fingerprints, idempotency keys, the identity of a call.

It decides the one text that stands for a value. It refuses to know what is done with it.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue, canonical_bytes

INPUT_FINGERPRINT_LENGTH: Final = 16
_TELEMETRY: Final = "telemetry"


class CallIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which call of a run is meant; an empty ``step_id`` is a call outside any step."""

    agent: str
    step_id: str
    call_id: str


def call_identity(agent: str, step_id: str | None, call_id: str) -> CallIdentity:
    """Return the identity of a call; a missing step counts as an empty one."""
    return CallIdentity(agent=agent, step_id=step_id or "", call_id=call_id)


def fingerprint(value: JsonValue) -> str:
    """Return the lower-case SHA-256 hex of the canonical JSON of ``value``.

    Raises:
        PrpError: ``message_invalid`` for a number that no double holds, ``message_too_large``
            beyond the depth or node bound of `canonical_bytes`.

    Source: durable-runs 3.
    """
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def config_fingerprint(config: Mapping[str, JsonValue]) -> str:
    """Return the fingerprint of a configuration without its top-level `telemetry`.

    Raises what `fingerprint` raises. Source: durable-runs 3.
    """
    return fingerprint({name: value for name, value in config.items() if name != _TELEMETRY})


def input_fingerprint(text: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a prompt's UTF-8 text.

    A lone surrogate counts as the replacement character, as an encoder of the original
    writes it. Source: durable-runs 3.
    """
    data = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    return hashlib.sha256(data).hexdigest()[:INPUT_FINGERPRINT_LENGTH]


def idempotency_key(run_id: str, step_id: str | None, call_id: str) -> str:
    """Return `runId:stepId:callId`, or `runId:callId` outside a step.

    Two calls may share this text, since ids may hold colons: who stores a key must refuse
    one that another call owns. Source: durable-runs 3, architecture 7.4.
    """
    return ":".join((run_id, step_id, call_id) if step_id else (run_id, call_id))
