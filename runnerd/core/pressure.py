"""Backpressure: when the outbox leaves no room for new work, and when it does again.

It decides the two edges, far apart, so that each is one event and our own facts cannot fill
the reserve (ruling R16). It refuses to slow anybody down: `duties` reads the room itself.

    ready ─ no room for a turn below the soft limit ─▶ backpressure (P0 runner.backpressure)
      ▲     or none on the disk                             │
      └──────────── outbox at most half the soft limit ─────┘ (P0 runner.backpressure)
                    and room on the disk
"""

from protocol.base.clock import Now
from protocol.limits import TURN_END_ROOM_BYTES
from runnerd.core.outbox import Draft, produce, soft_room
from runnerd.core.state import Lifecycle, Runner
from runnerd.core.transition import advance


def has_room_for_a_turn(runner: Runner) -> bool:
    """Tell whether a new turn could report its start and its end below the soft limit."""
    return soft_room(runner) >= 2 * TURN_END_ROOM_BYTES and not runner.live.storage_tight


def settle(runner: Runner, now: Now) -> Runner:
    """Cross an edge if the outbox has, and say so."""
    lifecycle, used = runner.durable.lifecycle, runner.live.outbox_bytes
    relaxed = used <= _soft_limit(runner) // 2 and not runner.live.storage_tight
    if lifecycle is Lifecycle.READY and not relaxed and not has_room_for_a_turn(runner):
        return _cross(runner, Lifecycle.BACKPRESSURE, now)
    if lifecycle is Lifecycle.BACKPRESSURE and relaxed:
        return _cross(runner, Lifecycle.READY, now)
    return runner


def _cross(runner: Runner, lifecycle: Lifecycle, now: Now) -> Runner:
    settings = runner.settings
    draft = Draft(
        "runner.backpressure",
        0,
        {
            "reason": "storage_full" if runner.live.storage_tight else "outbox_soft_limit",
            "maxOutboxBytes": settings.max_outbox_bytes,
            "p0ReserveBytes": settings.p0_reserve_bytes,
            "outboxBytes": runner.live.outbox_bytes,
            "newTurnsAccepted": lifecycle is Lifecycle.READY,
        },
    )
    return produce(advance(runner, lifecycle=lifecycle), (draft,), now)


def _soft_limit(runner: Runner) -> int:
    return runner.settings.max_outbox_bytes - runner.settings.p0_reserve_bytes
