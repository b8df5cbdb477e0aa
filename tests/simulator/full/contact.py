"""The first contact of a simulated runner: one call over virtual sockets.

It decides when a call is over, as the product's dialling does. It refuses to know what
follows a welcome: the node does.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from protocol.errors import ErrorCode
from protocol.limits import CONNECTION_ATTEMPT_TIMEOUT_MS, HANDSHAKE_STEP_TIMEOUT_MS
from runnerd.core.actions import Dial
from runnerd.core.inputs import ConnectFailed
from runnerd.io.link import Fact, Link, Phase
from tests.simulator.full.network import Transport

if TYPE_CHECKING:
    from tests.simulator.full.runner_node import RunnerNode

_MS: Final = 1000


class Contact(asyncio.Protocol):
    """One call of the first contact, as `dialling.call` makes it."""

    def __init__(self, node: "RunnerNode", dial: Dial) -> None:
        self.node = node
        self.facts: list[Fact] = []
        self._dial = dial
        self._transport: Transport | None = None
        self._link: Link | None = None
        self._is_over = False
        loop = node.loop
        timeout_ms = min(dial.timeout_ms, CONNECTION_ATTEMPT_TIMEOUT_MS)
        self._deadline = loop.call_later(timeout_ms / _MS, self.fail, ErrorCode.PEER_TIMEOUT)
        self._step: asyncio.TimerHandle | None = None
        node.side.dial(loop, self._connected)

    @property
    def transport(self) -> Transport:
        """The socket; there is one once the call has got through."""
        assert self._transport is not None
        return self._transport

    @property
    def link(self) -> Link:
        """The link over it."""
        assert self._link is not None
        return self._link

    def _connected(self, transport: Transport | None) -> None:
        if self._is_over:
            if transport is not None:
                transport.set_protocol(self)
                transport.abort()
            return
        if transport is None:
            self._report(ErrorCode.CONNECTION_LOST, spent=False)
            return
        self._transport = transport
        transport.set_protocol(self)
        self._link = self.node.caller.link(self._dial)
        self._wait_for_step()
        self._flush()

    def _wait_for_step(self) -> None:
        if self._step is not None:
            self._step.cancel()
        self._step = self.node.loop.call_later(
            HANDSHAKE_STEP_TIMEOUT_MS / _MS, self.fail, ErrorCode.PEER_TIMEOUT
        )

    def _flush(self) -> None:
        if chunks := self.link.outgoing():
            self.transport.writelines(chunks)
        if self.link.failure is not None:
            self.fail(self.link.failure)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        phase = self.link.phase
        self.facts += self.link.receive(data, self.node.side.runner_machine.now())
        if self.link.phase is not phase:
            self._wait_for_step()
        # A welcome counts even if something behind it in the same bytes broke the link.
        if self.link.phase is Phase.OPEN:
            self._finish()
            self.node.contacted(self)
        else:
            self._flush()

    def eof_received(self) -> None:
        self.fail(ErrorCode.CONNECTION_LOST)

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(ErrorCode.CONNECTION_LOST)

    def fail(self, code: ErrorCode) -> None:
        """End the call without a welcome."""
        if self._is_over:
            return
        if self._transport is None:
            self._report(ErrorCode.CONNECTION_LOST, spent=False)
            return
        self.link.fail(code)
        assert self.link.failure is not None
        self._report(self.link.failure, spent=self.link.credential_spent)
        self.transport.abort()

    def _report(self, code: ErrorCode, *, spent: bool) -> None:
        self._finish()
        self.node.contact_failed(ConnectFailed(code=code, credential_spent=spent))

    def _finish(self) -> None:
        self._is_over = True
        self._deadline.cancel()
        if self._step is not None:
            self._step.cancel()
