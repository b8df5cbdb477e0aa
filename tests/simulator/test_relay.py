"""The hostile relay: what it does to texts that nobody may stumble over, itself included."""

import pytest

from tests.simulator.draws import Draws
from tests.simulator.full.network import Chunk, Connection
from tests.simulator.full.relay import DEEDS, HOSTILE, Relay, alter
from tests.simulator.full.sealed import frame


def connection_with(text: bytes) -> Connection:
    """Return a connection on which one message is on its way to the server."""
    connection = Connection(1, None, None)
    connection.to_server.chunks.append(Chunk(frame(text), 0))
    return connection


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_relay_can_do_each_of_its_deeds_to_each_of_its_hostile_texts(text: bytes) -> None:
    stream = Draws(0, {}).stream("net")
    for deed in dict.fromkeys(DEEDS):
        relay, connection = Relay(), connection_with(text)
        relay.record(frame(text), is_client=True)

        deed(stream, connection, connection.to_server, 0, relay)


def test_relay_changes_one_member_of_a_plain_message_and_frames_it_anew() -> None:
    stream = Draws(0, {}).stream("net")
    connection = connection_with(b'{"kind":"auth_hello","payload":{"clientNonce":"ab"}}')

    has_changed = alter(stream, connection, connection.to_server, 0, Relay())

    assert has_changed
    assert b"ab" not in connection.to_server.chunks[0].data
