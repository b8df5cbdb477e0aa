"""Planted bugs of the runner: its core and its state file.

It decides what is broken and by which invariant that must be named. It refuses to know how
the simulator finds it.
"""

from typing import Final

from tests.simulator.planted.bug import Bug, Edit

ATOMIC: Final = "protocol/base/atomic_file.py"
CORE: Final = "runnerd/core/"

BUGS: Final = (
    Bug(
        "B01",
        "rename without fsync of the file",
        ("I7", "I8"),
        (
            Edit(
                ATOMIC,
                "                self._write_all(descriptor, data)\n"
                "                self._fs.sync(descriptor)\n",
                "                self._write_all(descriptor, data)\n",
            ),
        ),
    ),
    Bug(
        "B02",
        "no fsync of the directory after rename",
        ("I7", "I8"),
        (
            Edit(
                ATOMIC,
                "        self._sync_directory()\n        self._hold_reserve(len(data))\n",
                "        self._hold_reserve(len(data))\n",
            ),
        ),
    ),
    Bug(
        "B03",
        "outgoing event not gated on its revision",
        ("I1", "I7"),
        (
            Edit(
                CORE + "duties.py",
                "        claim(\n            runner,\n            SendEvent(",
                "        (lambda _, action: Gated(action))(\n            runner,\n"
                "            SendEvent(",
            ),
        ),
    ),
    Bug(
        "B04",
        "after a failed save the connection stays and work goes on",
        ("I3", "I7"),
        (
            Edit(
                CORE + "step.py",
                "    closing = refuse(runner, ErrorCode.STORAGE_WRITE_FAILED)\n",
                "    closing: Step = Transition(runner)\n",
            ),
        ),
        needs=("disk",),
    ),
    Bug(
        "B05",
        "fsync retried on the same descriptor after EIO and believed",
        ("I7",),
        (
            Edit(
                ATOMIC,
                "                self._write_all(descriptor, data)\n"
                "                self._fs.sync(descriptor)\n",
                "                self._write_all(descriptor, data)\n"
                "                try:\n"
                "                    self._fs.sync(descriptor)\n"
                "                except OSError:\n"
                "                    self._fs.sync(descriptor)\n",
            ),
        ),
        needs=("disk",),
    ),
    Bug(
        "B06",
        "ACK removes one event too many",
        ("I1",),
        (
            Edit(
                CORE + "outbox.py",
                "acked_source_seq=acked_source_seq, outbox=durable.outbox[count:])",
                "acked_source_seq=acked_source_seq, outbox=durable.outbox[count + 1 :])",
            ),
        ),
    ),
    Bug(
        "B07a",
        "ACK above produced is applied",
        ("I1", "I4"),
        (
            Edit(
                CORE + "outbox.py",
                "    if acked_source_seq >= runner.durable.next_source_seq:\n",
                "    if acked_source_seq >= 2**52:\n",
            ),
        ),
        needs=("forged_ack",),
    ),
    Bug(
        "B07b",
        "ACK below acked is applied",
        ("I1", "I4"),
        (
            Edit(
                CORE + "outbox.py",
                "    if acked_source_seq < runner.durable.acked_source_seq:\n",
                "    if acked_source_seq < 0:\n",
            ),
        ),
        needs=("forged_ack",),
    ),
    Bug(
        "B08",
        "next seq derived from the outbox at start",
        ("I2", "I4"),
        (
            Edit(
                CORE + "recovery.py",
                "    generation = durable.generation\n    found = Runner(",
                "    from msgspec import structs\n\n"
                "    last = durable.outbox[-1].source_seq if durable.outbox else 0\n"
                "    durable = structs.replace(durable, next_source_seq=SourceSeq(last + 1))\n"
                "    generation = durable.generation\n    found = Runner(",
            ),
        ),
    ),
    Bug(
        "B09",
        "event re-stamped on resend",
        ("I2", "I12"),
        (
            Edit(
                CORE + "duties.py",
                "                body_for(entry, connection.binding.version, "
                "runner.settings.identity),\n",
                "                body_for(\n"
                "                    entry, connection.binding.version, runner.settings.identity\n"
                "                ).replace(b'emittedAt\":\"20', b'emittedAt\":\"21')\n"
                "                if entry.source_seq <= runner.live.frozen_through\n"
                "                else bytes(entry.body),\n",
            ),
        ),
    ),
    Bug(
        "B10",
        "P2 coalesced into a frozen event",
        ("I1", "I2"),
        (
            Edit(
                CORE + "coalescing.py",
                "    is_free = tail.source_seq > runner.live.frozen_through\n",
                "    is_free = True\n",
            ),
        ),
        needs=("loss",),
    ),
    Bug(
        "B11",
        "P1 may use the P0 reserve",
        ("I9", "I10"),
        (
            Edit(
                CORE + "outbox.py",
                "    return settings.max_outbox_bytes - settings.p0_reserve_bytes - ",
                "    return settings.max_outbox_bytes - ",
            ),
        ),
        needs=("pressure",),
    ),
    Bug(
        "B12",
        "P0 dropped when full",
        ("I9",),
        (
            Edit(
                CORE + "outbox.py",
                "    if total > settings.max_outbox_bytes:\n",
                "    if total > settings.max_outbox_bytes:\n        return runner\n",
            ),
        ),
        needs=("pressure",),
    ),
    Bug(
        "B13",
        "result sent, then stored",
        ("I5", "I7"),
        (
            Edit(
                CORE + "command_journal.py",
                "    return Transition(runner, (claim(runner, action),))\n",
                "    from protocol.base.revision import Gated\n\n"
                "    return Transition(runner, (Gated(action),))\n",
            ),
        ),
    ),
    Bug(
        "B14",
        "started command executed again after restart",
        ("I5", "I14"),
        (
            Edit(
                CORE + "recovery.py",
                "            record if record.result is not None else indeterminate(record)\n",
                "            record\n",
            ),
            Edit(
                CORE + "recovery.py",
                "    if started.orphan is not None:\n",
                "    if started.orphan is not None and resumed.durable.turn.birth is not None:\n",
            ),
            Edit(
                CORE + "recovery.py",
                "        harness_started="
                "generation if durable.turn is not None else Generation(0),\n",
                "        harness_started=Generation(0),\n",
            ),
        ),
        needs=("crash",),
    ),
    Bug(
        "B15",
        "digest not compared on a repeated command id",
        ("I6",),
        (
            Edit(
                CORE + "command_journal.py",
                "        if record.fingerprint != command_fingerprint(command):\n",
                "        if record.command_type != command.type:\n",
            ),
        ),
        needs=("altered",),
    ),
    Bug(
        "B16",
        "cache record evicted before its id is in the persisted filter",
        ("I5", "I6"),
        (
            Edit(
                CORE + "command_journal.py",
                "            replay_filter.with_id(_filter_of(runner), oldest.command_id)\n",
                '            replay_filter.with_id(_filter_of(runner), "another id")\n',
            ),
        ),
        needs=("reused",),
    ),
    Bug(
        "B18a",
        "lease judged by wall clock only",
        ("I24",),
        (
            Edit(
                CORE + "lease.py",
                "    return now.mono_ms >= lease.deadline_mono_ms or "
                "now.unix_ms >= lease.expires_at_unix_ms\n",
                "    return now.unix_ms >= lease.expires_at_unix_ms\n",
            ),
        ),
        needs=("wall", "lease_end"),
    ),
    Bug(
        "B18b",
        "`>` for `≥` at expiry",
        ("I24",),
        (
            Edit(
                CORE + "lease.py",
                "    return now.mono_ms >= lease.deadline_mono_ms or "
                "now.unix_ms >= lease.expires_at_unix_ms\n",
                "    return now.mono_ms > lease.deadline_mono_ms or "
                "now.unix_ms > lease.expires_at_unix_ms\n",
            ),
        ),
        needs=("lease_end",),
    ),
    Bug(
        "B27",
        "drain admits a turn",
        ("I17",),
        (
            Edit(
                CORE + "commands.py",
                "    if durable.lifecycle is Lifecycle.DRAINING:\n"
                "        return ErrorCode.RUNNER_DRAINING\n",
                "",
            ),
        ),
        needs=("drain",),
    ),
    Bug(
        "B30",
        "reconnect without backoff",
        ("I20",),
        (
            Edit(
                CORE + "connection.py",
                "        dial_at_mono_ms=MonoMs(now.mono_ms + max(1, base * percent // 100)),\n",
                "        dial_at_mono_ms=now.mono_ms,\n",
            ),
        ),
    ),
    Bug(
        "B31",
        "decision code iterates over a set of strings",
        ("I23",),
        (
            Edit(
                CORE + "turns.py",
                "        _starting(begun, turn.generation),\n    )\n",
                "        _starting(begun, turn.generation),\n    )\n"
                "    by_type = {draft.event_type: draft for draft in drafts}\n"
                "    drafts = tuple(by_type[name] for name in set(by_type))\n",
            ),
        ),
        stack="traces",
    ),
    Bug(
        "B32",
        "peak bytes not measured when an event is stored",
        ("I10",),
        (
            Edit(
                CORE + "outbox.py",
                "        next_source_seq=SourceSeq(durable.next_source_seq + len(entries)),\n"
                "        peak_outbox_bytes=max(durable.peak_outbox_bytes, total),\n",
                "        next_source_seq=SourceSeq(durable.next_source_seq + len(entries)),\n",
            ),
        ),
    ),
)
