"""Many histories in worker processes, and what a batch has seen.

It decides which seeds run where, and that a failure is told by the worker that saw it, at
once: what ends the batch early takes no seed with it. It refuses to judge a history, which
brings its own verdict.
"""

import gc
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.queues import SimpleQueue
from typing import Final

from tests.simulator.stacks import STACKS

CHUNK: Final[dict[str, int]] = {"short": 100, "full": 10, "runs": 50}
FAILURES_KEPT_MAX: Final = 20
GARBAGE_MIN: Final = 50_000
ENDS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Batch:
    """What many histories of one stack came to."""

    stack: str
    histories: int = 0
    entries: int = 0
    virtual_ms: int = 0
    busy_s: float = 0.0
    """Processor time of the histories alone, over all workers."""
    wall_s: float = 0.0
    failed: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Seed and words of some failures, by seed."""
    seen: Counter[str] = field(default_factory=Counter[str])
    was_interrupted: bool = False
    """Somebody ended it before its time."""

    def add(self, other: "Batch") -> None:
        """Take in a part."""
        self.histories += other.histories
        self.entries += other.entries
        self.virtual_ms += other.virtual_ms
        self.busy_s += other.busy_s
        self.failed += other.failed
        self.failures = sorted(self.failures + other.failures)[:FAILURES_KEPT_MAX]
        self.seen.update(other.seen)


Failed = Callable[[str, int, str], None]
"""Told stack, seed and words of a failure when it happens, in the process that runs it."""


def nobody(stack: str, seed: int, words: str) -> None:
    """Tell nobody of a failure: who reads the batch finds it there."""


def run_chunk(
    stack: str, seeds: range, needed: Collection[str] = (), failed: Failed = nobody
) -> Batch:
    """Run some histories in this process; the needed families are on in each."""
    batch = Batch(stack)
    began_s = time.process_time()
    for seed in seeds:
        outcome = STACKS[stack](seed, needed=needed)
        batch.histories += 1
        batch.entries += len(outcome.trace)
        batch.virtual_ms += outcome.virtual_ms
        batch.seen.update(outcome.seen)
        if outcome.violation is not None:
            failed(stack, seed, str(outcome.violation))
            batch.failed += 1
            batch.failures.append((seed, str(outcome.violation)))
    batch.busy_s = time.process_time() - began_s
    return batch


def run_seeds(
    stack: str,
    first: int,
    last: int | None,
    *,
    minutes: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    workers: int | None = None,
    stops_at_failure: bool = False,
    needed: Collection[str] = (),
    told: Callable[[Batch], None] | None = None,
    failed: Failed = nobody,
) -> Batch:
    """Run histories of seeds ``first`` to ``last`` - 1, or until the time is over.

    An interruption ends the batch, and what it has come to is returned.

    Args:
        clock: counts the minutes, e.g. those that each worker has run on a busy machine.
        told: gets the batch so far after each part.
        failed: is told of each failure at once, in a worker.
    """
    began_s = time.monotonic()
    number = workers or os.cpu_count() or 1
    context = multiprocessing.get_context("fork")
    parts: SimpleQueue[Batch | str | None] = context.SimpleQueue()

    def run(seeds: range) -> Batch:
        return run_chunk(stack, seeds, needed, failed)

    processes = [
        context.Process(
            target=_work,
            args=(
                run,
                _chunks(stack, first, last, index, number),
                (clock, minutes),
                os.getpid(),
                parts,
            ),
            daemon=True,
        )
        for index in range(number)
    ]
    # Half of a start cannot be undone, so nothing interrupts one.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    for process in processes:
        process.start()
    batch, running = Batch(stack), number
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        while running:
            part = parts.get()
            if part is None:
                running -= 1
                continue
            assert not isinstance(part, str), f"a worker broke: {part}"
            batch.add(part)
            batch.wall_s = time.monotonic() - began_s
            if told is not None:
                told(batch)
            if stops_at_failure and batch.failed:
                break
    except KeyboardInterrupt:
        batch.was_interrupted = True
    for process in processes:
        process.terminate()
        process.join()
    batch.wall_s = time.monotonic() - began_s
    return batch


def _chunks(stack: str, first: int, last: int | None, index: int, workers: int) -> Iterator[range]:
    size = CHUNK[stack]
    for start in count(first + index * size, workers * size):
        if last is not None and start >= last:
            return
        yield range(start, start + size if last is None else min(start + size, last))


def _work(
    run: Callable[[range], Batch],
    chunks: Iterator[range],
    limit: tuple[Callable[[], float], float | None],
    reader: int,
    parts: "SimpleQueue[Batch | str | None]",
) -> None:
    # A terminal interrupts every process; the parent alone ends a worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    # What was imported stays, and a history is gone as a whole: looking often finds nothing.
    gc.freeze()
    gc.set_threshold(GARBAGE_MIN)
    clock, minutes = limit
    began_s = clock()
    try:
        for seeds in chunks:
            if minutes is not None and clock() - began_s >= 60 * minutes:
                break
            if os.getppid() != reader:
                return
            parts.put(run(seeds))
    except BaseException as fault:
        # Nobody would ever wake the reader.
        parts.put(f"{type(fault).__name__}: {fault}")
        raise
    parts.put(None)
