"""The connection lease: how long control data may be applied, and when to ask for more.

It decides expiry and renewal. It refuses to know what else an expired lease means: that is
`clockwork`.

    granted ─▶ half life: renewal outstanding ─▶ renewed (later expiry) ─▶ half life ...
                     └─ no answer: again after min(5 s, half of what remains)
    deadline on either clock, equal counts ─▶ expired, a fresh ticket is needed
"""

from msgspec import structs

from protocol.base.clock import MonoMs, Now
from protocol.base.revision import Gated, Transition
from protocol.envelope import LeaseRenew, LeaseRenewed
from protocol.errors import ErrorCode
from protocol.ids import RevocationEpoch
from protocol.limits import RENEWAL_RETRY_MS_MAX
from runnerd.core.actions import SendRenewal
from runnerd.core.inputs import Connected
from runnerd.core.state import Lease, Renewal, Runner
from runnerd.core.transition import Step, refuse, with_live


def granted(runner: Runner, connected: Connected, now: Now) -> Lease | None:
    """Return the lease that a welcome grants or confirms; None if it grants none in force.

    Expiry becomes a deadline on the suspend-aware clock, measured from the controller's own
    clock, so that no step of the wall clock extends it (R10).
    """
    welcome, held = connected.welcome, runner.live.lease
    token = connected.lease_token or (held.token if held is not None else None)
    if token is None:
        return None
    sent_at = now.unix_ms if connected.sent_at_unix_ms is None else connected.sent_at_unix_ms
    remaining_ms = welcome.connection_lease_expires_at_unix_ms - sent_at
    lease = Lease(
        token=token,
        lease_id=welcome.connection_lease_id,
        expires_at_unix_ms=welcome.connection_lease_expires_at_unix_ms,
        deadline_mono_ms=MonoMs(now.mono_ms + remaining_ms),
        revocation_epoch=welcome.connection_lease_revocation_epoch,
        can_renew=welcome.connection_lease_renewal_version == 1,
        renew_at_mono_ms=MonoMs(now.mono_ms + max(remaining_ms, 0) // 2),
    )
    return None if is_expired(lease, now) else lease


def is_expired(lease: Lease, now: Now) -> bool:
    """Tell whether either clock says that the lease is over; equal counts as over (R10)."""
    return now.mono_ms >= lease.deadline_mono_ms or now.unix_ms >= lease.expires_at_unix_ms


def on_lease_renewed(
    runner: Runner, renewed: LeaseRenewed, sent_at_unix_ms: int | None, now: Now
) -> Step:
    """Take over a later expiry that was asked for.

    Returns:
        The lease with the new deadline; nothing for the same answer once more, which the
        controller owes to a repeated request. Or CloseConnection ``lease_renewal_unsolicited``:
        no renewal is outstanding, or the answer is to another one, changes the epoch or
        moves the expiry back.

    Source: prp-wire 10.
    """
    lease = runner.live.lease
    if lease is not None and renewed == lease.answer:
        return Transition(runner)
    if (
        lease is None
        or lease.renewal is None
        or renewed.previous_expires_at_unix_ms != lease.renewal.observed_expires_at_unix_ms
        or renewed.connection_lease_revocation_epoch != lease.revocation_epoch
        or renewed.connection_lease_expires_at_unix_ms < lease.expires_at_unix_ms
    ):
        return refuse(runner, ErrorCode.LEASE_RENEWAL_UNSOLICITED)
    sent_at = now.unix_ms if sent_at_unix_ms is None else sent_at_unix_ms
    remaining_ms = renewed.connection_lease_expires_at_unix_ms - sent_at
    extended = structs.replace(
        lease,
        expires_at_unix_ms=renewed.connection_lease_expires_at_unix_ms,
        deadline_mono_ms=MonoMs(now.mono_ms + remaining_ms),
        renew_at_mono_ms=MonoMs(now.mono_ms + max(remaining_ms, 0) // 2),
        renewal=None,
        answer=renewed,
    )
    return Transition(with_live(runner, lease=extended))


def renew_if_due(runner: Runner, now: Now) -> Step:
    """Ask for a later expiry at half of what remains, and again while no answer came."""
    lease, connection = runner.live.lease, runner.live.connection
    if lease is None or connection is None or not lease.can_renew:
        return Transition(runner)
    if now.mono_ms < lease.renew_at_mono_ms:
        return Transition(runner)
    remaining_ms = lease.deadline_mono_ms - now.mono_ms
    asked = structs.replace(
        lease,
        renewal=Renewal(lease.expires_at_unix_ms),
        renew_at_mono_ms=MonoMs(now.mono_ms + max(1, min(RENEWAL_RETRY_MS_MAX, remaining_ms // 2))),
    )
    request = LeaseRenew(
        connection_lease_expires_at_unix_ms=lease.expires_at_unix_ms,
        connection_lease_revocation_epoch=RevocationEpoch(lease.revocation_epoch),
    )
    action = SendRenewal(connection.binding.connection_id, request)
    return Transition(with_live(runner, lease=asked), (Gated(action, passes=True),))
