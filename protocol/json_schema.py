"""JSON Schemas of tools: whether one is well formed, and where a value departs from it.

It decides which dialect holds and how a misfit is named. It refuses to fetch anything, and to
repeat what a value holds: a misfit names its place and the rule, never the content.

Loading this takes a while, so it is imported with the first tools of a run.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, cast

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


def schema_misfit(schema: JsonValue) -> str | None:
    """Return why a value is no JSON Schema, None if it is one.

    The dialect is the one that `$schema` names, draft 2020-12 without it.
    """
    if not isinstance(schema, dict):
        return "not an object"
    checker = _dialect(schema)
    if checker is None:
        return "/$schema names a dialect that is not known"
    try:
        checker.check_schema(schema)
    except SchemaError as error:
        return _words(error)
    except RecursionError:
        return "nested too deep"
    return None


def misfit(schema: bytes, value: JsonValue) -> str | None:
    """Return where a value departs from a schema, None if it fits.

    Args:
        schema: its JSON; one that `schema_misfit` has nothing against.
    """
    try:
        for error in _compiled(schema).iter_errors(value):
            return _words(error)
    except Unresolvable:
        return "the schema refers to something that it does not hold"
    except RecursionError:
        return "nested too deep"
    except PrpError:
        return "holds what JSON cannot spell"
    return None


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(schema: bytes) -> Validator:
    read = msgspec.json.decode(schema)
    dialect = _dialect(read) or jsonschema.Draft202012Validator
    return _extend(dialect, {"uniqueItems": _unique_items})(read, registry=_NOTHING_ELSE)


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
