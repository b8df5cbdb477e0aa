"""What a program reads from: never waited for, told when it is taken, and lost without harm."""

import asyncio
import os

from runnerd.harness.write_end import WriteEnd
from tests.runnerd.harness.support import PATIENCE_S, until


class Pipe:
    """A pipe whose writing end is under test."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        self.taken: list[int] = []
        self.end = WriteEnd(writing, asyncio.get_running_loop(), self.taken.append)

    def close(self) -> None:
        self.end.close()
        os.close(self.reading)


async def test_a_piece_that_fits_is_taken_at_once() -> None:
    pipe = Pipe()

    pipe.end.write(b"one\n", 1)
    pipe.end.write(b"two\n", 2)

    assert pipe.taken == [1, 2]
    assert os.read(pipe.reading, 100) == b"one\ntwo\n"
    pipe.close()


async def test_a_large_piece_is_taken_only_when_all_of_it_is_in_the_pipe() -> None:
    pipe = Pipe()
    large = os.urandom(1_000_000)

    pipe.end.write(large, 1)
    pipe.end.write(b"behind", 2)
    assert pipe.taken == []

    read = bytearray()
    async with asyncio.timeout(PATIENCE_S):
        while len(read) < len(large) + 6:
            read += await asyncio.to_thread(os.read, pipe.reading, 65_536)
    assert bytes(read) == large + b"behind"
    await until(lambda: pipe.taken == [1, 2])
    pipe.close()


async def test_a_program_that_reads_nothing_holds_the_writer_up_in_nothing() -> None:
    pipe = Pipe()

    pipe.end.write(bytes(1_000_000), 1)
    await asyncio.sleep(0)

    assert pipe.taken == []
    assert pipe.end.is_open
    pipe.close()


async def test_a_program_that_closed_its_end_costs_what_was_meant_for_it() -> None:
    pipe = Pipe()
    os.close(pipe.reading)

    pipe.end.write(b"one\n", 1)
    pipe.end.write(b"two\n", 2)

    assert pipe.taken == []
    assert not pipe.end.is_open
    pipe.end.close()


async def test_a_program_that_closes_its_end_in_the_middle_costs_the_rest() -> None:
    pipe = Pipe()
    pipe.end.write(bytes(1_000_000), 1)

    os.close(pipe.reading)
    await until(lambda: not pipe.end.is_open)

    assert pipe.taken == []


async def test_closing_twice_and_writing_after_it_do_nothing() -> None:
    pipe = Pipe()
    pipe.end.write(bytes(1_000_000), 1)

    pipe.close()
    pipe.end.close()
    pipe.end.write(b"late", 2)

    assert pipe.taken == []
