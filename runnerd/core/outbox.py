"""The outbox: events that are produced and not yet acknowledged.

It decides whether an event fits, numbers it and drops an acknowledged prefix. It refuses
to know when an event is sent: `duties` derives that from the cursors.

    produced ─▶ stored (frozen bytes, seq n) ─▶ sent any number of times ─▶ ack >= n: dropped
"""

import functools
from collections.abc import Sequence

import msgspec

from protocol.base.clock import Now, UnixMs
from protocol.base.revision import Transition
from protocol.canonical_json import JsonValue
from protocol.codec import event_envelope
from protocol.errors import ErrorCode
from protocol.events import EventVersion, Priority, runner_event
from protocol.ids import Identity, SourceSeq
from protocol.limits import DIAGNOSTIC_BYTES_MAX, DIAGNOSTICS_MAX
from protocol.timestamps import rfc3339_ms
from runnerd.core import coalescing, downgrade
from runnerd.core.state import Lifecycle, OutboxEntry, Runner
from runnerd.core.transition import Step, advance, refuse, with_live


class Draft(msgspec.Struct, frozen=True):
    """An event before it has a number."""

    event_type: str
    priority: Priority
    payload: dict[str, JsonValue]
    schema_version: EventVersion = 1


@functools.lru_cache(maxsize=16)
def envelope_bytes(identity: Identity) -> int:
    """Return what the envelope of every event of this identity adds to its body."""
    prefix, suffix = event_envelope(2, identity)
    return len(prefix) + len(suffix)


def outbox_bytes(entries: Sequence[OutboxEntry], identity: Identity) -> int:
    """Return the bytes that these events cost on the wire before sealing."""
    return sum(len(entry.body) for entry in entries) + len(entries) * envelope_bytes(identity)


def soft_room(runner: Runner) -> int:
    """Return how many bytes priorities 1 and 2 may still use; never the P0 reserve."""
    settings = runner.settings
    return settings.max_outbox_bytes - settings.p0_reserve_bytes - runner.live.outbox_bytes


def produce(runner: Runner, drafts: Sequence[Draft], now: Now) -> Runner:
    """Append events to the outbox, all in one revision.

    Priorities 1 and 2 must fit the soft limit: callers ask `soft_room` first. A fact of
    priority 0 that does not fit the hard limit makes the runner unrecoverable with
    ``p0_storage_exhausted``; nothing of this batch is stored then.

    Source: durable-recovery, "Backpressure and bounded storage".
    """
    if not drafts:
        return runner
    durable, settings = runner.durable, runner.settings
    overhead = envelope_bytes(settings.identity)
    emitted_at = rfc3339_ms(UnixMs(max(0, now.unix_ms)))
    entries: list[OutboxEntry] = []
    added = 0
    for seq, draft in enumerate(drafts, start=durable.next_source_seq):
        body = runner_event(
            settings.identity,
            source_seq=SourceSeq(seq),
            event_type=draft.event_type,
            priority=draft.priority,
            payload=draft.payload,
            emitted_at=emitted_at,
            schema_version=draft.schema_version,
        )
        entries.append(
            OutboxEntry(SourceSeq(seq), draft.priority, draft.event_type, msgspec.Raw(body))
        )
        added += len(body) + overhead
    total = runner.live.outbox_bytes + added
    if total > settings.max_outbox_bytes:
        return advance(
            runner,
            # Revoked is final: nothing but delivery and an end can follow.
            lifecycle=(
                durable.lifecycle
                if durable.lifecycle is Lifecycle.REVOKED
                else Lifecycle.UNRECOVERABLE
            ),
            unrecoverable_outcome=ErrorCode.P0_STORAGE_EXHAUSTED.value,
        )
    longer = advance(
        runner,
        outbox=(*durable.outbox, *entries),
        next_source_seq=SourceSeq(durable.next_source_seq + len(entries)),
        peak_outbox_bytes=max(durable.peak_outbox_bytes, total),
    )
    return with_live(longer, outbox_bytes=total)


def produce_updates(
    runner: Runner, event_type: str, updates: Sequence[dict[str, JsonValue]], now: Now
) -> Runner:
    """Append display updates, one event each; merged while nobody is there to see them.

    Source: durable-recovery, "P2 item deltas coalesce before delivery"; ruling R2.
    """
    if runner.live.connection is not None:
        return produce(runner, [Draft(event_type, 2, update) for update in updates], now)
    first, *others = coalescing.gathered(updates)
    tail = coalescing.mergeable_tail(runner, event_type)
    joined = None if tail is None else coalescing.merged(tail, first)
    if tail is None or joined is None:
        others.insert(0, first)
    else:
        runner = _replace_tail(runner, coalescing.rewritten(runner, tail, joined))
    return produce(runner, [Draft(event_type, 2, update) for update in others], now)


def _replace_tail(runner: Runner, longer: OutboxEntry) -> Runner:
    durable = runner.durable
    grown = len(longer.body) - len(durable.outbox[-1].body)
    total = runner.live.outbox_bytes + grown
    replaced = advance(
        runner,
        outbox=(*durable.outbox[:-1], longer),
        peak_outbox_bytes=max(durable.peak_outbox_bytes, total),
    )
    return with_live(replaced, outbox_bytes=total)


def on_ack(runner: Runner, acked_source_seq: SourceSeq) -> Step:
    """Drop the acknowledged prefix of the outbox.

    A cumulative ACK through n says that the controller has committed or deduplicated
    every event with ``source_seq <= n``.

    Args:
        acked_source_seq: cursor from an authenticated envelope of the current connection.

    Returns:
        A shorter outbox at the next revision. Or the same state and CloseConnection:
        ``ack_regressed`` if the cursor moves back, ``ack_beyond_produced`` if it
        passes the last event this runner produced.

    Source: durable-recovery, "Event delivery and ACKs"; ruling R12.
    """
    if acked_source_seq < runner.durable.acked_source_seq:
        return refuse(runner, ErrorCode.ACK_REGRESSED)
    if acked_source_seq >= runner.durable.next_source_seq:
        return refuse(runner, ErrorCode.ACK_BEYOND_PRODUCED)
    return Transition(drop_acknowledged(runner, acked_source_seq))


def drop_acknowledged(runner: Runner, acked_source_seq: SourceSeq) -> Runner:
    """Return the runner without the events through a cursor that was checked."""
    durable = runner.durable
    count = acked_source_seq - durable.acked_source_seq
    if count == 0:
        return runner
    gone = outbox_bytes(durable.outbox[:count], runner.settings.identity)
    runner = downgrade.retain(runner, durable.outbox[:count])
    shorter = advance(runner, acked_source_seq=acked_source_seq, outbox=durable.outbox[count:])
    return with_live(shorter, outbox_bytes=runner.live.outbox_bytes - gone)


def note(runner: Runner, words: str) -> Runner:
    """Keep a diagnostic; one that repeats the newest changes nothing.

    Args:
        words: our own, of codes and states; what others wrote would have to be redacted.
    """
    assert len(words) <= DIAGNOSTIC_BYTES_MAX, "our own words are few"
    kept = runner.durable.diagnostics
    if kept and kept[-1] == words:
        return runner
    return advance(runner, diagnostics=(*kept[-(DIAGNOSTICS_MAX - 1) :], words))
