"""A runner core under a test's control: the real step, the real driver, a disk that obeys."""

from typing import Never

import msgspec

from protocol.base.clock import MonoMs, Now, UnixMs
from protocol.base.driver import Driver
from protocol.canonical_json import JsonValue
from protocol.commands import CommandResult, WireCommand
from protocol.envelope import Ack, Binding, ControlMessage, Deliver, Welcome
from protocol.ids import (
    CommandId,
    ConnectionId,
    ControllerSeq,
    Generation,
    Identity,
    LeaseId,
    RevocationEpoch,
    SourceSeq,
)
from protocol.process_birth import ProcessBirth
from protocol.secrets import Secret
from runnerd.core import recovery, state_codec, step
from runnerd.core.actions import Action, Exit, SendEvent, SendResult
from runnerd.core.inputs import (
    Connected,
    ControlReceived,
    HarnessExited,
    HarnessLogs,
    HarnessOutput,
    HarnessSpawned,
    Input,
    OrphanSettled,
    ProcessExit,
    Started,
)
from runnerd.core.state import Boot, Durable, Runner, Settings

IDENTITY = Identity(
    runner_instance_id="runner_1",
    environment_lease_id="envlease_1",
    run_id="run_1",
    normalized_session_id="session_1",
    turn_id="turn_1",
    item_id="item_1",
)
SETTINGS = Settings(
    identity=IDENTITY,
    runner_version="1.0.0",
    runner_digest="sha256:" + "0" * 64,
    max_outbox_bytes=16 * 2**20,
    p0_reserve_bytes=2**20,
    max_frame_bytes=2**20,
    reconnect_delay_ms=250,
    reconnect_grace_ms=10_000,
    max_runtime_ms=0,
    bootstrap_deadline_ms=60_000,
)
STATE_ID = "5" * 32
WALL = 1_800_000_000_000
LEASE_MS = 30_000
BIRTH = ProcessBirth(pid=4242, process_group_id=4242, session_id=4242, start_ticks=1, boot_id="b")


class World:
    """Feeds inputs, writes when asked, and records every action in the order it left."""

    def __init__(
        self,
        durable: Durable | None = None,
        settings: Settings = SETTINGS,
        orphan: OrphanSettled | None = None,
        started: Started | None = None,
    ) -> None:
        self.mono = 1_000_000
        self.settings = settings
        boot = Boot(state_id=STATE_ID, jitter_seed=7, now=self.now)
        initial = recovery.start(settings, durable, boot)
        self.driver: Driver[Runner, Input, Action, Never] = Driver(initial, step.step)
        self.left: list[Action] = []
        self.stored: bytes | None = None
        self.writes = 0
        self.connections = 0
        self.commands = 0
        self.feed(Started(orphan) if started is None else started)

    @property
    def now(self) -> Now:
        return Now(UnixMs(WALL + self.mono), MonoMs(self.mono))

    @property
    def durable(self) -> Durable:
        return self.driver.staged.durable

    @property
    def runner(self) -> Runner:
        return self.driver.staged

    def feed(self, *stimuli: Input) -> list[Action]:
        """Feed inputs as one batch, then write and act until nothing is left to do."""
        for stimulus in stimuli:
            self.driver.feed(stimulus, self.now)
        return self.settle()

    def settle(self) -> list[Action]:
        start = len(self.left)
        while True:
            if (write := self.driver.next_write()) is not None:
                self.stored = state_codec.encode(write.state.durable)
                self.writes += 1
                self.driver.wrote()
            action = self.driver.next_action()
            if action is None:
                return self.left[start:]
            self.left.append(action)

    def connect(
        self,
        *,
        acked: int | None = None,
        pending: tuple[WireCommand, ...] = (),
        bootstrap: bool = True,
        lease_ms: int = LEASE_MS,
        renewal_version: int | None = 1,
        epoch: int | None = None,
    ) -> list[Action]:
        return self.feed(
            self.welcome(
                acked=acked,
                pending=pending,
                bootstrap=bootstrap,
                lease_ms=lease_ms,
                renewal_version=renewal_version,
                epoch=epoch,
            )
        )

    def welcome(
        self,
        *,
        acked: int | None = None,
        pending: tuple[WireCommand, ...] = (),
        bootstrap: bool = True,
        lease_ms: int = LEASE_MS,
        renewal_version: int | None = 1,
        epoch: int | None = None,
    ) -> Connected:
        self.connections += 1
        cursor = self.durable.acked_source_seq if acked is None else acked
        return Connected(
            binding=self.binding,
            welcome=Welcome(
                selected_version=2,
                connection_lease_id=LeaseId("lease_1"),
                connection_lease_expires_at_unix_ms=self.now.unix_ms + lease_ms,
                connection_lease_revocation_epoch=RevocationEpoch(
                    (self.durable.revocation_epoch or 0) if epoch is None else epoch
                ),
                connection_lease_renewal_version=renewal_version,
                acked_source_seq=SourceSeq(cursor),
                pending_commands=pending,
            ),
            lease_token=Secret("lease-token") if bootstrap else None,
            sent_at_unix_ms=self.now.unix_ms,
        )

    @property
    def binding(self) -> Binding:
        return Binding(
            version=2,
            identity=IDENTITY,
            connection_id=ConnectionId(f"connection_{self.connections}"),
            connection_lease_id=LeaseId("lease_1"),
        )

    def control(self, message: ControlMessage) -> list[Action]:
        return self.feed(self.received(message))

    def received(self, message: ControlMessage) -> ControlReceived:
        return ControlReceived(
            connection_id=self.binding.connection_id,
            message=message,
            sent_at_unix_ms=self.now.unix_ms,
        )

    def ack(self, seq: int | None = None) -> list[Action]:
        newest = self.durable.next_source_seq - 1
        return self.control(Ack(SourceSeq(newest if seq is None else seq)))

    def command(
        self, command_type: str, payload: JsonValue = None, /, **changes: object
    ) -> WireCommand:
        self.commands += 1
        command = WireCommand(
            schema="paperclip.prp.command.v1",
            command_id=CommandId(f"cmd_{self.commands}"),
            controller_seq=ControllerSeq(self.commands),
            type=command_type,
            issued_at="2026-01-02T03:04:05.678Z",
            payload=msgspec.Raw(msgspec.json.encode(payload if payload is not None else {})),
        )
        return msgspec.structs.replace(command, **changes)

    def deliver(self, command_type: str, payload: JsonValue = None) -> CommandResult:
        """Deliver a command and return its result, which must have left."""
        actions = self.control(Deliver(self.command(command_type, payload)))
        [result] = [action.result for action in actions if isinstance(action, SendResult)]
        return result

    def prepare(self) -> None:
        self.deliver("run.prepare", PREPARE)
        self.deliver("session.open")

    def start_turn(self) -> Generation:
        """Start a turn and let its program run; return the harness generation."""
        self.control(Deliver(self.command("turn.start")))
        generation = self.durable.generation
        self.feed(HarnessSpawned(generation, BIRTH))
        return generation

    def lines(self, *lines: str) -> list[Action]:
        return self.feed(HarnessOutput(self.durable.generation, lines))

    def exit(self, code: int | None = 0, signal: int | None = None) -> list[Action]:
        return self.feed(exited(self.durable.generation, code, signal))

    def later(self, milliseconds: int, stimulus: Input) -> list[Action]:
        self.mono += milliseconds
        return self.feed(stimulus)

    def events(self) -> list[dict[str, JsonValue]]:
        """Every event that was sent, decoded, in the order it left."""
        return [
            msgspec.json.decode(action.body)
            for action in self.left
            if isinstance(action, SendEvent)
        ]

    def event_types(self) -> list[JsonValue]:
        return [event["eventType"] for event in self.events()]

    def exits(self) -> list[Exit]:
        return [action for action in self.left if isinstance(action, Exit)]


PREPARE: dict[str, JsonValue] = {
    "provider": {"kind": "command", "argv": ["prog", "arg"], "cwd": "/tmp", "envNames": ["LANG"]}
}


def connected() -> World:
    """Return a world after its first welcome."""
    world = World()
    world.connect()
    return world


def running() -> World:
    """Return a connected world whose program runs."""
    world = connected()
    world.prepare()
    world.start_turn()
    return world


def exited(
    generation: Generation, code: int | None = 0, signal: int | None = None
) -> HarnessExited:
    return HarnessExited(
        generation=generation,
        exit=ProcessExit(exit_code=code, success=code == 0, signal=signal),
        logs=HarnessLogs(),
    )


def members(result: CommandResult) -> dict[str, JsonValue]:
    value: dict[str, JsonValue] = msgspec.json.decode(result.result)
    return value


def restarted(
    world: World,
    orphan: OrphanSettled | None = None,
    settings: Settings | None = None,
) -> World:
    """Return a new process on what the old one had made durable."""
    used = settings or world.settings
    assert world.stored is not None
    again = World(state_codec.load(world.stored, used), used, orphan)
    again.commands = world.durable.last_controller_command_seq
    return again
