"""What must be true of one runner, kept from what left it and what its disk holds.

It decides nothing: it remembers accepted events, answers, effects and cursors, and hands
them to the invariants. It refuses to ask the product.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.simulator import invariants
from tests.simulator.image import Image


@dataclass
class Oracle:
    """The memory of one run, over all incarnations of its runner."""

    envelope_bytes: int
    """What the wire puts around an event's body."""
    outbox_bytes_max: int
    p0_reserve_bytes: int
    accepted: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Bytes of every event that was ever in a durable state."""
    frozen_through: int = 0
    """Highest event that left, or that a start has found: its bytes never change again (R2)."""
    types: dict[int, str] = field(default_factory=dict[int, str])
    results: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """The first answer to each command that left."""
    marks: dict[str, int] = field(default_factory=dict[str, int])
    """Launch mark of each program that was spawned, and the command it answers."""
    drained_by: int | None = None
    """The command by which the runner was told to drain, once its answer left."""
    ack_allowed: int = 0
    """Highest cursor that the runner was told while it had authority."""
    command_allowed: int = 0
    """Highest command that the runner was told while it had authority."""
    ack_late: int = 0
    command_late: int = 0
    """Highest cursor and command that it was told when it had none; they must leave no trace."""
    stored_bytes: int = 0
    """What the events of the newest state cost on the wire."""
    uses_reserve: bool = False
    """True if the newest state needs the bytes that are kept for facts of priority 0."""
    image: Image | None = None
    """Newest published state."""

    def published(self, image: Image) -> None:
        """Judge a state that is durable from now on."""
        before = self.image
        invariants.I4(before, image, self)
        invariants.I1(image, self)
        invariants.I9(before, image)
        total = invariants.I10(image, self)
        self.stored_bytes = total
        self.uses_reserve = total > self.outbox_bytes_max - self.p0_reserve_bytes
        invariants.I13(before, image)
        for event in reversed(image.outbox):
            if event.source_seq <= self.frozen_through:
                break
            self.accepted[event.source_seq] = bytes(event.body)
            self.types[event.source_seq] = event.event_type
        self.image = image
        if image.lifecycle == "suspended":
            # Who suspends a runner and starts it again wants it to work.
            self.drained_by = None

    def continue_from(self, other: "Oracle") -> None:
        """Remember what another oracle does, apart from the bounds."""
        self.accepted, self.types = dict(other.accepted), dict(other.types)
        self.results, self.marks = dict(other.results), dict(other.marks)
        self.frozen_through = other.frozen_through
        self.image, self.ack_allowed = other.image, other.ack_allowed
        self.command_allowed = other.command_allowed

    @property
    def produced(self) -> int:
        """Highest event of any durable state."""
        return 0 if self.image is None else self.image.next_source_seq - 1

    def put_back(self, image: Image) -> None:
        """Expect of a runner whose state was put back what that state says, and no more."""
        self.image = image
        self.accepted = {event.source_seq: bytes(event.body) for event in image.outbox}
        self.results.clear()
        self.marks.clear()

    def found(self, image: Image) -> None:
        """Judge a state that a start has found; from then on every event in it is frozen."""
        self.published(image)
        self.frozen_through = image.next_source_seq - 1

    def event_left(self, seq: int, body: bytes, surviving: Sequence[Image | None]) -> None:
        """Judge an event that became visible, against the disk's own opinion."""
        invariants.I2(seq, body, self)
        invariants.I7_event(seq, body, surviving)
        self.frozen_through = max(self.frozen_through, seq)

    def result_left(
        self, seq: int, status: str, body: bytes, surviving: Sequence[Image | None]
    ) -> None:
        """Judge an answer that became visible."""
        invariants.I7_result(seq, body, surviving)
        invariants.I6(seq, body, self)
        invariants.I5_result(seq, status, body, self)
        self.results.setdefault(seq, body)

    def drained(self, seq: int) -> None:
        """Remember that a drain was answered as done."""
        if self.drained_by is None:
            self.drained_by = seq

    def program_ordered(self, generation: int, surviving: Sequence[Image | None]) -> int:
        """Judge the order to spawn a program; returns the command that it answers."""
        seq = invariants.I7_spawn(generation, surviving)
        invariants.I17(seq, self)
        return seq

    def program_spawned(self, mark: str, seq: int, replaces: str | None = None) -> None:
        """Judge an effect on the outside world."""
        invariants.I5_spawn(mark, seq, self, replaces)
        self.marks[mark] = seq
