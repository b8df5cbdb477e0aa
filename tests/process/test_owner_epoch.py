"""Two controllers on one store and its copy: a runner obeys the later start alone (K07, R7)."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from controller_mock.controller import Controller, open_controller
from controller_mock.core.view import RunView
from controller_mock.io.listener import Bound
from controller_mock.storage.sqlite import open_store
from protocol.ids import RunId
from tests.controller_mock.served import run_config
from tests.process.daemon import STATE_FILE, Daemon

pytestmark = pytest.mark.process

RUN = RunId("run-1")
WAIT_S = 20.0
PREPARE = {"provider": {"kind": "command", "argv": ["/bin/true"], "cwd": "/"}}


@contextlib.asynccontextmanager
async def controller(directory: Path, port: int = 0) -> AsyncGenerator[tuple[Controller, Bound]]:
    store = open_store(directory)
    try:
        async with open_controller(store) as running:
            yield running, await running.serve(port=port)
    finally:
        store.close()


async def runner(owner: Controller, url: str, state: Path, *more: str) -> Daemon:
    config = owner.config(RUN)
    identity = config.identity
    token = await owner.issue_ticket(RUN, 60_000)
    flags = {
        "--connect-url": url,
        "--state-dir": str(state),
        "--runner-id": identity.runner_instance_id,
        "--environment-lease-id": identity.environment_lease_id,
        "--run-id": identity.run_id,
        "--session-id": identity.normalized_session_id,
        "--turn-id": identity.turn_id,
        "--item-id": identity.item_id,
        "--runner-version": config.runner_version,
        "--runner-digest": config.runner_digest,
    }
    words = [word for flag in flags.items() for word in flag]
    return Daemon([*words, *more], ticket=bytes(token.reveal()).decode())


def is_connected(view: RunView) -> bool:
    return view.connected


def owner_in(state: Path) -> object:
    return json.loads((state / STATE_FILE).read_bytes())["content"]["owner"]


async def test_superseded_controller_is_refused_and_its_commands_have_no_effect(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    async with controller(tmp_path / "data") as (first, _):
        await first.create_run(run_config())
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    async with controller(tmp_path / "data") as (first, at):
        run = await runner(first, at.url, state)
        try:
            await first.wait_for(RUN, is_connected, WAIT_S)
            obeyed = await first.perform(RUN, "session.snapshot", timeout_s=WAIT_S)
            assert obeyed.status == "completed"
            before = owner_in(state)
        finally:
            run.kill()
    # The copy's next start reaches the same number with another id: it is no later owner.
    async with controller(tmp_path / "copy") as (copy, at):
        await copy.queue(RUN, "runner.shutdown")
        again = await runner(copy, at.url, state, "--bootstrap-deadline-ms", "1500")
        try:
            assert await asyncio.to_thread(again.wait) == 69
        finally:
            again.kill()
        assert "owner_epoch_superseded" in again.stderr
        assert copy.view(RUN).connection_count == 0
        content = json.loads((state / STATE_FILE).read_bytes())["content"]
        assert (content["lastControllerCommandSeq"], content["owner"]) == (1, before)
    # The next start of the first is later than what was obeyed, and is obeyed.
    async with controller(tmp_path / "data") as (first, at):
        third = await runner(first, at.url, state)
        try:
            await first.queue(RUN, "runner.shutdown")
            assert await asyncio.to_thread(third.wait) == 0
        finally:
            third.kill()
        assert owner_in(state) != before


async def test_second_daemon_on_a_copied_state_supersedes_the_first_and_only_it_commits(
    tmp_path: Path,
) -> None:
    async with controller(tmp_path / "data") as (owner, at):
        await owner.create_run(run_config())
        first = await runner(owner, at.url, tmp_path / "state")
        second: Daemon | None = None
        try:
            await owner.wait_for(RUN, is_connected, WAIT_S)
            await owner.perform(RUN, "run.prepare", PREPARE, timeout_s=WAIT_S)
            await owner.wait_for(RUN, lambda view: view.acked_source_seq == 1, WAIT_S)
            shutil.copytree(tmp_path / "state", tmp_path / "stolen")

            second = await runner(owner, at.url, tmp_path / "stolen")

            assert await asyncio.to_thread(first.wait) == 76
            assert first.code == "superseded"
            await owner.wait_for(RUN, lambda view: view.connection_number == 2, WAIT_S)
            await owner.perform(RUN, "session.open", timeout_s=WAIT_S)
            await owner.wait_for(RUN, lambda view: view.acked_source_seq >= 3, WAIT_S)
            events = await owner.read_events(RUN)
            by_connection = [event.connection_number for event in events]
            assert by_connection == sorted(by_connection)
            assert set(by_connection) == {1, 2}
            assert [event.source_seq for event in events] == list(range(1, len(events) + 1))
        finally:
            first.kill()
            if second is not None:
                second.kill()
