"""What one event costs in rows, statements, bytes and pages, with few and with many before it.

It decides what is counted: everything that reaches SQLite and the runner's disk. It refuses
to look at a clock. A number counts as one digit however long it is, for the length of a
sequence is no cost of history.
"""

import contextlib
import re
import sqlite3
from collections import deque
from collections.abc import Generator, Mapping
from pathlib import Path

import msgspec
import pytest

from controller_mock.controller import open_controller
from controller_mock.core.actions import Change, PutEvent, PutRun
from controller_mock.core.state import RunConfig
from controller_mock.storage import sqlite
from controller_mock.storage.sqlite import SqliteStore, open_store
from controller_mock.storage.sqlite_files import DATABASE_NAME, open_for_writing
from protocol.base.posix_fs import PosixFilesystem, SystemEntropy
from protocol.events import event_id
from protocol.ids import ControllerSeq, RunId, SourceSeq
from runnerd.core.actions import Action
from runnerd.io.state_file import StateFile
from tests.bench.bare_client import bodies, client_of, send
from tests.bench.figures import Figure, Goal, Measured, Outcome
from tests.bench.ours import run_config
from tests.bench.site import Measurement, Site
from tests.runnerd.core.world import SETTINGS, World

FEW = 100
MANY = 20_000
EVENTS = 32
"""Counted one after the other, each with a commit of its own."""
LINES_PER_BATCH = 16

_EVENTS_PER_COMMIT = 500
_LINES_PER_ACK = 100
_LINE = "one line of output"
_NUMBER = re.compile(rb"\d+")
_DIGEST = re.compile(rb"[0-9a-f]{64}")


class ControllerCost(msgspec.Struct, frozen=True, kw_only=True):
    """Of `EVENTS` events at the controller, sent one at a time."""

    rows: int
    """Inserted or changed, as SQLite counts them."""
    statements: int
    """Run by SQLite, the ends of transactions included."""
    text_bytes: int
    """Of these statements with their values."""
    pages: int
    """Written to the log by the middle one of the commits; a page splits now and then."""


class RunnerCost(msgspec.Struct, frozen=True, kw_only=True):
    """Of one batch of lines at the runner, with nothing else unacknowledged."""

    replacements: int
    """Of the state file, from the lines' arrival to their ACK."""
    syncs: int
    file_bytes: int


def digits_apart(data: bytes) -> int:
    """Return the length of ``data`` with every number and digest as one character."""
    return len(_NUMBER.sub(b"0", _DIGEST.sub(b"#", data)))


# --- the controller -------------------------------------------------------------------------


class Watch:
    """Looks at the store's own writing connection."""

    def __init__(self) -> None:
        self.statements: list[bytes] = []
        self._connection: sqlite3.Connection | None = None

    @property
    def rows(self) -> int:
        """Rows that the connection has written so far."""
        assert self._connection is not None, "nothing was written yet"
        return self._connection.total_changes

    def take(self, connection: sqlite3.Connection) -> None:
        """Look at a connection from now on."""
        self._connection = connection
        connection.set_trace_callback(lambda text: self.statements.append(text.encode()))


@contextlib.contextmanager
def watched() -> Generator[Watch]:
    """Look at every writing connection that stores open during the block."""
    watch = Watch()

    def watched_connection(path: Path) -> sqlite3.Connection:
        connection = open_for_writing(path)
        watch.take(connection)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "open_for_writing", watched_connection)
        yield watch


async def controller_cost(directory: Path, history: int) -> ControllerCost:
    """Send events to the real controller over a store that already holds ``history``."""
    config = run_config("000001")
    with watched() as watch, contextlib.closing(open_store(directory)) as store:
        put_history(store, config, history)
        async with open_controller(store) as controller:
            bound = await controller.serve()
            token = await controller.issue_ticket(RunId(config.identity.run_id))
            async with client_of(bound.url, config, token, history) as client:
                log = _emptied_log(directory)
                rows, watch.statements = watch.rows, []
                grown: list[int] = []
                for seq in range(history + 1, history + EVENTS + 1):
                    before = log.stat().st_size
                    await send(client, bodies(config, seq, 1), seq)
                    grown.append(log.stat().st_size - before)
                return ControllerCost(
                    rows=watch.rows - rows,
                    statements=len(watch.statements),
                    text_bytes=sum(digits_apart(text) for text in watch.statements),
                    pages=sorted(grown)[EVENTS // 2] // _page_bytes(directory),
                )


def put_history(store: SqliteStore, config: RunConfig, history: int) -> None:
    """Give the store a run with so many committed events, without sending them."""
    store.create_run(config)
    run_id = RunId(config.identity.run_id)
    for first in range(1, history + 1, _EVENTS_PER_COMMIT):
        last = min(first + _EVENTS_PER_COMMIT - 1, history)
        changes: list[Change] = [
            PutEvent(
                source_seq=SourceSeq(first + at),
                source_event_id=event_id(config.identity, SourceSeq(first + at)),
                event_type="item.delta",
                priority=2,
                digest=bytes(32),
                body=body,
                received_at_unix_ms=1_767_323_045_678,
                connection_number=1,
            )
            for at, body in enumerate(bodies(config, first, last - first + 1))
        ]
        store.commit([(run_id, (*changes, _run_row(last)))])


def _run_row(acked: int) -> PutRun:
    return PutRun(
        acked_source_seq=SourceSeq(acked),
        last_controller_seq=ControllerSeq(0),
        revocation_epoch=0,
        connection_count=0,
        malformed_frames=0,
        replay_deliveries=0,
        integrity_fault=None,
        run_terminal_state=None,
    )


def _emptied_log(directory: Path) -> Path:
    """Empty the write-ahead log, so that it grows by what each commit writes."""
    with contextlib.closing(sqlite3.connect(directory / DATABASE_NAME)) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    return directory / f"{DATABASE_NAME}-wal"


def _page_bytes(directory: Path) -> int:
    with contextlib.closing(sqlite3.connect(directory / DATABASE_NAME)) as connection:
        return int(connection.execute("PRAGMA page_size").fetchone()[0])


# --- the runner -----------------------------------------------------------------------------


class CountingFilesystem(PosixFilesystem):
    """The real disk, which counts what it is asked for."""

    def __init__(self) -> None:
        self.renames = 0
        self.syncs = 0
        self.written: deque[bytes] = deque()

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        count = super().write(descriptor, data)
        self.written.append(bytes(data[:count]))
        return count

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        super().sync(descriptor)

    def rename(self, directory: int, source: str, target: str) -> None:
        self.renames += 1
        super().rename(directory, source, target)


class DiskWorld(World):
    """The runner's core with its real state file below it, once that is looked at."""

    def __init__(self, directory: Path) -> None:
        self.fs = CountingFilesystem()
        self.is_on_disk = False
        self._file = StateFile(self.fs, SystemEntropy(), str(directory), SETTINGS)
        self._file.open()
        super().__init__()

    def settle(self) -> list[Action]:
        """Write to the real file when the driver asks for it, then let everything out."""
        start = len(self.left)
        while True:
            if (write := self.driver.next_write()) is not None:
                if self.is_on_disk:
                    self._file.replace(write.state.durable)
                self.driver.wrote()
            if (action := self.driver.next_action()) is None:
                return self.left[start:]
            self.left.append(action)

    def close(self) -> None:
        """Give the directory up."""
        self._file.close()


def runner_cost(directory: Path, history: int) -> RunnerCost:
    """Give the runner's core one batch of lines, when ``history`` events are acknowledged."""
    with contextlib.closing(DiskWorld(directory)) as world:
        world.connect()
        world.prepare()
        world.start_turn()
        while (missing := history - (world.durable.next_source_seq - 1)) > 0:
            world.lines(*[_LINE] * min(missing, _LINES_PER_ACK))
            world.ack()
            world.left.clear()
        world.is_on_disk = True
        before = msgspec.structs.replace(_counted(world), file_bytes=0)
        world.fs.written.clear()
        world.lines(*[_LINE] * LINES_PER_BATCH)
        world.ack()
        after = _counted(world)
    return RunnerCost(
        replacements=after.replacements - before.replacements,
        syncs=after.syncs - before.syncs,
        file_bytes=after.file_bytes,
    )


def _counted(world: DiskWorld) -> RunnerCost:
    fs = world.fs
    written = digits_apart(b"".join(fs.written))
    return RunnerCost(replacements=fs.renames, syncs=fs.syncs, file_bytes=written)


# --- the figures ----------------------------------------------------------------------------


def _figure(name: str, what: str, unit: str) -> Figure:
    return Figure(
        name=f"cost-{name}",
        what=f"{what}, with {MANY} events of history over with {FEW}; numbers of any length"
        " count as one digit",
        unit=unit,
        goal=Goal("==", 1),
    )


CONTROLLER = {
    "rows": _figure("controller-rows", f"rows written for {EVENTS} events", "rows"),
    "statements": _figure("controller-statements", f"SQL for {EVENTS} events", "statements"),
    "text_bytes": _figure("controller-bytes", f"SQL for {EVENTS} events", "bytes"),
    "pages": _figure("controller-pages", "pages of the log for the median event", "pages"),
}
RUNNER = {
    "replacements": _figure(
        "runner-writes", f"replacements of the state for {LINES_PER_BATCH} lines", "replacements"
    ),
    "file_bytes": _figure(
        "runner-bytes", f"bytes of the state file for {LINES_PER_BATCH} lines", "bytes"
    ),
}


async def cost(site: Site) -> Mapping[str, Outcome]:
    """Count at both ends with few and with many events of history."""
    outcomes: dict[str, Outcome] = {}
    many = await controller_cost(site.fresh_folder(), MANY)
    few = await controller_cost(site.fresh_folder(), FEW)
    site.tell(f"controller, {MANY} over {FEW}: {many} over {few}")
    for field, figure in CONTROLLER.items():
        outcomes[figure.name] = _counts(getattr(many, field), getattr(few, field))
    late = runner_cost(site.fresh_folder(), MANY)
    early = runner_cost(site.fresh_folder(), FEW)
    site.tell(f"runner, {MANY} over {FEW}: {late} over {early}")
    for field, figure in RUNNER.items():
        outcomes[figure.name] = _counts(getattr(late, field), getattr(early, field))
    return outcomes


def _counts(many: int, few: int) -> Measured:
    return Measured(ours=(float(many),), base=(float(few),))


MEASUREMENTS = (Measurement((*CONTROLLER.values(), *RUNNER.values()), cost),)
