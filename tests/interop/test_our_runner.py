"""Our daemon, launched by the upstream controller's own spawnRunner, against that controller."""

import os
import sys
from pathlib import Path

import msgspec
import pytest

from tests.interop.peers import Missing, UpstreamController, upstream_controller
from tests.interop.test_upstream_peers import IDENTITY, open_plane
from tests.interop.upstream.client import Driver, Snapshot, upstream_driver

pytestmark = pytest.mark.interop

AGENT = Path(__file__).with_name("line_agent.py")
RUNNERD = Path(sys.executable).with_name("runnerd")
LINES = 500


@pytest.fixture
def controller() -> UpstreamController:
    peer = upstream_controller()
    if isinstance(peer, Missing):
        pytest.skip(peer.reason)
    return peer


def barrier(path: Path) -> Path:
    os.mkfifo(path)
    return path


def open_barrier(path: Path) -> None:
    """Let the agent pass; it is waiting there, or will be."""
    with path.open("w"):
        pass


async def start_agent(driver: Driver, lines: int, *barriers: Path) -> None:
    """Prepare the run and start its first turn; each command must complete."""
    program = [sys.executable, str(AGENT), str(lines), *map(str, barriers)]
    provider = {"kind": "command", "argv": program, "cwd": "/"}
    await completed(driver, "run.prepare", {"provider": provider})
    await completed(driver, "session.open")
    await completed(driver, "turn.start")


async def completed(driver: Driver, command_type: str, payload: object = None) -> None:
    queued = await driver.queue(command_type, {} if payload is None else payload)
    command = await driver.until_settled(queued.command_id)
    assert command.status == "completed", command.result
    assert command.result is not None
    result = command.result["result"]
    assert isinstance(result, dict)
    assert result["logicalEffectCount"] == 1


async def until_line(driver: Driver, number: int) -> None:
    await driver.until(lambda seen: f"line {number}\n" in lines_of(seen.event))


def lines_of(event: dict[str, object] | None) -> list[str]:
    """Return the lines in an event: several if they were printed while nobody was connected."""
    if event is None or event["eventType"] != "item.delta":
        return []
    payload = msgspec.convert(event["payload"], dict[str, object])
    return str(payload["text"]).splitlines(keepends=True)


def texts(snapshot: Snapshot) -> list[str]:
    found: list[str] = []
    for event in snapshot.events:
        assert event.envelope is not None
        found += lines_of(msgspec.convert(event.envelope["payload"], dict[str, object]))
    return found


def types(snapshot: Snapshot) -> list[str]:
    return [event.event_type for event in snapshot.events]


async def test_our_runner_completes_a_run_of_500_lines_over_a_drop_and_a_kill(
    controller: UpstreamController, tmp_path: Path
) -> None:
    first, second = barrier(tmp_path / "first"), barrier(tmp_path / "second")
    async with upstream_driver(controller) as driver:
        await open_plane(driver, tmp_path / "controller")
        launched = await driver.launch("runner", RUNNERD, tmp_path / "runner")
        await driver.until(lambda seen: seen.connection_count == 1)
        await start_agent(driver, LINES, first, second)

        await until_line(driver, LINES // 3)
        await driver.disconnect()
        await driver.until(lambda seen: seen.connection_count == 2)
        open_barrier(first)

        await until_line(driver, LINES // 3 * 2)
        await driver.kill("runner")
        killed = await driver.until_exit("runner")
        await driver.restart("runner")
        await driver.until(
            lambda seen: seen.event is not None and seen.event["eventType"] == "turn.interrupted"
        )
        await completed(driver, "turn.start")
        await driver.until(
            lambda seen: seen.event is not None and seen.event["eventType"] == "run.terminal"
        )
        await completed(driver, "runner.shutdown")
        ended = await driver.until_exit("runner", nth=2)
        snapshot = await driver.snapshot(envelopes=True)

    assert "--fake-harness" in launched.args
    assert killed.signal == "SIGKILL"
    assert (ended.code, ended.stdout) == (0, "")
    assert texts(snapshot) == [f"line {number}\n" for number in range(1, LINES + 1)]
    assert [event.source_seq for event in snapshot.events] == list(
        range(1, snapshot.acked_source_seq + 1)
    )
    assert all(event.logical_effect_count == 1 for event in snapshot.events)
    assert types(snapshot).count("runner.reconciled") == 1
    assert types(snapshot).count("run.terminal") == 1
    assert types(snapshot)[-1] == "run.terminal"
    assert (snapshot.malformed_frames, snapshot.fresh_bootstraps) == (0, 2)


async def test_our_runner_keeps_process_and_turn_over_a_controller_restart(
    controller: UpstreamController, tmp_path: Path
) -> None:
    gate = barrier(tmp_path / "gate")
    async with upstream_driver(controller) as driver:
        opened = await open_plane(driver, tmp_path / "controller")
        await driver.launch("runner", RUNNERD, tmp_path / "runner")
        await driver.until(lambda seen: seen.connection_count == 1)
        await start_agent(driver, 20, gate)
        await until_line(driver, 10)

        await driver.stop()
        open_barrier(gate)
        await open_plane(driver, tmp_path / "controller", opened.port)
        await driver.until(
            lambda seen: seen.event is not None and seen.event["eventType"] == "run.terminal"
        )
        await completed(driver, "runner.shutdown")
        ended = await driver.until_exit("runner")
        snapshot = await driver.snapshot(envelopes=True)

    assert ended.code == 0
    assert texts(snapshot) == [f"line {number}\n" for number in range(1, 21)]
    assert snapshot.fresh_bootstraps == 1
    assert "runner.reconciled" not in types(snapshot)


async def test_our_runner_sends_the_same_bytes_again_when_the_ack_was_withheld(
    controller: UpstreamController, tmp_path: Path
) -> None:
    async with upstream_driver(controller) as driver:
        await open_plane(driver, tmp_path / "controller")
        await driver.launch("runner", RUNNERD, tmp_path / "runner")
        await driver.until(lambda seen: seen.connection_count == 1)
        await driver.hold_commits()
        await driver.queue("runner.drain")
        await driver.until(lambda seen: "completed" in seen.commands.values())

        await driver.disconnect()
        await driver.release_commits()
        await driver.until(lambda seen: seen.connection_count == 2)
        await driver.until(lambda seen: seen.acked_source_seq == 1)
        await completed(driver, "runner.shutdown")
        await driver.until_exit("runner")
        snapshot = await driver.snapshot(envelopes=True)

    assert types(snapshot) == ["runner.draining"]
    assert snapshot.malformed_frames == 0


async def test_our_runner_renews_its_lease_at_half_life_without_a_second_connection(
    controller: UpstreamController, tmp_path: Path
) -> None:
    async with upstream_driver(controller) as driver:
        await open_plane(driver, tmp_path / "controller")
        await driver.launch("runner", RUNNERD, tmp_path / "runner")
        granted = await driver.until(
            lambda seen: seen.connection_count == 1 and seen.lease_expires_at is not None
        )

        await driver.until(
            lambda seen: seen.lease_expires_at not in (None, granted.lease_expires_at)
        )
        await completed(driver, "runner.shutdown")
        ended = await driver.until_exit("runner")
        snapshot = await driver.snapshot()

    assert ended.code == 0
    assert snapshot.connection_count == 1
    assert snapshot.identity == IDENTITY


async def test_our_runner_ends_by_name_when_upstream_revoked_its_lease(
    controller: UpstreamController, tmp_path: Path
) -> None:
    async with upstream_driver(controller) as driver:
        await open_plane(driver, tmp_path / "controller")
        await driver.launch("runner", RUNNERD, tmp_path / "runner", {"reconnectGraceMs": 2_000})
        await driver.until(lambda seen: seen.connection_count == 1)

        await driver.revoke()
        await driver.disconnect()
        ended = await driver.until_exit("runner")

    assert ended.code == 69
    assert "transport_reconnect_grace_exceeded" in ended.stderr
    assert "Traceback" not in ended.stderr
