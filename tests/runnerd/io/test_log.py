"""Tests of the log: which facts become lines, and that a line costs nobody anything."""

import json
import os

from protocol.envelope import Ack, Binding, Deliver, Welcome
from protocol.errors import ErrorCode
from protocol.ids import ConnectionId, RevocationEpoch, SourceSeq
from protocol.limits import LOG_LINE_BYTES_MAX
from protocol.secrets import Secret
from runnerd.core.actions import CloseConnection, SendEvent
from runnerd.core.inputs import Connected, ConnectFailed, ConnectionLost, ControlReceived
from runnerd.io.log import Log, StandardError
from tests.runnerd.peer import IDENTITY, LEASE_ID, LEASE_TOKEN, command

CONNECTION = ConnectionId("connection_1")
CONNECTED = Connected(
    binding=Binding(
        version=2, identity=IDENTITY, connection_id=CONNECTION, connection_lease_id=LEASE_ID
    ),
    welcome=Welcome(
        selected_version=2,
        connection_lease_id=LEASE_ID,
        connection_lease_expires_at_unix_ms=7,
        connection_lease_revocation_epoch=RevocationEpoch(1),
        acked_source_seq=SourceSeq(3),
    ),
    lease_token=Secret(LEASE_TOKEN),
    sent_at_unix_ms=None,
)


class Reader:
    """A log, and the other end of its pipe."""

    def __init__(self, level: str = "debug") -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.sink = StandardError(self.writing)
        self.log = Log(level, IDENTITY, self.sink)
        self.log.release()

    def lines(self) -> list[dict[str, object]]:
        """Return what was written since the last call."""
        try:
            data = os.read(self.reading, 1 << 20)
        except BlockingIOError:
            return []
        return [json.loads(line) for line in data.splitlines()]

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


def test_fact_is_one_line_with_identity_and_known_keys() -> None:
    reader = Reader()

    reader.log.heard(CONNECTED)

    (line,) = reader.lines()
    assert line.pop("timestamp")
    assert line == {
        "event": "connected",
        "level": "info",
        "runner_instance_id": "runner_1",
        "run_id": "run_1",
        "session_id": "session_1",
        "connection": "connection_1",
        "version": 2,
        "lease_id": "lease_1",
        "expires_at_unix_ms": 7,
        "source_seq": 3,
    }
    reader.close()


def test_body_of_a_command_is_no_part_of_its_fact() -> None:
    reader = Reader()
    delivered = Deliver(command(1, "run.prepare", {"hidden": "hunter2"}))

    reader.log.heard(ControlReceived(connection_id=CONNECTION, message=delivered))

    (line,) = reader.lines()
    assert "hunter2" not in json.dumps(line)
    assert (line["event"], line["command_id"]) == ("command_received", "command_1")
    reader.close()


def test_unknown_key_is_dropped_whoever_adds_it() -> None:
    reader = Reader()

    reader.log.noted("state_write_failed", reason="full", body="hunter2")

    (line,) = reader.lines()
    assert "body" not in line
    assert line["reason"] == "full"
    reader.close()


def test_reason_that_quotes_a_credential_is_redacted() -> None:
    reader = Reader()

    reader.log.noted("peer_refused", code="message_invalid", reason="password=hunter2 is odd")

    (line,) = reader.lines()
    assert "hunter2" not in json.dumps(line)
    reader.close()


def test_facts_wait_until_the_first_attempt_has_ended_and_keep_their_order() -> None:
    reader = Reader()
    log = Log("debug", IDENTITY, reader.sink)

    log.noted("flags_ignored", flags=["--fake-harness"])
    before = reader.lines()
    log.heard(CONNECTED)

    assert before == []
    assert [line["event"] for line in reader.lines()] == ["flags_ignored", "connected"]
    reader.close()


def test_fact_below_the_level_is_no_line() -> None:
    reader = Reader("warning")
    acknowledged = ControlReceived(connection_id=CONNECTION, message=Ack(SourceSeq(1)))

    reader.log.heard(CONNECTED)
    reader.log.heard(acknowledged)
    reader.log.ordered(SendEvent(CONNECTION, SourceSeq(1), b"{}"))
    reader.log.ordered(CloseConnection(CONNECTION, ErrorCode.ACK_REGRESSED))

    assert [line["event"] for line in reader.lines()] == ["closing_connection"]
    reader.close()


def test_last_failure_stands_until_a_connection_does() -> None:
    reader = Reader("error")

    reader.log.heard(ConnectFailed(code=ErrorCode.PROOF_INVALID))
    failed = reader.log.last_failure
    reader.log.heard(CONNECTED)
    connected = reader.log.last_failure
    reader.log.heard(ConnectionLost(CONNECTION, ErrorCode.PEER_TIMEOUT))

    assert (failed, connected) == (ErrorCode.PROOF_INVALID, None)
    assert reader.log.last_failure is ErrorCode.PEER_TIMEOUT
    reader.close()


def test_lines_that_nobody_reads_are_lost_and_never_waited_for() -> None:
    reader = Reader()

    for _ in range(100):
        reader.sink.write_line("x" * (LOG_LINE_BYTES_MAX - 1))

    assert reader.sink.lost_lines > 0
    reader.close()


def test_closed_standard_error_is_survived() -> None:
    reader = Reader()
    os.close(reader.reading)

    reader.sink.write_line("nobody hears this")

    assert reader.sink.lost_lines == 1
    os.close(reader.writing)


def test_line_is_cut_to_what_a_pipe_takes_at_once() -> None:
    reader = Reader()

    reader.sink.write_line("ü" * LOG_LINE_BYTES_MAX)

    assert len(os.read(reader.reading, 1 << 20)) == LOG_LINE_BYTES_MAX
    reader.close()
