"""Every input in every state: what the core answers, and that it never does anything else.

Under each input the table has states and what leaves in them: `-` nothing, `close` with the
connection and code, `reply` with the code of a refusal, messages by kind. A star marks a new
revision; `others` are the states not named above it.
"""

from typing import Final

import pytest

from controller_mock.core.actions import (
    Action,
    CallTool,
    CloseConnection,
    OpenChannel,
    Publish,
    Reply,
    SendControl,
    SendPlain,
)
from controller_mock.core.inputs import Input
from controller_mock.core.step import next_deadline
from tests.controller_mock.core.situations import INPUTS, STATES
from tests.controller_mock.core.world import World

TABLE: Final = """\
issue
    others: reply*
hello ticket
    new: close2:credential_unknown
    ticketed challenged: challenge
    others: close2:credential_used
hello fresh
    new ticketed challenged: close2:credential_unknown
    busy ending latched expired alone restored: challenge
    flushing delivering: close2:credential_revoked
hello lease
    new ticketed challenged: close2:credential_unknown
    busy ending latched alone restored: challenge
    flushing delivering: close2:credential_revoked
    expired: close2:credential_expired
hello nobody
    others: close2:credential_unknown
hello again
    new ticketed: close1:credential_unknown
    alone restored: challenge
    others: close1:message_unexpected
answer
    challenged: Welcome*
    others: close1:message_unexpected
queue
    new ticketed challenged ending alone restored: reply*
    busy latched expired: reply Deliver*
    flushing delivering: reply:runner_revoked
queue bad
    flushing delivering: reply:runner_revoked
    others: reply:command_invalid
revoke
    new ticketed challenged alone restored: reply*
    busy ending latched expired: Revoke reply*
    flushing delivering: reply
ping
    new ticketed challenged alone restored: reply:connection_lost
    busy ending flushing delivering latched expired: Ping reply
event 1
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy ending flushing delivering: Ack*
    latched: close1:integrity_latched
    expired: close1:credential_expired
event 1 other
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy ending flushing delivering: close1:event_identity_conflict*
    latched: close1:integrity_latched
    expired: close1:credential_expired
event 3
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy flushing delivering: Ack*
    ending: close1:event_gap
    latched: close1:integrity_latched
    expired: close1:credential_expired
event 9
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy ending flushing delivering: close1:event_gap
    latched: close1:integrity_latched
    expired: close1:credential_expired
result out
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy flushing delivering latched: -*
    ending: close1:command_result_unknown
    expired: close1:credential_expired
result end
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy flushing delivering latched: close1:command_result_conflict
    ending: CommandResultAck*
    expired: close1:credential_expired
result old
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy flushing delivering latched: -*
    ending: close1:command_result_conflict
    expired: close1:credential_expired
result nobody
    new ticketed alone restored: -
    challenged: close1:message_unexpected
    busy ending flushing delivering latched: close1:command_result_unknown
    expired: close1:credential_expired
renew
    new ticketed ending flushing alone restored: -
    challenged: close1:message_unexpected
    busy latched: LeaseRenewed
    delivering: close1:lease_renewal_refused
    expired: close1:credential_expired
renew late
    new ticketed ending flushing alone restored: -
    challenged: close1:message_unexpected
    busy delivering latched: close1:lease_renewal_refused
    expired: close1:credential_expired
pong
    challenged: close1:message_unexpected
    expired: close1:credential_expired
    others: -
activated
    new ticketed alone restored: -
    challenged busy ending flushing delivering latched: close1:message_unexpected
    expired: close1:credential_expired
frame bad
    new ticketed challenged alone restored: close1:frame_not_authentic
    busy ending flushing delivering latched: close1:frame_not_authentic*
    expired: close1:credential_expired
digest bad
    new ticketed challenged latched alone restored: close1:semantic_digest_mismatch
    busy ending flushing delivering: close1:semantic_digest_mismatch*
    expired: close1:credential_expired
conflict
    new ticketed challenged alone restored: -*
    busy ending flushing delivering expired: close1:event_identity_conflict*
    latched: -
lost
    others: -
lost other
    others: -
time
    expired: close1:credential_expired
    others: -
"""


def _outcome(world: World, stimulus: Input) -> str:
    before = world.run.revision
    left = world.feed(stimulus)
    words = [word for action in left if (word := _word(action)) is not None]
    return (" ".join(words) or "-") + ("*" if world.run.revision > before else "")


def _word(action: Action) -> str | None:
    match action:
        case SendPlain():
            return "challenge"
        case OpenChannel() | Publish():
            return None
        case SendControl():
            return type(action.message).__name__
        case CloseConnection():
            return f"close{action.connection}:{action.code.value}"
        case CallTool():
            return "call"
        case Reply():
            return "reply" if action.code is None else f"reply:{action.code.value}"


def _cells() -> dict[tuple[str, str], str]:
    cells: dict[tuple[str, str], str] = {}
    name = ""
    for line in TABLE.splitlines():
        if line and not line.startswith(" "):
            name = line.strip()
        elif line:
            states, _, outcome = line.strip().partition(": ")
            named = STATES if states == "others" else states.split()
            for state in named:
                cells.setdefault((name, state), outcome)
    return cells


CELLS: Final = _cells()


def test_the_table_has_a_cell_for_every_pair() -> None:
    assert set(CELLS) == {(name, state) for name in INPUTS for state in STATES}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", INPUTS)
def test_an_input_does_what_the_table_says(name: str, state: str) -> None:
    world = STATES[state]()

    outcome = _outcome(world, INPUTS[name](world))

    assert outcome == CELLS[name, state]
    assert world.driver.staged.revision - world.driver.committed.revision in (0, 1)
    deadline = next_deadline(world.run)
    assert deadline is None or deadline >= world.now.mono_ms or state == "expired"
