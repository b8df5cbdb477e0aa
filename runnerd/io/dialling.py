"""One call to the controller on a blocking thread, from TCP to the welcome.

It decides which address is tried and how long each step may take. It refuses to decide
whether to try again: that is the core's.
"""

import select
import socket
from collections.abc import Sequence
from typing import Final

from protocol.base.clock import MonoMs
from protocol.base.ports import Clock
from protocol.errors import ErrorCode, PrpError
from protocol.limits import HANDSHAKE_STEP_TIMEOUT_MS, TCP_CONNECT_TIMEOUT_MS
from runnerd.core.actions import Dial
from runnerd.core.inputs import Connected, ConnectFailed, ControlReceived
from runnerd.io.caller import Caller
from runnerd.io.link import Fact, Link, Phase
from runnerd.io.resolver import Address, NotResolved
from runnerd.io.signals import StopSignals

_READ_BYTES: Final = 64 * 1024


class Call:
    """A welcomed connection: its socket, which does not block, and what is known of it."""

    def __init__(self, endpoint: socket.socket, link: Link, facts: Sequence[Fact]) -> None:
        welcomed, *further = facts
        assert isinstance(welcomed, Connected), "a welcome comes before all else"
        self.endpoint = endpoint
        self.link = link
        self.connected = welcomed
        self.further = tuple(fact for fact in further if isinstance(fact, ControlReceived))


def call(caller: Caller, dial: Dial, clock: Clock, stops: StopSignals) -> Call | ConnectFailed:
    """Try the destination's addresses in order, and shake hands with the first that answers.

    A request to stop ends the call as ``connection_lost``, until the proof has left: then
    the ticket may be spent, and the welcome is worth its short wait.

    Source: prp-wire 3, runner-behaviour 10.
    """
    deadline = MonoMs(clock.now().mono_ms + dial.timeout_ms)
    try:
        addresses = caller.addresses()
    except NotResolved:
        return ConnectFailed(code=ErrorCode.CONNECTION_LOST)
    except PrpError as error:
        return ConnectFailed(code=error.code)
    endpoint = _connect_to_one(addresses, deadline, clock, stops)
    if endpoint is None:
        return ConnectFailed(code=ErrorCode.CONNECTION_LOST)
    link = caller.link(dial)
    try:
        facts = _shake_hands(endpoint, link, deadline, clock, stops)
    except OSError:
        link.end()
        facts = []
    if not facts:
        endpoint.close()
        assert link.failure is not None, "a call without a welcome has failed"
        return ConnectFailed(code=link.failure, credential_spent=link.credential_spent)
    return Call(endpoint, link, facts)


def wait_for(
    sockets: Sequence[tuple[socket.socket, int]], stops: StopSignals | None, timeout_ms: int
) -> bool:
    """Wait until a socket is ready for its poll events or the time is over.

    Args:
        stops: if given, a request to stop ends the wait as well.

    Returns:
        True if a socket is ready.
    """
    poll = select.poll()
    if stops is not None:
        poll.register(stops.descriptor, select.POLLIN)
    for waiting, events in sockets:
        poll.register(waiting, events)
    ready = poll.poll(timeout_ms)
    return any(stops is None or descriptor != stops.descriptor for descriptor, _ in ready)


def _connect_to_one(
    addresses: Sequence[Address], deadline: MonoMs, clock: Clock, stops: StopSignals
) -> socket.socket | None:
    for address in addresses:
        left_ms = min(TCP_CONNECT_TIMEOUT_MS, deadline - clock.now().mono_ms)
        if left_ms <= 0 or stops.is_waiting:
            return None
        if (endpoint := _connect(address, left_ms, stops)) is not None:
            return endpoint
    return None


def _connect(address: Address, timeout_ms: int, stops: StopSignals) -> socket.socket | None:
    endpoint = new_socket(address)
    if endpoint is None:
        return None
    try:
        endpoint.connect_ex((address.host, address.port))
        is_decided = wait_for([(endpoint, select.POLLOUT)], stops, timeout_ms)
        if is_decided and endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
            return endpoint
    except OSError:
        # An unreachable network and a refused connection are told apart by nobody here.
        pass
    endpoint.close()
    return None


def new_socket(address: Address) -> socket.socket | None:
    """Return an unconnected socket that neither blocks nor delays small frames.

    None if there are no more descriptors, or none of that family on this machine.
    """
    try:
        endpoint = socket.socket(address.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        return None
    return endpoint


def _shake_hands(
    endpoint: socket.socket, link: Link, deadline: MonoMs, clock: Clock, stops: StopSignals
) -> list[Fact]:
    """Move bytes until the welcome, or until ``link`` has failed; then there are no facts."""
    facts: list[Fact] = []
    unsent = bytearray()
    phase, step_deadline = link.phase, _step_deadline(deadline, clock)
    while link.phase is not Phase.OPEN:
        for chunk in link.outgoing():
            unsent += chunk
        if link.failure is not None:
            return []
        _send_some(endpoint, unsent)
        left_ms = step_deadline - clock.now().mono_ms
        if left_ms <= 0:
            link.fail(ErrorCode.PEER_TIMEOUT)
            return []
        events = select.POLLIN | (select.POLLOUT if unsent else 0)
        may_stop = link.phase is not Phase.WELCOME
        is_ready = wait_for([(endpoint, events)], stops if may_stop else None, left_ms)
        if may_stop and stops.is_waiting:
            link.fail(ErrorCode.CONNECTION_LOST)
            return []
        if is_ready:
            facts += _receive(endpoint, link, clock)
        if link.phase is not phase:
            phase, step_deadline = link.phase, _step_deadline(deadline, clock)
    return facts


def _step_deadline(deadline: MonoMs, clock: Clock) -> MonoMs:
    return min(deadline, MonoMs(clock.now().mono_ms + HANDSHAKE_STEP_TIMEOUT_MS))


def _send_some(endpoint: socket.socket, unsent: bytearray) -> None:
    if unsent:
        try:
            del unsent[: endpoint.send(unsent)]
        except BlockingIOError:
            return


def _receive(endpoint: socket.socket, link: Link, clock: Clock) -> list[Fact]:
    try:
        data = endpoint.recv(_READ_BYTES)
    except BlockingIOError:
        return []
    if not data:
        link.end()
        return []
    return link.receive(data, clock.now())
