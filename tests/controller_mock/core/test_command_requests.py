"""What may be queued."""

import msgspec
import pytest

from controller_mock.core.command_requests import NEXT_AUTHORITY
from protocol.codec import encode_control
from protocol.commands import (
    COMMAND_SCHEMA_V2,
    COMMAND_TYPES_V1,
    COMMAND_TYPES_V2_ONLY,
    Precondition,
)
from protocol.envelope import Binding
from protocol.errors import ErrorCode
from protocol.ids import ConnectionId, Identity, LeaseId
from protocol.limits import (
    BODY_BYTES_MAX,
    COMMANDS_PER_RUN_MAX,
    SEALED_PLAINTEXT_BYTES_MAX,
    WIRE_IDENTITY_LENGTH_MAX,
)
from tests.controller_mock.core.world import (
    World,
    connected,
    lease_of,
    messages_in,
    reply_in,
    result,
    welcome_in,
)


@pytest.mark.parametrize("type_", sorted(COMMAND_TYPES_V1 | COMMAND_TYPES_V2_ONLY))
def test_every_type_is_queued_under_the_schema_that_carries_it(type_: str) -> None:
    world = World()

    assert reply_in(world.queue(type_)).code is None

    schema = world.run.durable.open_commands[0].command.schema
    assert (schema == COMMAND_SCHEMA_V2) is (type_ in COMMAND_TYPES_V2_ONLY)


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "turn.dance"},
        {"payload": b"[]"},
        {"payload": b"null"},
        {"payload": b""},
        {"payload": b"{"},
        {"payload": b'{"a":1,"a":2}'},
        {"payload": b'{"a":NaN}'},
        {"payload": b'{"a":9007199254740993}'},
        {"payload": b'{"a":"\\ud800"}'},
        {"payload": b'{"a":"\xff"}'},
        {"payload": b'{}},{"x":{}'},
        {"command_id": ""},
        {"command_id": "two words"},
        {"command_id": "x" * 161},
        {"command_id": "line\n"},
        {"command_id": "\ud800"},
        {"type": "\ud800"},
        {"deadline_at": "\ud800"},
        {"command_id": "command_prp_00000002"},
        {"deadline_at": "tomorrow"},
        {"precondition": b"[]"},
        {"precondition": b'{"runnerState":"ready"}'},
        {"precondition": b"{"},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
def test_a_command_is_refused_when_no_runner_could_read_it(wrong: dict[str, object]) -> None:
    world = World()
    before = world.run

    left = world.feed(msgspec.structs.replace(world.requested(), **wrong))

    assert reply_in(left).code is ErrorCode.COMMAND_INVALID
    assert world.run == before


def test_a_command_carries_its_deadline_and_precondition() -> None:
    world = World()

    world.feed(
        world.requested(
            deadline_at="2026-01-02T03:04:05.678Z",
            precondition=b'{"runnerState":["ready"],"activeTurnId":"turn-1"}',
        )
    )

    command = world.run.durable.open_commands[0].command
    assert command.deadline_at == "2026-01-02T03:04:05.678Z"
    assert command.precondition == Precondition(runner_state=("ready",), active_turn_id="turn-1")


def test_an_attach_to_another_run_is_refused() -> None:
    world = World()
    payload = b'{"' + NEXT_AUTHORITY.encode() + b'":null}'

    assert reply_in(world.queue("run.attach", payload)).code is (
        ErrorCode.AUTHORITY_CHANGE_UNSUPPORTED
    )
    assert world.run.durable.last_controller_seq == 0
    assert reply_in(world.queue("run.attach", b"{}")).code is None
    assert reply_in(world.queue("turn.start", payload)).code is None


def test_the_largest_command_still_fits_a_sealed_welcome() -> None:
    world = connected("turn.start")
    lease = lease_of(1, welcome_in(world.sent))
    world.say(1, result(world.run.durable.open_commands[0].command))
    world.queue(payload=_text(BODY_BYTES_MAX - _overhead()))
    assert len(msgspec.json.encode(world.run.durable.open_commands[0].command)) == (BODY_BYTES_MAX)

    welcome = welcome_in(world.reconnect(2, lease))

    long = Identity(**dict.fromkeys(Identity.__struct_fields__, "x" * WIRE_IDENTITY_LENGTH_MAX))
    binding = Binding(
        version=2,
        identity=long,
        connection_id=ConnectionId("x" * WIRE_IDENTITY_LENGTH_MAX),
        connection_lease_id=LeaseId("x" * WIRE_IDENTITY_LENGTH_MAX),
    )
    welcome = msgspec.structs.replace(
        welcome,
        connection_lease_token="x" * WIRE_IDENTITY_LENGTH_MAX,
        connection_lease_id=LeaseId("x" * WIRE_IDENTITY_LENGTH_MAX),
        lease_binding=msgspec.Raw(msgspec.json.encode(long)),
    )
    plaintext = encode_control(binding, welcome, envelope_id="x" * 240, sent_at="x" * 24)
    assert len(plaintext) <= SEALED_PLAINTEXT_BYTES_MAX


@pytest.mark.parametrize("more", [1, 1_000_000])
def test_a_command_is_too_large_when_its_bytes_exceed_the_bound(more: int) -> None:
    world = World()

    left = world.queue(payload=_text(BODY_BYTES_MAX - _overhead() + more))

    assert reply_in(left).code is ErrorCode.COMMAND_TOO_LARGE
    assert world.run.durable.last_controller_seq == 0


@pytest.mark.parametrize(
    "payload",
    [b'{"a":' * 62 + b"1" + b"}" * 62, b'{"a":[' + b"0," * 9_990 + b"0]}"],
    ids=["depth", "nodes"],
)
def test_a_command_is_too_large_when_a_welcome_could_not_carry_its_values(payload: bytes) -> None:
    world = World()

    left = world.queue(payload=payload)

    assert reply_in(left).code is ErrorCode.COMMAND_TOO_LARGE


def test_the_queue_is_full_at_its_bound_and_has_room_again_after_a_result() -> None:
    world = connected(*["turn.start"] * COMMANDS_PER_RUN_MAX)

    assert reply_in(world.queue()).code is ErrorCode.COMMAND_QUEUE_FULL
    assert world.run.durable.last_controller_seq == COMMANDS_PER_RUN_MAX
    world.say(1, result(world.run.durable.open_commands[0].command))
    assert reply_in(world.queue()).controller_seq == COMMANDS_PER_RUN_MAX + 1


@pytest.mark.parametrize("settled", [False, True])
def test_a_known_id_is_answered_with_its_number_when_the_content_is_equal(settled: bool) -> None:
    world = connected()
    first = reply_in(world.feed(world.requested(command_id="mine", payload=b'{"a":1,"b":2}')))
    if settled:
        world.say(1, result(world.run.durable.open_commands[0].command))
    world.pass_time(1_000)
    before = world.run

    left = world.feed(world.requested(command_id="mine", payload=b'{ "b": 2, "a": 1 }'))

    assert messages_in(left) == []
    assert reply_in(left).controller_seq == first.controller_seq == 1
    assert reply_in(left).command_id == "mine"
    assert world.run == before


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("other", [{"payload": b'{"a":2}'}, {"type": "turn.stop"}], ids=str)
def test_a_known_id_is_refused_when_the_content_differs(
    settled: bool, other: dict[str, object]
) -> None:
    world = connected()
    world.feed(world.requested(command_id="mine", payload=b'{"a":1}'))
    if settled:
        world.say(1, result(world.run.durable.open_commands[0].command))

    wanted = world.requested(command_id="mine", payload=b'{"a":1}')
    left = world.feed(msgspec.structs.replace(wanted, **other))

    assert reply_in(left).code is ErrorCode.COMMAND_CONFLICT
    assert world.run.durable.last_controller_seq == 1


def test_a_callers_own_id_may_be_the_one_that_the_number_would_get() -> None:
    world = World()

    left = world.feed(world.requested(command_id="command_prp_00000001"))

    assert reply_in(left).controller_seq == 1


def _text(size: int) -> bytes:
    return b'{"t":"' + b"x" * (size - 8) + b'"}'


def _overhead() -> int:
    """Return how many bytes a numbered command has around its payload."""
    world = World()
    world.queue(payload=b"{}")
    return len(msgspec.json.encode(world.run.durable.open_commands[0].command)) - len(b"{}")
