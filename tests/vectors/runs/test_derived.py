"""Groups `canonical` and `terminal`: texts and verdicts that follow from values alone."""

from typing import Any

from protocol.canonical_json import canonical_bytes
from runnerd.runs.fingerprints import (
    config_fingerprint,
    fingerprint,
    idempotency_key,
    input_fingerprint,
)
from runnerd.runs.outcome import has_denial, outcome_of
from runnerd.runs.records import struct_members
from tests.vectors.runs.verdicts import Json, passes


def test_derived_texts_are_those_of_the_case(canonical_row: dict[str, Any]) -> None:
    given = canonical_row["input"]
    observed: dict[str, Json] = {}
    if "value" in given:
        observed["canonical"] = canonical_bytes(given["value"]).decode()
        observed["sha256"] = fingerprint(given["value"])
    if "config" in given:
        observed["configFingerprint"] = config_fingerprint(given["config"])
    if "keys" in given:
        observed["idempotencyKeys"] = [
            idempotency_key(key["runId"], key.get("stepId"), key["callId"]) for key in given["keys"]
        ]
    if "texts" in given:
        observed["inputFingerprints"] = [input_fingerprint(text) for text in given["texts"]]

    passes(canonical_row, observed)


def test_outcome_is_that_of_the_case(terminal_row: dict[str, Any]) -> None:
    given = terminal_row["input"]

    outcome = struct_members(
        outcome_of(given.get("errorCode"), was_denied=has_denial(given["events"]))
    )

    error = outcome.get("error")
    if isinstance(error, dict):
        outcome["errorCode"] = error["code"]
    passes(terminal_row, outcome)
