"""Texts that stand for values, and the identity behind a key that two calls share."""

from protocol.canonical_json import JsonValue
from runnerd.runs.fingerprints import (
    call_identity,
    config_fingerprint,
    fingerprint,
    idempotency_key,
    input_fingerprint,
)


def test_fingerprint_does_not_depend_on_the_order_of_members() -> None:
    assert fingerprint({"a": 1, "b": [2, {"c": 3, "d": 4}]}) == fingerprint(
        {"b": [2, {"d": 4, "c": 3}], "a": 1}
    )
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})


def test_only_the_telemetry_at_the_top_is_left_out_of_a_configuration() -> None:
    plain: dict[str, JsonValue] = {"name": "x", "agents": {"telemetry": 1}}

    assert config_fingerprint({**plain, "telemetry": {"mode": "full"}}) == fingerprint(plain)
    assert config_fingerprint({"name": "x", "agents": {}}) != fingerprint(plain)


def test_half_a_character_in_a_prompt_has_a_fingerprint() -> None:
    assert input_fingerprint("a\ud800b") == input_fingerprint("a\ufffdb")
    assert input_fingerprint("\ud83d\ude00") == input_fingerprint("😀")


def test_two_calls_may_share_a_key_and_never_an_identity() -> None:
    one = ("main", "loop:0", "c")
    other = ("main", "loop", "0:c")

    assert idempotency_key("r", one[1], one[2]) == idempotency_key("r", other[1], other[2])
    assert call_identity(*one) != call_identity(*other)


def test_missing_and_empty_step_are_the_same_call() -> None:
    assert call_identity("main", None, "c") == call_identity("main", "", "c")
    assert idempotency_key("r", None, "c") == idempotency_key("r", "", "c") == "r:c"
