"""Mutual proof of one capability, from hello to session keys; both roles.

    runner                                   controller
    client_hello   ──── auth_hello ────────▶ read_hello
                                             server_challenge
    client_answer  ◀─── auth_challenge ────
                   ──── auth_response ─────▶ server_verify
    SessionKeys                              SessionKeys

It decides whether the other end holds the same capability and means the same run. It
refuses to know clocks, entropy, and what becomes of a credential that was used.
"""

import hmac
from typing import Final

import msgspec

from protocol.base.clock import Now, UnixMs
from protocol.digest import LABEL_PREFIX, domain_digest, domain_hmac
from protocol.envelope import (
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    AuthHello,
    CredentialKind,
    OwnerEpoch,
    ProtocolVersion,
    Resume,
)
from protocol.errors import ErrorCode, PrpError
from protocol.extensions import (
    OFFERED,
    check_owner,
    check_recovery_cursor,
    extended,
    owner_of,
    recovery_cursor,
)
from protocol.ids import CredentialId, Identity, LeaseId, SourceSeq
from protocol.limits import NONCE_LENGTH_MAX
from protocol.negotiation import negotiate
from protocol.plain_messages import (
    CHALLENGE,
    HELLO,
    RESPONSE,
    ChallengePayload,
    ResponsePayload,
    challenge_text,
    read_plain,
    read_plain_hello,
    write_plain,
)
from protocol.secrets import Secret
from protocol.timestamps import rfc3339_ms

SERVER_PROOF_DOMAIN: Final = "paperclip-runner-server-proof-v1"
CLIENT_PROOF_DOMAIN: Final = "paperclip-runner-client-proof-v1"
BINDING_DOMAIN: Final = "paperclip-runner-session-binding-v1"
CORE_TO_CLIENT_DOMAIN: Final = "paperclip-runner-core-to-client-key-v1"
CLIENT_TO_CORE_DOMAIN: Final = "paperclip-runner-client-to-core-key-v1"


class SessionKeys(msgspec.Struct, frozen=True):
    """What a secure channel is made of; the keys are 32 bytes each."""

    session_id: str
    core_to_client: Secret
    client_to_core: Secret


class ClientOffer(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner says of itself, and what it knows of the lease it reconnects on."""

    identity: Identity
    runner_version: str
    runner_digest: str
    credential_kind: CredentialKind
    credential_id: CredentialId
    client_nonce: str
    """64 hex digits of fresh randomness."""
    resume: Resume
    protocol_min: int = PROTOCOL_MIN
    protocol_max: int = PROTOCOL_MAX
    lease_id: LeaseId | None = None
    lease_expires_at_unix_ms: int | None = None
    lease_revocation_epoch: int | None = None
    obeyed_owner: OwnerEpoch | None = None
    """The latest start of a controller that this runner has obeyed (R7)."""
    renewal_outstanding: bool = False
    """A renewal was sent and not answered: the lease may live longer than this end knows."""


class ClientAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The runner's proof, and the session that holds once the controller accepts it."""

    response: bytes
    keys: SessionKeys
    selected_version: ProtocolVersion
    credential_expires_at_unix_ms: int
    owner: OwnerEpoch | None = None


class CredentialFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller stored about a credential; ``revocation_epoch`` is 0 for a bootstrap."""

    kind: CredentialKind
    credential_id: CredentialId
    identity: Identity
    runner_version: str
    runner_digest: str
    expires_at_unix_ms: int
    revocation_epoch: int = 0
    lease_id: LeaseId | None = None
    lease_version: ProtocolVersion | None = None


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """An open challenge: the frame to send, and what its answer must repeat."""

    frame: bytes
    text: bytes
    """Canonical JSON of the challenge without its proof; both proofs cover it."""
    server_proof: str
    selected_version: ProtocolVersion
    client_nonce: str
    server_nonce: str
    credential_id: CredentialId
    recovery_cursor: SourceSeq | None = None
    """What the runner says was acknowledged to it; authentic once its proof is good."""


# --- Runner -------------------------------------------------------------------------------


def client_hello(offer: ClientOffer) -> bytes:
    """Return the text of the first message of a connection.

    Source: prp-wire 3.1.
    """
    payload = AuthHello(
        credential_id=offer.credential_id,
        credential_kind=offer.credential_kind,
        client_nonce=offer.client_nonce,
        protocol_min=offer.protocol_min,
        protocol_max=offer.protocol_max,
        runner_version=offer.runner_version,
        runner_digest=offer.runner_digest,
        resume=msgspec.Raw(msgspec.json.encode(offer.resume)),
        recovery_cursor_version=OFFERED,
        owner_epoch_version=OFFERED,
        **msgspec.structs.asdict(offer.identity),
    )
    return write_plain(HELLO, offer.protocol_max, payload)


def client_answer(
    offer: ClientOffer, auth_key: Secret, challenge_frame: bytes, now: Now
) -> ClientAnswer:
    """Check a challenge against the offer and prove the capability in turn.

    Raises:
        PrpError: ``message_*`` if the frame is not a challenge; ``challenge_altered`` if it
            repeats the offer wrongly, names a version that was not offered or moves the
            lease without a renewal outstanding; ``owner_epoch_superseded`` if a later start
            of the controller was obeyed before; ``proof_invalid`` if its sender does not
            hold the capability; ``challenge_stale`` if the credential has expired by
            ``now``. No answer is due in any of these cases, and the credential is unused.

    Source: prp-wire 3.2, "Rust's checks before it answers".
    """
    version, challenge = read_plain(challenge_frame, CHALLENGE, ChallengePayload)
    selected = negotiate(offer.protocol_min, offer.protocol_max, version, version)
    if selected is None or challenge.selected_version != selected:
        raise PrpError(ErrorCode.CHALLENGE_ALTERED, "a version that was not offered")
    _check_echo(offer, challenge)
    check_recovery_cursor(challenge, offer.resume.acked_source_seq)
    owner = owner_of(challenge)
    text = challenge_text(challenge)
    if not _same_text(challenge.server_proof, server_proof(auth_key, text)):
        raise PrpError(ErrorCode.PROOF_INVALID, "the controller's proof")
    check_owner(offer.obeyed_owner, owner)
    _check_lease(offer, challenge)
    if challenge.credential_expires_at_unix_ms <= now.unix_ms:
        raise PrpError(ErrorCode.CHALLENGE_STALE, "the credential has expired")
    proof = client_proof(auth_key, text, challenge.server_proof)
    response = ResponsePayload(
        credential_id=challenge.credential_id,
        client_nonce=challenge.client_nonce,
        server_nonce=challenge.server_nonce,
        client_proof=proof,
    )
    return ClientAnswer(
        response=write_plain(RESPONSE, selected, response),
        keys=session_keys(auth_key, text, challenge.server_proof, proof),
        selected_version=selected,
        credential_expires_at_unix_ms=challenge.credential_expires_at_unix_ms,
        owner=owner,
    )


def _check_echo(offer: ClientOffer, challenge: ChallengePayload) -> None:
    expected = {
        "credential_id": offer.credential_id,
        "credential_kind": offer.credential_kind,
        "client_nonce": offer.client_nonce,
        "runner_version": offer.runner_version,
        "runner_digest": offer.runner_digest,
        "credential_lease_id": offer.lease_id,
        **msgspec.structs.asdict(offer.identity),
    }
    for name, value in expected.items():
        if getattr(challenge, name) != value:
            raise PrpError(ErrorCode.CHALLENGE_ALTERED, name)
    if not 1 <= len(challenge.server_nonce) <= NONCE_LENGTH_MAX:
        raise PrpError(ErrorCode.CHALLENGE_ALTERED, "server_nonce")


def _check_lease(offer: ClientOffer, challenge: ChallengePayload) -> None:
    if offer.credential_kind == "bootstrap":
        return
    assert offer.lease_expires_at_unix_ms is not None, "a lease is offered with its expiry"
    if challenge.revocation_epoch != offer.lease_revocation_epoch:
        raise PrpError(ErrorCode.CHALLENGE_ALTERED, "revocation_epoch")
    moved_ms = challenge.credential_expires_at_unix_ms - offer.lease_expires_at_unix_ms
    if moved_ms < 0 or (moved_ms > 0 and not offer.renewal_outstanding):
        raise PrpError(ErrorCode.CHALLENGE_ALTERED, "credential_expires_at_unix_ms")


# --- Controller ---------------------------------------------------------------------------


def read_hello(frame: bytes) -> AuthHello:
    """Read the first message of a connection; nothing in it is authenticated yet.

    Raises:
        PrpError: ``message_*`` if it is not a hello; ``protocol_version_mismatch`` if its
            envelope has a version that does not exist.

    Source: prp-wire 3.1.
    """
    version, hello = read_plain_hello(frame)
    if not PROTOCOL_MIN <= version <= PROTOCOL_MAX:
        raise PrpError(ErrorCode.PROTOCOL_VERSION_MISMATCH, HELLO)
    if len(hello.client_nonce) > NONCE_LENGTH_MAX:
        raise PrpError(ErrorCode.MESSAGE_INVALID, "the nonce is too long")
    return hello


def server_challenge(
    hello: AuthHello,
    facts: CredentialFacts,
    auth_key: Secret,
    server_nonce: str,
    owner: OwnerEpoch | None = None,
) -> Challenge:
    """Check a hello against its stored credential and challenge the sender to prove it.

    Args:
        facts: of the credential that ``hello`` names, neither used, revoked nor expired.
        server_nonce: fresh randomness, not empty.
        owner: which start of the controller this is; said if the hello offers to hear it.

    Raises:
        PrpError: ``identity_mismatch``, ``artifact_mismatch`` or ``version_range_empty``;
            the credential stays usable.

    Source: prp-wire 3.1 and 3.2.
    """
    assert hello.credential_id == facts.credential_id, "the facts are those of another credential"
    identity = msgspec.structs.asdict(facts.identity)
    if any(getattr(hello, name) != value for name, value in identity.items()):
        raise PrpError(ErrorCode.IDENTITY_MISMATCH, HELLO)
    if isinstance(hello.warm_transition_id, msgspec.Raw) and bytes(
        hello.warm_transition_id
    ).startswith(b'"'):
        raise PrpError(ErrorCode.IDENTITY_MISMATCH, "a transition that nobody began")
    if (hello.runner_version, hello.runner_digest) != (facts.runner_version, facts.runner_digest):
        raise PrpError(ErrorCode.ARTIFACT_MISMATCH, HELLO)
    return _challenge(hello, facts, auth_key, server_nonce, owner)


def _challenge(
    hello: AuthHello,
    facts: CredentialFacts,
    auth_key: Secret,
    server_nonce: str,
    owner: OwnerEpoch | None,
) -> Challenge:
    selected = _select_version(hello, facts)
    challenge = ChallengePayload(
        credential_id=facts.credential_id,
        credential_kind=facts.kind,
        client_nonce=hello.client_nonce,
        server_nonce=server_nonce,
        runner_version=facts.runner_version,
        runner_digest=facts.runner_digest,
        selected_version=selected,
        credential_lease_id=facts.lease_id,
        credential_expires_at=rfc3339_ms(UnixMs(facts.expires_at_unix_ms)),
        credential_expires_at_unix_ms=facts.expires_at_unix_ms,
        revocation_epoch=facts.revocation_epoch,
        server_proof="",
        **msgspec.structs.asdict(facts.identity),
    )
    challenge = extended(challenge, hello, owner)
    text = challenge_text(challenge)
    proof = server_proof(auth_key, text)
    return Challenge(
        frame=write_plain(
            CHALLENGE, selected, msgspec.structs.replace(challenge, server_proof=proof)
        ),
        text=text,
        server_proof=proof,
        selected_version=selected,
        client_nonce=hello.client_nonce,
        server_nonce=server_nonce,
        credential_id=facts.credential_id,
        recovery_cursor=recovery_cursor(hello),
    )


def server_verify(challenge: Challenge, auth_key: Secret, response_frame: bytes) -> SessionKeys:
    """Check the answer to an open challenge and return the keys of the session.

    Raises:
        PrpError: ``message_*`` if the frame is not an answer; ``challenge_altered`` if it
            answers another challenge; ``proof_invalid`` if its sender does not hold the
            capability. The credential stays usable in all cases.

    Source: prp-wire 3.3.
    """
    version, response = read_plain(response_frame, RESPONSE, ResponsePayload)
    if (version, response.credential_id, response.client_nonce, response.server_nonce) != (
        challenge.selected_version,
        challenge.credential_id,
        challenge.client_nonce,
        challenge.server_nonce,
    ):
        raise PrpError(ErrorCode.CHALLENGE_ALTERED, RESPONSE)
    proof = client_proof(auth_key, challenge.text, challenge.server_proof)
    if not _same_text(response.client_proof, proof):
        raise PrpError(ErrorCode.PROOF_INVALID, "the runner's proof")
    return session_keys(auth_key, challenge.text, challenge.server_proof, proof)


def _select_version(hello: AuthHello, facts: CredentialFacts) -> ProtocolVersion:
    if facts.lease_version is None:
        selected = negotiate(hello.protocol_min, hello.protocol_max)
    else:
        # A lease keeps the version it was issued with, whatever is offered later.
        selected = negotiate(
            hello.protocol_min, hello.protocol_max, facts.lease_version, facts.lease_version
        )
    if selected is None:
        raise PrpError(ErrorCode.VERSION_RANGE_EMPTY, HELLO)
    return selected


# --- What both ends compute -----------------------------------------------------------------


def server_proof(auth_key: Secret, text: bytes) -> str:
    """Return the controller's proof over the canonical challenge, in lower-case hex."""
    return domain_hmac(auth_key, SERVER_PROOF_DOMAIN, text).hex()


def client_proof(auth_key: Secret, text: bytes, server_proof: str) -> str:
    """Return the runner's proof over the challenge and the controller's proof, in hex."""
    return domain_hmac(auth_key, CLIENT_PROOF_DOMAIN, text, server_proof.encode()).hex()


def session_keys(
    auth_key: Secret, text: bytes, server_proof: str, client_proof: str
) -> SessionKeys:
    """Return id and keys of the session that both proofs bind.

    Source: prp-wire 3.4.
    """
    binding = domain_digest(BINDING_DOMAIN, text, server_proof.encode(), client_proof.encode())
    return SessionKeys(
        session_id=LABEL_PREFIX + binding.hex(),
        core_to_client=Secret(domain_hmac(auth_key, CORE_TO_CLIENT_DOMAIN, binding)),
        client_to_core=Secret(domain_hmac(auth_key, CLIENT_TO_CORE_DOMAIN, binding)),
    )


def _same_text(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
