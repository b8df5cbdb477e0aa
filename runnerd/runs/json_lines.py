"""One JSON value as one line of a durable file: read strictly, written as it was meant.

It decides which bytes are JSON and which values have a JSON text. It refuses to know what
a line stands for.
"""

import math

import msgspec

from protocol.canonical_json import JsonValue, canonical_bytes, parse_tolerant
from protocol.errors import ErrorCode, PrpError

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class ParsedJson(msgspec.Struct, frozen=True):
    """A JSON value that may be null."""

    json: JsonValue
    may_be_infinite: bool = False
    """A number in it may be one that only this spelling has, e.g. 1e400."""


def parse_json(line: bytes) -> ParsedJson | None:
    """Return what a line says, or None if it is not JSON in valid UTF-8.

    Half a character stays what it is, and the last of repeated members holds. Raises
    PrpError ``message_too_large`` if the line is nested beyond all reason.
    """
    try:
        return ParsedJson(_decode(line))
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return ParsedJson(parse_tolerant(line), may_be_infinite=True)
    except PrpError as error:
        if error.code is ErrorCode.MESSAGE_NOT_JSON:
            return None
        raise PrpError(ErrorCode.MESSAGE_TOO_LARGE, "nested beyond all reason") from None


def spell_json(value: JsonValue) -> bytes:
    """Return a value as JSON text without a line end, members in their order.

    Raises PrpError ``message_invalid`` for what JSON cannot hold, ``message_too_large`` for
    half a character in a value beyond the bounds of `canonical_bytes`.
    """
    try:
        spelled = _encode(value)
    except UnicodeEncodeError:
        # Only the canonical spelling has a form for half a character.
        spelled = canonical_bytes(value)
    except (TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise _invalid(f"not JSON: {type(error).__name__}") from None
    if b"null" in spelled and has_no_json(value):
        raise _invalid("a number that JSON cannot hold")
    return spelled


def comparable_json(value: JsonValue) -> bytes:
    """Return one spelling of a value that was read, whatever its size: equal values have one.

    Raises PrpError ``message_invalid`` for half a character in a value beyond the bounds of
    `canonical_bytes`.
    """
    try:
        return canonical_bytes(value)
    except PrpError:
        # Larger than a canonical value may be; the plain sorted spelling will do.
        pass
    try:
        return _encode_sorted(value)
    except (UnicodeEncodeError, RecursionError):
        raise _invalid("half a character or no end of nesting in a value of this size") from None


def has_no_json(value: JsonValue) -> bool:
    """Tell whether a number in a value would be written as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(has_no_json(item) for item in value.values())
    if isinstance(value, list):
        return any(has_no_json(item) for item in value)
    return False


def _invalid(reason: str) -> PrpError:
    return PrpError(ErrorCode.MESSAGE_INVALID, reason)
