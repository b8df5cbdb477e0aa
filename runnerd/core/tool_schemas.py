"""The schemas of the tools that a run may call.

It decides which schema an input and a result must fit. It refuses to know what either means.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from protocol.canonical_json import JsonValue
from runnerd.core.conversation import ToolSet

_RUNS_KEPT: Final = 2


class _Schemas(msgspec.Struct, frozen=True, rename="camel"):
    operation_id: str
    input_schema: msgspec.Raw
    response_schema: msgspec.Raw


def input_misfit(tools: ToolSet, operation_id: str, value: JsonValue) -> str | None:
    """Return where an input departs from its tool's schema, None if it fits."""
    # Only a run with tools waits for what judges them.
    from protocol.json_schema import misfit

    return misfit(bytes(_schemas(bytes(tools.operations))[operation_id].input_schema), value)


def response_misfit(tools: ToolSet | None, operation_id: str, value: JsonValue) -> str | None:
    """Return where a result departs from its tool's schema, None if it fits."""
    from protocol.json_schema import misfit

    if tools is None:
        return None
    schemas = _schemas(bytes(tools.operations)).get(operation_id)
    return None if schemas is None else misfit(bytes(schemas.response_schema), value)


@lru_cache(maxsize=_RUNS_KEPT)
def _schemas(operations: bytes) -> Mapping[str, _Schemas]:
    read = msgspec.json.decode(operations, type=list[_Schemas])
    return MappingProxyType({one.operation_id: one for one in read})
