"""The fetched peers work with each other, so that a failure of ours is not one of theirs."""

from pathlib import Path

import msgspec
import pytest

from tests.interop.peers import Missing, upstream_controller, upstream_runner
from tests.interop.upstream.client import Driver, DriverFailed, Opened, upstream_driver

pytestmark = pytest.mark.interop

VERSION = "0.1.0"
DIGEST = f"sha256:{'0' * 64}"
IDENTITY = {
    "runnerInstanceId": "runner_1",
    "environmentLeaseId": "environment_1",
    "runId": "run_1",
    "normalizedSessionId": "session_1",
    "turnId": "turn_1",
    "itemId": "item_1",
}


async def open_plane(driver: Driver, state: Path, port: int = 0) -> Opened:
    return await driver.open(
        state_directory=state,
        identity=IDENTITY,
        runner_version=VERSION,
        runner_digest=DIGEST,
        port=port,
    )


def test_upstream_runner_starts_and_states_the_protocol_when_asked_for_its_build() -> None:
    runner = upstream_runner()
    if isinstance(runner, Missing):
        pytest.skip(runner.reason)

    metadata = msgspec.json.decode(runner.build_metadata, type=dict[str, object])

    assert metadata["prp"] == {
        "maximumVersion": 2,
        "minimumVersion": 1,
        "name": "paperclip.runner",
    }


async def test_upstream_controller_keeps_its_commands_when_stopped_and_opened_again(
    tmp_path: Path,
) -> None:
    controller = upstream_controller()
    if isinstance(controller, Missing):
        pytest.skip(controller.reason)

    async with upstream_driver(controller) as driver:
        opened = await open_plane(driver, tmp_path / "controller")
        queued = await driver.queue("runner.drain")
        await driver.stop()
        again = await open_plane(driver, tmp_path / "controller", opened.port)
        snapshot = await driver.snapshot()

    assert again == opened
    assert snapshot.identity == IDENTITY
    assert [(each.command_id, each.status) for each in snapshot.commands] == [
        (queued.command_id, "pending")
    ]


async def test_driver_answers_with_the_reason_when_an_operation_is_impossible() -> None:
    controller = upstream_controller()
    if isinstance(controller, Missing):
        pytest.skip(controller.reason)

    async with upstream_driver(controller) as driver:
        with pytest.raises(DriverFailed, match="no control plane is open"):
            await driver.snapshot()


async def test_upstream_peers_reconnect_and_shut_down_when_the_socket_is_dropped(
    tmp_path: Path,
) -> None:
    controller = upstream_controller()
    runner = upstream_runner()
    if isinstance(controller, Missing):
        pytest.skip(controller.reason)
    if isinstance(runner, Missing):
        pytest.skip(runner.reason)

    async with upstream_driver(controller) as driver:
        opened = await open_plane(driver, tmp_path / "controller")
        launched = await driver.launch("runner", runner.executable, tmp_path / "runner")
        await driver.until(lambda seen: seen.connection_count == 1)
        await driver.disconnect()
        await driver.until(lambda seen: seen.connection_count == 2)
        queued = await driver.queue("runner.shutdown")
        command = await driver.until_settled(queued.command_id)
        ended = await driver.until_exit("runner")
        snapshot = await driver.snapshot()

    assert launched.args[:2] == ("--connect-url", opened.connect_url)
    assert "PAPERCLIP_RUNNER_BOOTSTRAP_TICKET" in launched.environment_names
    # Without a provider the result is a failure; its acknowledgement lets the runner exit with 0.
    assert command.status == "failed"
    assert command.result is not None
    assert command.result["result"] == {
        "code": "command_execution_failed",
        "message": "run.prepare must select a provider before provider commands execute",
    }
    assert ended.code == 0
    assert snapshot.fresh_bootstraps == 1
    assert [lease.revoked_at for lease in snapshot.leases] == [None]


async def test_upstream_runner_starts_again_with_a_fresh_ticket_when_it_was_killed(
    tmp_path: Path,
) -> None:
    controller = upstream_controller()
    runner = upstream_runner()
    if isinstance(controller, Missing):
        pytest.skip(controller.reason)
    if isinstance(runner, Missing):
        pytest.skip(runner.reason)

    async with upstream_driver(controller) as driver:
        await open_plane(driver, tmp_path / "controller")
        await driver.launch("runner", runner.executable, tmp_path / "runner")
        await driver.until(lambda seen: seen.connection_count == 1)
        await driver.kill("runner")
        killed = await driver.until_exit("runner")
        await driver.restart("runner")
        reconciled = await driver.until(lambda seen: seen.event is not None)
        queued = await driver.queue("runner.shutdown")
        await driver.until_settled(queued.command_id)
        ended = await driver.until_exit("runner", nth=2)

    assert killed.signal == "SIGKILL"
    assert reconciled.event is not None
    assert reconciled.event["eventType"] == "runner.reconciled"
    assert ended.code == 0
