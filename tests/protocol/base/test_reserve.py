"""Room for the last words: kept beside the file, used when the disk is full, made again (R15)."""

import errno

import pytest

from protocol.base.atomic_file import AtomicFile, WriteFailed
from protocol.base.reserve import Reserve
from protocol.errors import ErrorCode, PrpError
from protocol.limits import RESERVE_STEP_BYTES
from tests.crash.saves import PATH, CountingEntropy
from tests.simulator.disk import Disk, File
from tests.simulator.disk_faults import Call, Fault, Refuse
from tests.simulator.disk_process import DiskProcess

NAME = "state.reserve"
EXTRA = 64 * 1024
SIZE_MAX = 8 * 2**20


class Machine:
    """A process with a file and its reserve on a disk that can be filled."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        self.fault: Fault | None = None
        self.struck = ""
        self.process = DiskProcess(self.disk, self._strike)
        self.entropy = CountingEntropy()
        self.file = AtomicFile(
            self.process,
            self.entropy,
            directory=PATH,
            name="state.json",
            schema="test.state.v1",
            size_max=SIZE_MAX,
            reserve=Reserve(self.process, name=NAME, extra_bytes=EXTRA),
        )
        if disk is None:
            self.process.make_directory("/var", 0o700)
            self.process.make_directory("/var/state", 0o700)
        self.file.open_directory()
        self.file.adopt_reserve()

    def _strike(self, call: Call) -> Fault | None:
        return self.fault if call.name == self.struck else None

    def fill(self) -> None:
        """Let others take every byte that is left."""
        self.disk.capacity_bytes = None
        root = self.process.open_directory("/var")
        taken = sum(inode.room for inode in self.disk.inodes.values() if isinstance(inode, File))
        self.process.close(root)
        self.disk.capacity_bytes = taken

    def reserve(self) -> File | None:
        watcher = DiskProcess(self.disk)
        try:
            status = watcher.status_of(watcher.open_directory(PATH), NAME)
        except FileNotFoundError:
            return None
        inode = self.disk.inodes[status.identity[1]]
        assert isinstance(inode, File)
        return inode

    def restarted(self) -> "Machine":
        self.process.kill()
        return Machine(self.disk)


def body(size: int) -> bytes:
    return b'"' + b"x" * size + b'"'


def test_reserve_is_made_with_the_first_save_and_not_touched_by_the_next() -> None:
    machine = Machine()
    machine.file.replace(body(10))
    made = machine.reserve()
    calls = len(machine.process.calls)

    for size in range(11, 31):
        machine.file.replace(body(size))

    assert made is not None
    assert made.allocated >= EXTRA + RESERVE_STEP_BYTES
    assert machine.reserve() is made
    names = {call.name for call in machine.process.calls[calls:]}
    assert not names & {"allocate", "open_write"}


def test_reserve_grows_in_steps_as_the_file_grows() -> None:
    machine = Machine()
    sizes: list[int] = []

    for size in range(0, 4 * RESERVE_STEP_BYTES, RESERVE_STEP_BYTES // 8):
        machine.file.replace(body(size))
        reserve = machine.reserve()
        assert reserve is not None
        assert reserve.allocated >= size + EXTRA
        sizes.append(reserve.allocated)

    assert sizes == sorted(sizes)
    assert len(set(sizes)) <= 6


def test_full_disk_takes_one_more_state_and_then_another() -> None:
    machine = Machine()
    machine.file.replace(body(10))
    machine.fill()

    machine.file.replace(body(10 + EXTRA))
    assert machine.file.read() == body(10 + EXTRA)
    assert machine.file.is_tight

    machine.file.replace(body(20))
    assert machine.file.read() == body(20)


def test_reserve_is_made_again_from_what_the_rewrite_gave_back_or_stays_short() -> None:
    machine = Machine()
    machine.file.replace(body(10))
    machine.fill()
    machine.file.replace(body(1000))
    # Somebody takes what became free.
    machine.fill()

    with pytest.raises(WriteFailed) as refused:
        machine.file.replace(body(SIZE_MAX // 2))

    assert (refused.value.errno, refused.value.renamed) == (errno.ENOSPC, False)
    assert machine.file.read() == body(1000)


def test_room_that_came_back_is_found_and_the_reserve_is_whole_again() -> None:
    machine = Machine()
    machine.file.replace(body(10))
    machine.fill()
    machine.file.replace(body(1000))

    found: list[bool] = []
    for capacity in (machine.disk.capacity_bytes, None):
        machine.disk.capacity_bytes = capacity
        machine.file.find_room()
        found.append(not machine.file.is_tight)

    assert found == [False, True]
    assert machine.reserve() is not None
    assert set(machine_names(machine)) == {"state.json", NAME}


def machine_names(machine: Machine) -> list[str]:
    watcher = DiskProcess(machine.disk)
    return watcher.list_directory(watcher.open_directory(PATH), 100)


def test_start_on_a_full_disk_lives_on_what_the_last_process_kept() -> None:
    machine = Machine()
    machine.file.replace(body(10))
    machine.fill()

    again = machine.restarted()

    assert again.file.recover() == body(10)
    again.file.replace(body(EXTRA // 2))
    assert again.file.read() == body(EXTRA // 2)


@pytest.mark.parametrize("name", ["open_write", "truncate", "allocate"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EOPNOTSUPP])
def test_disk_that_cannot_keep_a_reserve_still_keeps_the_file(name: str, number: int) -> None:
    machine = Machine()
    machine.struck, machine.fault = name, Refuse(number)

    machine.file.replace(body(10))
    machine.file.replace(body(2 * RESERVE_STEP_BYTES))

    assert machine.file.read() == body(2 * RESERVE_STEP_BYTES)


@pytest.mark.parametrize("name", ["open_write", "write", "truncate", "sync", "close", "rename"])
def test_failure_inside_the_reserve_leaves_the_old_state_and_no_half_of_one(name: str) -> None:
    machine = Machine()
    machine.file.replace(body(10))
    machine.fill()
    machine.struck, machine.fault = name, Refuse(errno.ENOSPC)

    with pytest.raises(WriteFailed) as refused:
        machine.file.replace(body(1000))

    machine.struck = ""
    assert not refused.value.renamed or name == "rename"
    assert machine.file.read() == body(10)
    machine.disk.capacity_bytes = None
    machine.file.replace(body(20))
    assert machine.file.read() == body(20)
    assert machine.disk.violations == []


def test_reserve_that_others_may_write_is_refused_at_the_start() -> None:
    machine = Machine()
    machine.file.replace(body(10))
    reserve = machine.reserve()
    assert reserve is not None
    reserve.mode = 0o666

    with pytest.raises(PrpError) as refused:
        machine.restarted()

    assert refused.value.code is ErrorCode.STATE_UNSAFE
