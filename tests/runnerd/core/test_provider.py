"""What `run.prepare` names: programs and tool sets within bounds."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.canonical_json import JsonValue
from protocol.limits import HARNESS_READY_MS_CEILING, HARNESS_RESTARTS_MAX, TOOLS_MAX
from protocol.semantic_tools import authorized_tools, catalog_digest
from runnerd.core.admission import Refused
from runnerd.core.conversation import ToolSet
from runnerd.core.provider import read_provider, read_tools
from runnerd.core.state import Provider
from tests.runnerd.core.talk import SPEAKING, TOOLS, Talk, said
from tests.runnerd.core.world import PREPARE

PLAIN: dict[str, JsonValue] = {"kind": "jsonl", "argv": ["agent"], "cwd": "/"}


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def provider(**changes: JsonValue) -> Provider | Refused:
    return read_provider(raw({"provider": {**PLAIN, **changes}}))


def test_a_program_that_speaks_messages_has_its_own_bounds() -> None:
    read = provider(readyTimeoutMs=7, harnessRestartsMax=3, envNames=["LANG"])

    assert read == Provider(
        kind="jsonl",
        argv=("agent",),
        cwd="/",
        env_names=("LANG",),
        ready_timeout_ms=7,
        harness_restarts_max=3,
    )


def test_a_script_is_named_to_the_program() -> None:
    read = provider(script="/tmp/script.json")

    assert isinstance(read, Provider)
    assert read.argv == ("agent", "--script", "/tmp/script.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"readyTimeoutMs": 0},
        {"readyTimeoutMs": HARNESS_READY_MS_CEILING + 1},
        {"readyTimeoutMs": "2"},
        {"readyTimeoutMs": 1.5},
        {"harnessRestartsMax": -1},
        {"harnessRestartsMax": HARNESS_RESTARTS_MAX + 1},
        {"script": 5},
        {"script": "a\0b"},
        {"kind": "command", "script": "/tmp/script.json"},
        {"argv": []},
        {"argv": [""]},
        {"cwd": "relative"},
    ],
)
def test_a_program_beyond_its_bounds_is_refused(changes: dict[str, JsonValue]) -> None:
    read = provider(**changes)

    assert isinstance(read, Refused)
    assert read.code.value == "provider_invalid"


@pytest.mark.parametrize("kind", [None, 5, "fake", "codex", "JSONL"])
def test_another_kind_is_unsupported(kind: JsonValue) -> None:
    read = provider(kind=kind)

    assert isinstance(read, Refused)
    assert read.code.value == "provider_unsupported"


def test_a_set_of_tools_is_kept_as_it_came() -> None:
    tools = read_tools(raw({"authorizedTools": TOOLS}), None)

    assert isinstance(tools, ToolSet)
    assert tools.operation_ids == ("create_task", "paperclip_finish")
    assert tools.catalog_digest == TOOLS["catalogDigest"]
    assert msgspec.json.decode(tools.operations) == TOOLS["operations"]


def operation(name: str = "a", **changes: JsonValue) -> dict[str, JsonValue]:
    plain: dict[str, JsonValue] = {
        "operationId": name,
        "version": 1,
        "description": "",
        "inputSchema": {},
        "responseSchema": {},
    }
    return plain | changes


def listed(*operations: Any) -> dict[str, JsonValue]:
    return {
        "schema": "paperclip.runner.authorized-tools.v1",
        "schemaVersion": 1,
        "catalogDigest": catalog_digest([*operations]),
        "operations": [*operations],
    }


MALFORMED: dict[str, JsonValue] = {
    "no object": 5,
    "another schema": {**TOOLS, "schema": "other"},
    "another version": {**TOOLS, "schemaVersion": 2},
    "a schema that is none": listed(operation(inputSchema={"type": "objekt"})),
    "a response schema that is none": listed(operation(responseSchema={"items": 3})),
    "a schema of another dialect": listed(operation(inputSchema={"$schema": "urn:x"})),
    "no operations": {**TOOLS, "operations": {}},
    "another digest": {**TOOLS, "catalogDigest": "sha256:" + "0" * 64},
    "not sorted": listed(operation("b"), operation("a")),
    "twice": listed(operation("a"), operation("a")),
    "no operation": listed(None),
    "an id that is none": listed(operation("a b")),
    "a number for an id": listed(operation(operationId=5)),
    "another version of a tool": listed(operation(version=2)),
    "no description": listed(operation(description=None)),
    "a long description": listed(operation(description="x" * 16_385)),
    "no schema of the input": listed(operation(inputSchema=None)),
    "no schema of the response": listed(operation(responseSchema=True)),
    "too many": listed(*(operation(f"a{n:03}") for n in range(TOOLS_MAX + 1))),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_set_of_tools_is_refused(name: str) -> None:
    read = read_tools(raw({"authorizedTools": MALFORMED[name]}), None)

    assert isinstance(read, Refused)
    assert read.code.value == "tools_invalid"


def test_a_run_keeps_its_first_set_of_tools() -> None:
    world = Talk()
    world.connect()
    world.deliver("run.prepare", SPEAKING)
    other = authorized_tools([operation("another")])

    status, members = said(world.deliver("run.prepare", {**SPEAKING, "authorizedTools": other}))

    assert (status, members["code"]) == ("rejected", "tools_changed")
    assert said(world.deliver("run.prepare", SPEAKING))[0] == "completed"
    assert said(world.deliver("run.prepare", PREPARE))[0] == "completed"
    assert world.durable.tools is not None
    assert world.durable.tools.catalog_digest == TOOLS["catalogDigest"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["kind", "argv", "cwd", "envNames", "readyTimeoutMs", "script"]), _JSON
    ),
    st.dictionaries(
        st.sampled_from(["schema", "schemaVersion", "catalogDigest", "operations"]), _JSON
    ),
)
def test_hostile_members_give_a_refusal_and_nothing_else(
    named: dict[str, JsonValue], tools: dict[str, JsonValue]
) -> None:
    payload = raw({"provider": {**PLAIN, **named}, "authorizedTools": {**TOOLS, **tools}})

    assert isinstance(read_provider(payload), Provider | Refused)
    assert isinstance(read_tools(payload, None), ToolSet | Refused)
