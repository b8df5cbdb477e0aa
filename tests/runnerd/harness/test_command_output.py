"""Every line of a program's standard output arrives once, in order, before its end."""

import os
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.limits import (
    HARNESS_LINE_BYTES_MAX,
    HARNESS_READ_LINES_MAX,
    MIB,
    STDERR_TAIL_BYTES_MAX,
)
from runnerd.core.inputs import HarnessExited, HarnessOutput, ProcessExit
from tests.runnerd.harness.support import bench, ended, python, shell

pytestmark = pytest.mark.process

SUCCESS = ProcessExit(exit_code=0, success=True)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(("lines_max", "bytes_max"), [(1, MIB), (7, MIB), (256, 20), (256, MIB)])
async def test_every_line_arrives_once_and_in_order_however_it_is_asked_for(
    tmp_path: Path, lines_max: int, bytes_max: int
) -> None:
    async with bench(tmp_path) as b:
        await b.launch("seq", "3000")

        lines, end = await b.to_end(lines_max, bytes_max)

        assert lines == [str(number) for number in range(1, 3001)]
        assert end.exit == SUCCESS
        assert end.violation is None


async def test_million_short_lines_arrive_in_bounded_memory(tmp_path: Path) -> None:
    text = "x" * 40
    async with bench(tmp_path) as b:
        await b.launch(*python(f"for n in range(10**6): print(n, '{text}')"))
        before = resident_bytes()
        count = 0

        while True:
            b.read(HARNESS_READ_LINES_MAX)
            answer = await b.answers.get()
            if isinstance(answer, HarnessExited):
                break
            assert isinstance(answer, HarnessOutput)
            for line in answer.lines:
                assert line == f"{count} {text}"
                count += 1

        assert count == 10**6
        assert answer.exit == SUCCESS
        assert resident_bytes() - before < 16 * MIB


async def test_program_waits_when_its_lines_are_not_asked_for(tmp_path: Path) -> None:
    passed = tmp_path / "passed"
    source = f"seq 100000; touch {passed}"
    async with bench(tmp_path) as b:
        await b.launch(*shell(source))

        assert await b.lines(10) == [str(number) for number in range(1, 11)]

        assert b.marked()
        assert not passed.exists()
        assert b.answers.empty()


async def test_end_comes_after_the_lines_that_were_left_in_the_pipe(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        birth = await b.launch(*shell("echo one; echo two; echo three"))
        assert await b.lines(1) == ["one"]
        await ended(birth.pid)

        assert await b.lines(1) == ["two"]
        lines, end = await b.to_end()

        assert (lines, end.exit) == (["three"], SUCCESS)


async def test_end_is_told_unasked_when_there_is_nothing_left_to_read(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.launch("true")

        assert (await b.take(HarnessExited)).exit == SUCCESS


async def test_line_ends_bad_utf_8_and_nul_arrive_as_text(tmp_path: Path) -> None:
    source = r"printf 'crlf\r\nbad \377\nnul \000 x\n\nlast without end'"
    async with bench(tmp_path) as b:
        lines, end = await b.run(*shell(source))

        assert lines == ["crlf", "bad �", "nul \0 x", "", "last without end"]
        assert end.exit == SUCCESS


async def test_longest_line_arrives_and_a_longer_one_ends_the_program(tmp_path: Path) -> None:
    longest = HARNESS_LINE_BYTES_MAX
    source = f"""
import sys, time
print('x' * {longest}); print('y' * {longest + 1}); print('after', flush=True); time.sleep(1000)
"""
    async with bench(tmp_path) as b:
        lines, end = await b.run(*python(source))

        assert lines == ["x" * longest]
        assert end.violation is ErrorCode.HARNESS_LINE_TOO_LONG
        assert end.logs.lines == (f"[a line of its output exceeds {longest} bytes]",)
        assert b.marked() == []


@pytest.mark.parametrize(
    "source",
    ["echo first; head -c 10000000 /dev/zero | tr '\\0' x", "echo first; yes | tr -d '\\n'"],
    ids=["ten megabytes", "without end"],
)
async def test_flood_without_line_end_ends_the_program_in_bounded_memory(
    tmp_path: Path, source: str
) -> None:
    async with bench(tmp_path) as b:
        before = resident_bytes()

        lines, end = await b.run(*shell(source))

        assert lines == ["first"]
        assert end.violation is ErrorCode.HARNESS_LINE_TOO_LONG
        assert end.survivors == 0
        assert b.marked() == []
        assert resident_bytes() - before < 16 * MIB


async def test_last_line_without_end_is_a_line_when_the_program_exits(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        lines, end = await b.run(*shell("echo whole; printf part; exit 4"))

        assert lines == ["whole", "part"]
        assert end.exit == ProcessExit(exit_code=4, success=False)


async def test_last_line_without_end_is_a_diagnostic_when_the_program_is_killed(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as b:
        lines, end = await b.run(*shell("echo whole; printf part; kill -9 $$"))

        assert lines == ["whole"]
        assert end.exit == ProcessExit(success=False, signal=9)
        assert end.logs.lines == ("[unfinished last line of output] part",)


async def test_program_that_closes_its_output_is_not_ended_by_that(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with bench(tmp_path) as b:
        await b.launch(*shell(f"echo one; exec >&- 2>&-; read x <{gate}; exit $x"))
        assert await b.lines(1) == ["one"]
        b.read()

        gate.write_text("5\n")

        assert (await b.take(HarnessExited)).exit == ProcessExit(exit_code=5, success=False)


async def test_flood_on_standard_error_neither_blocks_the_program_nor_is_kept(
    tmp_path: Path,
) -> None:
    source = (
        "import sys\nfor n in range(1600): sys.stderr.write(('e' * 63 + '\\n') * 1024)\nprint(1)"
    )
    async with bench(tmp_path) as b:
        before = resident_bytes()
        birth = await b.launch(*python(source))
        await ended(birth.pid)

        lines, end = await b.to_end()

        assert lines == ["1"]
        assert set(end.logs.lines) == {"e" * 63}
        assert end.logs.retained_bytes <= STDERR_TAIL_BYTES_MAX
        assert end.logs.dropped_lines + len(end.logs.lines) == 1600 * 1024
        assert resident_bytes() - before < 16 * MIB
        assert os.listdir(tmp_path) == []


async def test_standard_error_is_told_with_the_end_without_its_secrets(tmp_path: Path) -> None:
    secret = "ghp_" + "A1b2" * 9
    async with bench(tmp_path) as b:
        _, end = await b.run(*shell(f"echo using {secret} >&2; printf end >&2"))

        assert len(end.logs.lines) == 2
        assert end.logs.lines[0].startswith("using ")
        assert secret not in end.logs.lines[0]
        assert end.logs.lines[1] == "end"


async def test_end_is_told_when_a_stranger_holds_the_output_open(tmp_path: Path) -> None:
    source = r"echo err >&2; printf 'one\ntwo\n'; exec sleep 1000"
    async with bench(tmp_path) as b:
        birth = await b.launch(*shell(source))
        assert await b.lines(1) == ["one"]
        held = [os.open(f"/proc/{birth.pid}/fd/{number}", os.O_WRONLY) for number in (1, 2)]
        try:
            b.stop()
            lines, end = await b.to_end()
        finally:
            for descriptor in held:
                os.close(descriptor)

        assert (lines, end.logs.lines) == (["two"], ("err",))
        assert end.exit == ProcessExit(success=False, signal=15)
