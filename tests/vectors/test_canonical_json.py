"""Canonical JSON against the upstream canonicaliser."""

import hashlib
from typing import Any, Final

import pytest

from protocol.canonical_json import canonicalise
from protocol.errors import ErrorCode, PrpError

DESCRIBED: Final = {
    "array of 9999 zeros": "[" + ",".join(["0"] * 9999) + "]",
    "array of 10000 zeros": "[" + ",".join(["0"] * 10000) + "]",
}
CODES: Final = {
    "not_json": ErrorCode.MESSAGE_NOT_JSON,
    "invalid": ErrorCode.MESSAGE_INVALID,
    "too_large": ErrorCode.MESSAGE_TOO_LARGE,
}


def test_canonical_text_and_digest_equal_upstream_or_are_refused_alike(
    canonical_json_case: dict[str, Any],
) -> None:
    case = canonical_json_case
    text = case["jsonText"] if "jsonText" in case else DESCRIBED[case["describe"]]

    if case["ok"]:
        canonical = canonicalise(text.encode())

        assert canonical.decode() == case.get("canonical", text)
        if "sha256" in case:
            assert hashlib.sha256(canonical).hexdigest() == case["sha256"]
    else:
        with pytest.raises(PrpError) as refusal:
            canonicalise(text.encode())

        assert refusal.value.code == CODES[case["error"]]
