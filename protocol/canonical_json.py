"""JSON as the protocol reads and hashes it: one strict reader, one canonical spelling.

It decides which text is JSON, which JSON may go on the wire, and the one sequence of bytes
that a digest covers. It refuses to know what a value means.
"""

import functools
import math
import re
from itertools import filterfalse
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import msgspec

from protocol.errors import ErrorCode, PrpError
from protocol.limits import JSON_DEPTH_MAX, JSON_NODES_MAX, SAFE_INTEGER_MAX

if TYPE_CHECKING:
    from json import JSONDecoder

JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode

_is_text: Final = str.__instancecheck__

_SURROGATE: Final = re.compile("([\ud800-\udfff])")
_ASTRAL_LEAD: Final = re.compile(b"[\xf0-\xf4]")
"""First byte of a UTF-8 sequence for a character beyond U+FFFF."""
_SAFE_INTEGER_DIGITS: Final = len(str(-SAFE_INTEGER_MAX))

_PLAIN_MIN: Final = 1e-3
_PLAIN_MAX: Final = 1e15
"""Between these the encoder spells a fraction as ECMAScript does: digits, point, digits."""

_HAS_UNUSUAL_FLOAT: Final = 1
_HAS_LARGE_INTEGER: Final = 2


def parse_strict(data: bytes, *, depth: int = 0, nodes: int = 0) -> JsonValue:
    """Read one JSON text as it may stand on the wire (I-JSON within bounds).

    Args:
        depth: containers around the text in what it will be a part of.
        nodes: values around and beside it there.

    Raises:
        PrpError: ``message_not_json`` if it is not JSON in valid UTF-8 (a byte order mark,
            NaN and Infinity are not JSON); ``message_invalid`` for a repeated member, a
            lone surrogate, an integer beyond 2**53 - 1 or a number beyond a double;
            ``message_too_large`` beyond `JSON_DEPTH_MAX` or `JSON_NODES_MAX`.

    Source: ruling R20.
    """
    return _parse(data, depth, nodes)[0]


def parse_and_spell(data: bytes) -> tuple[JsonValue, bytes]:
    """Read as `parse_strict` does and return the `canonical_bytes` too, for less than both cost."""
    value, flags = _parse(data)
    return value, _spell_as(value, flags)


def _parse(data: bytes, depth: int = 0, nodes: int = 0) -> tuple[JsonValue, int]:
    # A value whose plain spelling is the very input has lost no member and no digit on the
    # way, so what other peers send needs no second look. Any other spelling gets one.
    try:
        value: JsonValue = _decode(data)
        is_plain = _encode(value) == data
    except (msgspec.DecodeError, RecursionError):
        return _parse_unusual(data, depth, nodes)
    if not is_plain:
        return _parse_unusual(data, depth, nodes)
    flags = _survey(value, depth, nodes)
    if flags & _HAS_LARGE_INTEGER:
        raise PrpError(ErrorCode.MESSAGE_INVALID, "an integer beyond 2**53 - 1")
    return value, flags


def parse_tolerant(data: bytes) -> JsonValue:
    """Read one JSON text as the canonicaliser's vectors have it.

    The last of repeated members holds, lone surrogates stay, and integers beyond 2**53 - 1
    become doubles.

    Raises:
        PrpError: ``message_not_json``, or ``message_too_large`` if nested beyond all reason.

    Source: prp-wire 2.1.
    """
    return _read(_tolerant_reader(), data)


def canonicalise(data: bytes) -> bytes:
    """Return the canonical spelling of a JSON text, read as `parse_tolerant` reads it."""
    return canonical_bytes(parse_tolerant(data))


def canonical_bytes(value: JsonValue) -> bytes:
    """Return the one spelling of ``value`` that digests and proofs cover, in UTF-8.

    Raises:
        PrpError: ``message_invalid`` for a number that no double holds;
            ``message_too_large`` beyond `JSON_DEPTH_MAX` or `JSON_NODES_MAX`.

    Source: prp-wire 2.1.
    """
    return _spell_as(value, _survey(value))


def _spell_as(value: JsonValue, flags: int) -> bytes:
    if flags:
        return _spell(value)
    try:
        spelled = _encode_sorted(value)
    except UnicodeEncodeError:
        return _spell(value)
    # The encoder sorts by code point, which differs from UTF-16 only beyond U+FFFF.
    if not spelled.isascii() and _ASTRAL_LEAD.search(spelled) and _has_unusual_key(value):
        return _spell(value)
    return spelled


def _survey(value: JsonValue, depth: int = 0, nodes: int = 0) -> int:
    """Check depth and nodes; return flags of the number kinds that need a closer look."""
    flags = 0
    level: list[JsonValue] = [value]
    while level:
        nodes += len(level)
        if depth > JSON_DEPTH_MAX or nodes > JSON_NODES_MAX:
            raise PrpError(ErrorCode.MESSAGE_TOO_LARGE, "JSON beyond the depth or node limit")
        below: list[JsonValue] = []
        # Most values are text, which has nothing to be looked at.
        for item in filterfalse(_is_text, level):
            if type(item) is int:
                if not -SAFE_INTEGER_MAX <= item <= SAFE_INTEGER_MAX:
                    flags |= _HAS_LARGE_INTEGER
            elif isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif isinstance(item, float) and (
                item.is_integer() or not _PLAIN_MIN <= abs(item) < _PLAIN_MAX
            ):
                flags |= _HAS_UNUSUAL_FLOAT
        level = below
        depth += 1
    return flags


def _has_unusual_key(value: JsonValue) -> bool:
    level: list[JsonValue] = [value]
    while level:
        below: list[JsonValue] = []
        for item in level:
            if isinstance(item, dict):
                if not "".join(item).isascii():
                    return True
                below += item.values()
            elif isinstance(item, list):
                below += item
        level = below
    return False


# --- The canonical spelling, piece by piece ---------------------------------------------------


def _spell(value: JsonValue) -> bytes:
    if isinstance(value, str):
        return _spell_text(value)
    if isinstance(value, dict):
        members = [
            _spell_text(name) + b":" + _spell(value[name]) for name in sorted(value, key=_utf16)
        ]
        return b"{" + b",".join(members) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join([_spell(item) for item in value]) + b"]"
    if isinstance(value, float) or (
        type(value) is int and not -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX
    ):
        return _spell_double(_double(value))
    return _encode(value)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _spell_text(text: str) -> bytes:
    try:
        return _encode(text)
    except UnicodeEncodeError:
        pass
    # Through UTF-16, two halves that stand side by side become the character they spell.
    joined = _utf16(text).decode("utf-16-be", "surrogatepass")
    pieces = [
        b"\\u%04x" % ord(piece) if _SURROGATE.fullmatch(piece) else _encode(piece)[1:-1]
        for piece in _SURROGATE.split(joined)
    ]
    return b'"' + b"".join(pieces) + b'"'


def _double(value: int | float) -> float:
    try:
        double = float(value)
    except OverflowError:
        double = math.inf
    if not math.isfinite(double):
        raise PrpError(ErrorCode.MESSAGE_INVALID, "a number that no double holds")
    return double


def _spell_double(value: float) -> bytes:
    """Write a finite double as ECMAScript's Number::toString does (ECMA-262 6.1.6.1.20)."""
    if value == 0:
        return b"0"
    sign = b"-" if value < 0 else b""
    # repr has the same shortest digits; only the place of the point differs.
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    padded = whole + fraction
    significant = padded.lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(padded) - len(significant))
    digits = significant.rstrip("0")
    if len(digits) <= point <= 21:
        spelled = digits + "0" * (point - len(digits))
    elif 0 < point <= 21:
        spelled = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        spelled = f"0.{'0' * -point}{digits}"
    else:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        spelled = f"{digits[0]}{tail}e{point - 1:+d}"
    return sign + spelled.encode()


# --- Readers for every other spelling of JSON -------------------------------------------------


def _parse_unusual(data: bytes, depth: int, nodes: int) -> tuple[JsonValue, int]:
    value = _read(_strict_reader(), data)
    flags = _survey(value, depth, nodes)
    try:
        _encode(value)
    except UnicodeEncodeError:
        raise PrpError(ErrorCode.MESSAGE_INVALID, "a lone surrogate") from None
    return value, flags


def _read(reader: "JSONDecoder", data: bytes) -> JsonValue:
    try:
        value: JsonValue = reader.decode(data.decode())
    except RecursionError:
        raise PrpError(ErrorCode.MESSAGE_TOO_LARGE, "JSON beyond the depth limit") from None
    except ValueError as error:
        # The error's own text quotes the input, which may hold a secret.
        where = getattr(error, "pos", getattr(error, "start", 0))
        raise PrpError(ErrorCode.MESSAGE_NOT_JSON, f"near character {where}") from None
    return value


# The standard reader is imported when the first unusual spelling arrives: a start-up meets none.
@functools.cache
def _strict_reader() -> "JSONDecoder":
    from json import JSONDecoder

    return JSONDecoder(
        object_pairs_hook=_object_without_repeats,
        parse_int=_safe_integer,
        parse_float=_finite,
        parse_constant=_refuse_constant,
    )


@functools.cache
def _tolerant_reader() -> "JSONDecoder":
    from json import JSONDecoder

    return JSONDecoder(parse_int=_integer_or_double, parse_constant=_refuse_constant)


def _object_without_repeats(members: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    value = dict(members)
    if len(value) != len(members):
        raise PrpError(ErrorCode.MESSAGE_INVALID, "a repeated member")
    return value


def _safe_integer(digits: str) -> int:
    # The length is judged first: int() of thousands of digits is slow, then refused.
    if len(digits) <= _SAFE_INTEGER_DIGITS:
        value = int(digits)
        if -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX:
            return value
    raise PrpError(ErrorCode.MESSAGE_INVALID, "an integer beyond 2**53 - 1")


def _integer_or_double(digits: str) -> int | float:
    if len(digits) <= _SAFE_INTEGER_DIGITS:
        value = int(digits)
        if -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX:
            return value
    return float(digits)


def _finite(digits: str) -> float:
    return _double(float(digits))


def _refuse_constant(name: str) -> NoReturn:
    raise PrpError(ErrorCode.MESSAGE_NOT_JSON, f"{name} is not JSON")
