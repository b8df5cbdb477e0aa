"""Tests of one blocking call to a controller, and of the requests to stop that end it."""

import os
import signal
from collections.abc import Iterator

import pytest

from protocol.base.posix_fs import SystemClock, SystemEntropy
from protocol.envelope import CredentialKind
from protocol.errors import ErrorCode
from protocol.secrets import Secret
from runnerd.core.actions import Dial
from runnerd.core.inputs import ConnectFailed, StopRequested
from runnerd.core.state import Settings
from runnerd.destination import parse_url
from runnerd.io.caller import Caller
from runnerd.io.dialling import Call, call
from runnerd.io.link import Phase
from runnerd.io.signals import StopSignals
from tests.runnerd.io.links import RESUME
from tests.runnerd.peer import (
    IDENTITY,
    LEASE_ID,
    LEASE_TOKEN,
    RUNNER_DIGEST,
    RUNNER_VERSION,
    TICKET,
    Authority,
    Tamper,
    unix_ms,
)
from tests.runnerd.peer_server import PeerServer, serving

SETTINGS = Settings(
    identity=IDENTITY,
    runner_version=RUNNER_VERSION,
    runner_digest=RUNNER_DIGEST,
    max_outbox_bytes=1 << 24,
    p0_reserve_bytes=1 << 20,
    max_frame_bytes=1 << 20,
    reconnect_delay_ms=10,
    reconnect_grace_ms=None,
    max_runtime_ms=0,
    bootstrap_deadline_ms=30_000,
)


@pytest.fixture
def stops() -> Iterator[StopSignals]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    stops = StopSignals()
    yield stops
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)
    stops.close()


def dial(kind: CredentialKind, authority: Authority, timeout_ms: int = 30_000) -> Dial:
    if kind == "bootstrap":
        return Dial(credential_kind="bootstrap", resume=RESUME, timeout_ms=timeout_ms)
    return Dial(
        credential_kind="lease",
        resume=RESUME,
        lease_token=Secret(LEASE_TOKEN),
        lease_id=LEASE_ID,
        lease_expires_at_unix_ms=authority.lease_expires_at_unix_ms,
        lease_revocation_epoch=authority.revocation_epoch,
        timeout_ms=timeout_ms,
    )


def called(url: str, order: Dial, stops: StopSignals) -> Call | ConnectFailed:
    caller = Caller(SETTINGS, parse_url(url), Secret(TICKET), SystemEntropy())
    return call(caller, order, SystemClock(), stops)


def test_call_is_welcomed_on_the_ticket_and_on_the_lease(stops: StopSignals) -> None:
    with serving(Authority(lease_expires_at_unix_ms=unix_ms() + 30_000)) as server:
        kinds: dict[CredentialKind, bool] = {"bootstrap": True, "lease": False}
        for kind, holds_token in kinds.items():
            outcome = called(server.url, dial(kind, server.authority), stops)

            assert isinstance(outcome, Call)
            assert (outcome.connected.lease_token is not None) == holds_token
            assert outcome.link.phase is Phase.OPEN
            outcome.endpoint.close()


def test_call_tries_every_address_of_a_name(stops: StopSignals) -> None:
    with serving(Authority()) as server:
        outcome = called(
            server.url.replace("127.0.0.1", "localhost"), dial("bootstrap", server.authority), stops
        )

    assert isinstance(outcome, Call)
    outcome.endpoint.close()


def test_call_fails_when_nobody_listens(stops: StopSignals) -> None:
    with serving(Authority()) as server:
        url = server.url

    outcome = called(url, dial("bootstrap", Authority()), stops)

    assert outcome == ConnectFailed(code=ErrorCode.CONNECTION_LOST)


@pytest.mark.parametrize(
    ("tamper", "spent"),
    [
        (Tamper(hello=lambda hello: False), False),
        (Tamper(response=lambda response: False), True),
    ],
)
def test_failed_call_says_whether_the_ticket_may_be_spent(
    stops: StopSignals, tamper: Tamper, spent: bool
) -> None:
    with serving(Authority()) as server:
        server.tamper = tamper

        outcome = called(server.url, dial("bootstrap", server.authority), stops)

    assert outcome == ConnectFailed(code=ErrorCode.CONNECTION_LOST, credential_spent=spent)


def test_call_ends_with_its_time_when_the_peer_says_nothing(stops: StopSignals) -> None:
    class Silent(PeerServer):
        def _read(self, descriptor: int) -> None:
            endpoint, _ = self._sockets[descriptor]
            endpoint.recv(1 << 16)

    server = Silent(Authority())
    server.start()

    outcome = called(server.url, dial("bootstrap", Authority(), timeout_ms=50), stops)

    server.stop()
    assert outcome == ConnectFailed(code=ErrorCode.PEER_TIMEOUT)


def test_stop_ends_a_call_before_the_proof_has_left(stops: StopSignals) -> None:
    stops.install()
    os.kill(os.getpid(), signal.SIGTERM)

    with serving(Authority()) as server:
        outcome = called(server.url, dial("bootstrap", server.authority), stops)

    assert outcome == ConnectFailed(code=ErrorCode.CONNECTION_LOST)
    assert stops.take() == [StopRequested(signal=signal.SIGTERM, count=1)]


def test_stop_waits_for_the_welcome_once_the_proof_has_left(stops: StopSignals) -> None:
    stops.install()

    def stop_now(response: bytes) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return True

    with serving(Authority()) as server:
        server.tamper = Tamper(response=stop_now)

        outcome = called(server.url, dial("bootstrap", server.authority), stops)

    assert isinstance(outcome, Call)
    assert stops.is_waiting
    outcome.endpoint.close()


def test_stops_are_counted_in_order_and_taken_once(stops: StopSignals) -> None:
    stops.install()

    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)

    assert sorted(stop.signal for stop in stops.take()) == [signal.SIGINT, signal.SIGTERM]
    assert stops.take() == []
    os.kill(os.getpid(), signal.SIGTERM)
    assert stops.take() == [StopRequested(signal=signal.SIGTERM, count=3)]
