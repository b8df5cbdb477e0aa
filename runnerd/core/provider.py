"""What `run.prepare` names: the program that does the work, and the tools it may call.

It decides whether they are well formed and within bounds. It refuses to look for the program
and to know the tools.
"""

import msgspec

from protocol.canonical_json import JsonValue, parse_strict
from protocol.errors import ErrorCode
from protocol.ids import is_stable_id
from protocol.limits import (
    HARNESS_READY_MS_CEILING,
    HARNESS_RESTARTS_MAX,
    PROVIDER_ARGUMENT_BYTES_MAX,
    PROVIDER_ARGUMENTS_MAX,
    PROVIDER_ENV_NAMES_MAX,
    TOOL_DESCRIPTION_BYTES_MAX,
    TOOL_SCHEMA_BYTES_MAX,
    TOOLS_MAX,
    TURN_ID_LENGTH_MAX,
)
from runnerd.core.admission import Refused
from runnerd.core.conversation import ToolSet
from runnerd.core.state import Provider

_KINDS = ("command", "jsonl")


def read_provider(payload: msgspec.Raw) -> Provider | Refused:
    """Read and bound the program that `run.prepare` names.

    Returns:
        The provider. Or ``provider_invalid`` with what is wrong, or
        ``provider_unsupported`` for another kind than ``command`` and ``jsonl``.
    """
    value = parse_strict(bytes(payload))
    provider = value.get("provider") if isinstance(value, dict) else None
    if not isinstance(provider, dict):
        return _invalid("payload.provider must be an object")
    if provider.get("kind") not in _KINDS:
        return Refused(
            ErrorCode.PROVIDER_UNSUPPORTED, "payload.provider.kind must be 'command' or 'jsonl'"
        )
    try:
        read = msgspec.convert(provider, Provider)
    except msgspec.ValidationError:
        return _invalid(
            "provider needs argv (texts), cwd (text) and may have envNames (texts), "
            "readyTimeoutMs and harnessRestartsMax (whole numbers)"
        )
    if "script" in provider:
        script = provider["script"]
        if not isinstance(script, str) or read.kind != "jsonl":
            return _invalid("provider.script must be a text, of a program that speaks messages")
        read = msgspec.structs.replace(read, argv=(*read.argv, "--script", script))
    return _misfit(read) or read


def _misfit(read: Provider) -> Refused | None:
    texts = (*read.argv, read.cwd, *read.env_names)
    if not read.argv or not read.argv[0]:
        return _invalid("provider.argv names no program")
    if not read.cwd.startswith("/"):
        return _invalid("provider.cwd must be an absolute path")
    if len(read.argv) > PROVIDER_ARGUMENTS_MAX or len(read.env_names) > PROVIDER_ENV_NAMES_MAX:
        return _invalid("provider has too many arguments or envNames")
    if any("\0" in text or len(text.encode()) > PROVIDER_ARGUMENT_BYTES_MAX for text in texts):
        return _invalid("a text of provider is too long or holds NUL")
    if any(not name or "=" in name for name in read.env_names):
        return _invalid("provider.envNames holds no variable names")
    if not 1 <= read.ready_timeout_ms <= HARNESS_READY_MS_CEILING:
        return _invalid("provider.readyTimeoutMs lies outside its range")
    if not 0 <= read.harness_restarts_max <= HARNESS_RESTARTS_MAX:
        return _invalid("provider.harnessRestartsMax lies outside its range")
    return None


def read_tools(payload: msgspec.Raw, present: ToolSet | None) -> ToolSet | Refused | None:
    """Read the tools that the run may call; a run keeps the set that it was given first.

    Returns:
        The set, ``present`` if none is named, None if there is none. Or ``tools_invalid``
        with what is wrong, or ``tools_changed``.

    Source: prp-wire 9.3, runner-behaviour 15.
    """
    value = parse_strict(bytes(payload))
    named = value.get("authorizedTools") if isinstance(value, dict) else None
    if named is None:
        return present
    # A start-up has no tools to read and does not wait for this.
    from protocol.semantic_tools import AUTHORIZED_TOOLS_SCHEMA, catalog_digest

    if not isinstance(named, dict) or named.get("schema") != AUTHORIZED_TOOLS_SCHEMA:
        return _no_tools("authorizedTools is not an object of its schema")
    operations = named.get("operations")
    if named.get("schemaVersion") != 1 or not isinstance(operations, list):
        return _no_tools("authorizedTools needs schemaVersion 1 and operations")
    if len(operations) > TOOLS_MAX:
        return _no_tools("there are too many operations")
    ids: list[str] = []
    for operation in operations:
        if not isinstance(operation, dict):
            return _no_tools("an operation is no object")
        if (words := _tool_misfit(operation)) is not None:
            return _no_tools(words)
        ids.append(str(operation["operationId"]))
    if ids != sorted(set(ids)):
        return _no_tools("operations are not sorted, or one is there twice")
    digest = catalog_digest(operations)
    if named.get("catalogDigest") != digest:
        return _no_tools("catalogDigest is not that of the operations")
    if present is not None and present.catalog_digest != digest:
        return Refused(ErrorCode.TOOLS_CHANGED, "a run keeps the tools that it was given first")
    return ToolSet(
        catalog_digest=digest,
        operation_ids=tuple(ids),
        operations=msgspec.Raw(msgspec.json.encode(operations)),
    )


def _tool_misfit(operation: dict[str, JsonValue]) -> str | None:
    from protocol.json_schema import schema_misfit

    operation_id, description = operation.get("operationId"), operation.get("description")
    if not isinstance(operation_id, str) or not is_stable_id(operation_id, TURN_ID_LENGTH_MAX):
        return "an operationId is not a stable id"
    if operation.get("version") != 1:
        return "an operation has another version than 1"
    if not isinstance(description, str) or len(description.encode()) > TOOL_DESCRIPTION_BYTES_MAX:
        return "an operation has no description, or one that is too long"
    if not all(isinstance(operation.get(name), dict) for name in ("inputSchema", "responseSchema")):
        return "an operation needs inputSchema and responseSchema"
    for name in ("inputSchema", "responseSchema"):
        if len(msgspec.json.encode(operation[name])) > TOOL_SCHEMA_BYTES_MAX:
            return f"{name} of {operation_id} is too large"
        if (words := schema_misfit(operation[name])) is not None:
            return f"{name} of {operation_id} is no JSON Schema: {words}"
    return None


def _invalid(words: str) -> Refused:
    return Refused(ErrorCode.PROVIDER_INVALID, words)


def _no_tools(words: str) -> Refused:
    return Refused(ErrorCode.TOOLS_INVALID, words)
