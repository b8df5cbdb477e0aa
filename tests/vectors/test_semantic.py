"""Digests, command ids and receipts of tool calls against upstream's."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.canonical_json import canonical_bytes
from protocol.digest import sha256_label
from protocol.errors import ErrorCode, PrpError
from protocol.event_payloads import PAYLOADS_V1
from protocol.ids import Identity
from protocol.limits import SAFE_INTEGER_MAX
from protocol.semantic_tools import authorized_tools, read_semantic_input, result_command_id
from tests.vectors.conftest import load


@pytest.fixture(scope="module")
def semantic(prp_vectors: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = load(prp_vectors, "semantic")
    return loaded


def call_of(semantic: dict[str, Any], value: Any, digest: str) -> tuple[Any, Identity]:
    receipt = semantic["inputReceipt"]
    content = receipt["content"] | {"digest": digest}
    correlation = receipt["correlation"]
    identity = msgspec.convert(
        correlation | {"runnerInstanceId": "runner", "environmentLeaseId": "lease"}, Identity
    )
    return {"semantic_tool": receipt | {"input": value, "content": content}}, identity


def test_complete_input_has_the_digest_of_upstream(semantic: dict[str, Any]) -> None:
    for case in semantic["inputs"]:
        payload, identity = call_of(semantic, case["input"], case["fullDigest"])

        call = read_semantic_input(payload, identity)

        assert call.input == case["input"]
        assert call.input_digest == case["fullDigest"]
        assert call.operation_id == "op.x"
        assert call.idempotency_key is None


def test_digest_of_a_redacted_copy_is_refused_when_it_is_another(semantic: dict[str, Any]) -> None:
    others = [case for case in semantic["inputs"] if not case["agree"]]

    assert others
    for case in others:
        assert sha256_label(canonical_bytes(case["redacted"])) == case["npmBuildDigest"]
        payload, identity = call_of(semantic, case["input"], case["npmBuildDigest"])
        with pytest.raises(PrpError) as refusal:
            read_semantic_input(payload, identity)
        assert refusal.value.code is ErrorCode.SEMANTIC_DIGEST_MISMATCH


def test_command_ids_of_calls_equal_upstream(semantic: dict[str, Any]) -> None:
    for case in semantic["commandIds"]:
        assert result_command_id(case["runId"], case["callId"]) == case["commandId"]


def test_receipts_of_upstream_fit_the_tables(semantic: dict[str, Any]) -> None:
    for receipt in (semantic["inputReceipt"], semantic["resultReceipt"]):
        judge = PAYLOADS_V1[f"semantic_tool.{receipt['phase']}"]

        assert judge({"semantic_tool": receipt}) is None
        assert judge({"semantic_tool": receipt | {"phase": "reconciled"}}) is not None


def test_authorized_tool_set_equals_upstream(semantic: dict[str, Any]) -> None:
    tools = semantic["authorizedToolSet"]

    assert authorized_tools(tools["operations"][::-1]) == tools


def test_inputs_include_one_beyond_the_integers_that_the_wire_takes(
    semantic: dict[str, Any],
) -> None:
    # Our strict reader refuses such an input, so its digest is only of interest in a test.
    assert any(
        isinstance(case["input"], dict) and case["input"].get("n") == SAFE_INTEGER_MAX + 1
        for case in semantic["inputs"]
    )
