"""One credential, one identity and both ends of a handshake, for the tests of it."""

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.canonical_json import canonical_bytes
from protocol.credentials import auth_key, credential_id
from protocol.envelope import ProtocolVersion, Resume
from protocol.errors import ErrorCode, PrpError
from protocol.handshake import (
    Challenge,
    ClientOffer,
    CredentialFacts,
    client_hello,
    read_hello,
    server_challenge,
    server_proof,
)
from protocol.ids import Identity, LeaseId
from protocol.secrets import Secret

Change = Callable[[dict[str, Any]], object]

TOKEN: Final = Secret("s3cret")
KEY: Final = auth_key(TOKEN)
EXPIRY: Final = 1_800_000_000_000
NOW: Final = Now(UnixMs(EXPIRY - 1), MonoMs(0))
IDENTITY: Final = Identity(
    runner_instance_id="runner_1",
    environment_lease_id="envlease_1",
    run_id="run_1",
    normalized_session_id="session_1",
    turn_id="turn_1",
    item_id="item_1",
)
BOOTSTRAP: Final = ClientOffer(
    identity=IDENTITY,
    runner_version="1.2.3",
    runner_digest="sha256:" + "ab" * 32,
    credential_kind="bootstrap",
    credential_id=credential_id(TOKEN),
    client_nonce="5d" * 32,
    resume=Resume(last_controller_command_seq=3, next_source_event_seq=9, acked_source_seq=7),
)
LEASE: Final = msgspec.structs.replace(
    BOOTSTRAP,
    credential_kind="lease",
    lease_id=LeaseId("connection_lease_1"),
    lease_expires_at_unix_ms=EXPIRY,
    lease_revocation_epoch=4,
)


def facts_of(offer: ClientOffer, version: ProtocolVersion = 2) -> CredentialFacts:
    is_lease = offer.credential_kind == "lease"
    return CredentialFacts(
        kind=offer.credential_kind,
        credential_id=offer.credential_id,
        identity=offer.identity,
        runner_version=offer.runner_version,
        runner_digest=offer.runner_digest,
        expires_at_unix_ms=EXPIRY,
        revocation_epoch=4 if is_lease else 0,
        lease_id=offer.lease_id,
        lease_version=version if is_lease else None,
    )


def challenge_for(offer: ClientOffer, version: ProtocolVersion = 2) -> Challenge:
    hello = read_hello(client_hello(offer))
    return server_challenge(hello, facts_of(offer, version), KEY, "server nonce")


def changed(frame: bytes, change: Change) -> bytes:
    message = json.loads(frame)
    change(message)
    return json.dumps(message).encode()


def signed_again(frame: bytes, change: Change) -> bytes:
    """A challenge with a changed payload by a sender that holds the capability."""
    message = json.loads(frame)
    payload = message["payload"]
    del payload["serverProof"]
    change(payload)
    payload["serverProof"] = server_proof(KEY, canonical_bytes(payload))
    return json.dumps(message).encode()


def code_of(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(PrpError) as refusal:
        action()
    return refusal.value.code
