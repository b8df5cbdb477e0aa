"""Credential ids and keys against the upstream derivation."""

from typing import Any

from protocol.credentials import auth_key, credential_id
from protocol.secrets import Secret


def test_id_and_key_of_a_token_equal_upstream(credentials_case: dict[str, Any]) -> None:
    token = Secret(credentials_case["token"])

    assert credential_id(token) == credentials_case["credentialId"]
    assert auth_key(token).reveal().hex() == credentials_case["authKeyHex"]
