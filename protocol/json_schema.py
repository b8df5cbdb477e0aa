"""JSON Schemas of tools: whether one is well formed, and where a value departs from it.

It decides which dialect holds and how a misfit is named. It refuses to fetch anything, and to
repeat what a value holds: a misfit names its place and the rule, never the content.

What a schema makes the judge do is bounded, and whatever it makes it stumble over is an answer.
Loading this takes a while, so it is imported with the first tools of a run.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import jsonschema
import msgspec
from jsonschema import validators
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from protocol.canonical_json import JsonValue, canonical_bytes
from protocol.errors import PrpError

POINTER_LENGTH_MAX: Final = 240
_COMPILED_MAX: Final = 512
_NESTED_MAX: Final = 140
"""Applications of a schema within another: few enough for the stack."""
_APPLIED_MAX: Final = 100_000
"""Applications for one value, ten for each node that a message may have: a few seconds."""
_PATTERN_TEXT_MAX: Final = 4_096
"""Longest text that is searched for a pattern with repeats, which may cost its length squared."""
_REPEATS: Final = frozenset("*+{")
_NAME_PATTERNS: Final = b'"patternProperties"'
_PANIC: Final = "PanicException"
"""How a library of the judge, which is not written in Python, calls an overflow of the stack."""
_APPLICATORS: Final = frozenset(
    {"$dynamicRef", "$recursiveRef", "$ref", "additionalItems", "additionalProperties", "allOf"}
    | {"anyOf", "contains", "dependencies", "dependentSchemas", "if", "items", "not", "oneOf"}
    | {"patternProperties", "prefixItems", "properties", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords of all dialects that apply schemas; the cost of any other ends with its value."""
_DRAFTS: Final[Mapping[str, type[Validator]]] = MappingProxyType(
    {
        "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
        "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
        "http://json-schema.org/draft-07/schema": jsonschema.Draft7Validator,
        "http://json-schema.org/draft-06/schema": jsonschema.Draft6Validator,
        "http://json-schema.org/draft-04/schema": jsonschema.Draft4Validator,
    }
)
_extend: Final = cast(
    Callable[[type[Validator], Mapping[str, object]], type[Validator]],
    validators.extend,  # pyright: ignore[reportUnknownMemberType]  # its stub has no types
)
_NOTHING_ELSE: Final[Registry[Any]] = Registry()
"""A schema refers to itself or to nothing: without this a foreign `$ref` would be fetched."""


class _TooMuch(Exception):
    """Raised by a meter: the schema goes on for ever, or for longer than anybody waits."""


class _Meter:
    """How deep and how often a schema was applied to one value."""

    def __init__(self) -> None:
        self.nested = 0
        self.applied = 0

    def enter(self) -> None:
        self.nested += 1
        self.applied += 1
        if self.nested > _NESTED_MAX:
            raise _TooMuch("nested too deep")
        if self.applied > _APPLIED_MAX:
            raise _TooMuch("the schema costs too much")


Keyword: TypeAlias = Callable[[Validator, Any, JsonValue, Any], Iterator[ValidationError] | None]


def schema_misfit(schema: JsonValue) -> str | None:
    """Return why a value is no JSON Schema, None if it is one.

    The dialect is the one that `$schema` names, draft 2020-12 without it.
    """
    if not isinstance(schema, dict):
        return "not an object"
    if not schema:
        return None
    checker = _dialect(schema)
    if checker is None:
        return "/$schema names a dialect that is not known"
    return _judged(lambda: _checked(checker, schema))


def misfit(schema: bytes, value: JsonValue) -> str | None:
    """Return where a value departs from a schema, None if it fits.

    Args:
        schema: its JSON; one that `schema_misfit` has nothing against. No value fits one that
            cannot be applied all the same: what a reference leads to is not checked before.
    """
    return _judged(lambda: _first_misfit(schema, value))


def _judged(judge: Callable[[], str | None]) -> str | None:
    """Return what a judge says, or why it cannot say anything; a schema raises nothing else."""
    try:
        return judge()
    except _TooMuch as fault:
        return str(fault)
    except RecursionError:
        return "nested too deep"
    except Unresolvable:
        return "the schema refers to something that it does not hold"
    except PrpError:
        return "holds what JSON cannot spell"
    except Exception:  # noqa: BLE001 - the judge trusts schemas, and we have them from others
        return "the schema cannot be applied"
    except BaseException as fault:
        if type(fault).__name__ != _PANIC:
            raise
        return "nested too deep"


def _checked(checker: type[Validator], schema: dict[str, JsonValue]) -> str | None:
    try:
        checker.check_schema(schema)
    except SchemaError as error:
        return _words(error)
    return None


def _first_misfit(schema: bytes, value: JsonValue) -> str | None:
    validator, meter = _compiled(schema)
    meter.nested = meter.applied = 0
    if _NAME_PATTERNS in schema and _has_long_name(value):
        raise _TooMuch("a name is too long for a pattern")
    for error in validator.iter_errors(value):
        return _words(error)
    return None


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(schema: bytes) -> tuple[Validator, _Meter]:
    read = msgspec.json.decode(schema)
    dialect, meter = _dialect(read) or jsonschema.Draft202012Validator, _Meter()
    keywords: dict[str, object] = {
        name: _metered(apply, meter)
        for name, apply in dialect.VALIDATORS.items()
        if name in _APPLICATORS
    }
    keywords["pattern"] = _bounded(dialect.VALIDATORS["pattern"])
    extended = _extend(dialect, {**keywords, "uniqueItems": _unique_items})
    return extended(read, registry=_NOTHING_ELSE), meter


def _metered(apply: Keyword, meter: _Meter) -> Keyword:
    def metered(
        validator: Validator, asked: object, value: JsonValue, schema: object
    ) -> Iterator[ValidationError]:
        meter.enter()
        yield from apply(validator, asked, value, schema) or ()
        meter.nested -= 1

    return metered


def _bounded(search: Keyword) -> Keyword:
    def bounded(
        validator: Validator, pattern: str, value: JsonValue, schema: object
    ) -> Iterator[ValidationError] | None:
        is_long = isinstance(value, str) and len(value) > _PATTERN_TEXT_MAX
        if is_long and not _REPEATS.isdisjoint(pattern):
            raise _TooMuch("a text is too long for a pattern")
        return search(validator, pattern, value, schema)

    return bounded


def _has_long_name(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(
            len(name) > _PATTERN_TEXT_MAX or _has_long_name(held) for name, held in value.items()
        )
    return isinstance(value, list) and any(_has_long_name(held) for held in value)


def _dialect(schema: Mapping[str, JsonValue]) -> type[Validator] | None:
    named = schema.get("$schema")
    if named is None:
        return jsonschema.Draft202012Validator
    return _DRAFTS.get(named.removesuffix("#")) if isinstance(named, str) else None


def _unique_items(
    validator: Validator, is_unique: object, value: JsonValue, schema: object
) -> Iterator[ValidationError]:
    """Compare in one pass: a hostile list must not cost the square of its length."""
    if is_unique is not True or not isinstance(value, list):
        return
    if len({canonical_bytes(item) for item in value}) != len(value):
        yield ValidationError("items are equal")


def _words(error: ValidationError | SchemaError) -> str:
    pointer = "".join(f"/{_escaped(part)}" for part in error.absolute_path)
    rule = str(error.validator or "schema")
    return f"{pointer[:POINTER_LENGTH_MAX] or '/'}: {rule[:POINTER_LENGTH_MAX]}"


def _escaped(part: object) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
