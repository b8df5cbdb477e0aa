"""TypeScript types from a JSON Schema, as far as our structs need it.

Decides how each kind of schema is spelled as a type; anything else is an error, so that nothing
becomes a wider type in silence. Knows no struct.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

Schema = Mapping[str, Any]
_Word: TypeAlias = dict[str, Any] | list[Any] | str | float | bool | None

_PRIMITIVES = {
    "string": "string",
    "boolean": "boolean",
    "integer": "number",
    "number": "number",
    "null": "null",
}
_SILENT = {"title", "description", "default", "minimum", "maximum", "minLength", "pattern"}


def typescript(schema: Schema) -> str:
    """Return the declarations of every object that a schema defines."""
    blocks = [_declaration(name, found) for name, found in sorted(schema["$defs"].items())]
    return "\n".join(["// Generated from run-snapshot.schema.json; see tests/schema.\n", *blocks])


def _declaration(name: str, schema: Schema) -> str:
    comment = _comment(schema.get("description"), "")
    if "enum" in schema or "properties" not in schema:
        return f"{comment}export type {name} = {_type(schema)};\n"
    required = set(schema.get("required", ()))
    members = "".join(
        f"  {_member(member)}{'' if member in required else '?'}: {_type(found)};\n"
        for member, found in schema["properties"].items()
    )
    return f"{comment}export interface {name} {{\n{members}}}\n"


def _type(schema: Schema) -> str:
    known: dict[str, _Word] = {key: schema[key] for key in schema if key not in _SILENT}
    match known:
        case {"$ref": str(reference)}:
            return reference.rpartition("/")[2]
        case {"enum": list(values)}:
            return " | ".join(json.dumps(value) for value in values)
        case {"const": value}:
            return json.dumps(value)
        case {"anyOf": list(choices)}:
            return " | ".join(_type(choice) for choice in choices)
        case {"type": "array", "items": dict(found)}:
            return f"readonly ({_type(found)})[]"
        case {"type": "array"}:
            return "readonly unknown[]"
        case {"type": "object", "additionalProperties": dict(found)}:
            return f"Readonly<Record<string, {_type(found)}>>"
        case {"type": "object"} if set(known) <= {"type", "additionalProperties"}:
            return "Readonly<Record<string, unknown>>"
        case {"type": str(name)} if name in _PRIMITIVES and set(known) == {"type"}:
            return _PRIMITIVES[name]
        case _ if not known:
            return "unknown"
        case _:
            raise ValueError(f"no type for {json.dumps(known)}")


def _member(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


def _comment(text: str | None, indent: str) -> str:
    if not text:
        return ""
    return f"{indent}/** {' '.join(text.split()).replace('*/', '* /')} */\n"
