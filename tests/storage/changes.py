"""Changes as the core makes them, without a core."""

from collections.abc import Iterable

from controller_mock.core.actions import Change, PutCredential, PutEvent, PutRun
from controller_mock.core.state import DurableRun, run_row
from protocol.ids import CredentialId, RunId, SourceSeq
from protocol.secrets import Secret
from tests.controller_mock.core.world import CONFIG, digest_of

RUN: RunId = RunId(CONFIG.identity.run_id)


def put_event(seq: int, *, event_id: str | None = None, body: bytes = b"{}") -> PutEvent:
    """Return event ``seq`` as the core stores it."""
    return PutEvent(
        source_seq=SourceSeq(seq),
        source_event_id=f"event_runner-1_{seq:016d}" if event_id is None else event_id,
        event_type="item.delta",
        priority=2,
        digest=digest_of(seq),
        body=body,
        received_at_unix_ms=1_700_000_000_000 + seq,
        connection_number=1,
    )


def row(acked: int) -> PutRun:
    """Return a run's row with this cursor."""
    return run_row(DurableRun(acked_source_seq=SourceSeq(acked)))


def events(seqs: Iterable[int], *, body: bytes = b"{}") -> tuple[Change, ...]:
    """Return a batch of events and the row behind each of them."""
    changes: list[Change] = []
    for seq in seqs:
        changes.extend((put_event(seq, body=body), row(seq)))
    return tuple(changes)


def ticket(number: int) -> PutCredential:
    """Return one ticket of many."""
    return PutCredential(
        credential_id=CredentialId(f"sha256:{number:064x}"),
        kind="bootstrap",
        auth_key=Secret(digest_of(number)),
        expires_at_unix_ms=1_700_000_000_000,
        revocation_epoch=0,
    )
