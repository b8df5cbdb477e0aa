"""Domain-separated digests against the upstream ones."""

from pathlib import Path
from typing import Any

import pytest

from protocol.digest import domain_digest, domain_hmac
from protocol.secrets import Secret
from tests.vectors.conftest import load


@pytest.fixture
def key(prp_vectors: Path) -> Secret:
    return Secret(bytes.fromhex(load(prp_vectors, "domain")["keyHex"]))


def test_digest_and_hmac_of_parts_equal_upstream(domain_case: dict[str, Any], key: Secret) -> None:
    parts = [part.encode() for part in domain_case["parts"]]

    assert domain_digest(domain_case["domain"], *parts).hex() == domain_case["digestHex"]
    assert domain_hmac(key, domain_case["domain"], *parts).hex() == domain_case["hmacHex"]
