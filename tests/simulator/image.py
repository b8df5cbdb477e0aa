"""The runner's state file as an observer reads it: from the disk's stable bytes alone.

It decides what a power loss at this moment could leave. It shares no type and no reader
with the product, and refuses to ask it anything.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

import msgspec

from tests.simulator.disk import ROOT, Directory, Disk, File

DIRECTORY: Final = "state"
PATH: Final = "/" + DIRECTORY
NAME: Final = "runner-state.json"

TORN: Final = None
"""A content that is not one whole published state."""


class ImageEvent(msgspec.Struct, rename="camel"):
    """One unacknowledged event; ``body`` keeps its bytes."""

    source_seq: int
    priority: int
    event_type: str
    body: msgspec.Raw


class ImageCommand(msgspec.Struct, rename="camel"):
    """One journaled command."""

    command_id: str
    command_type: str
    controller_seq: int
    result: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def answer(self) -> bytes | None:
        """Bytes of the stored result, None while there is none."""
        found = bytes(self.result)
        return None if found == b"null" else found


class ImageTurn(msgspec.Struct, rename="camel"):
    """The live turn."""

    ordinal: int
    generation: int
    controller_seq: int
    birth: msgspec.Raw = msgspec.Raw(b"null")
    intent: str | None = None
    restarts: int = 0

    @property
    def is_born(self) -> bool:
        """True once the process that does the work is recorded."""
        return bytes(self.birth) != b"null"


class ImageCall(msgspec.Struct, rename="camel"):
    """A call of a tool."""

    call_id: str
    state: str
    result_digest: str | None = None


class ImageRequest(msgspec.Struct, rename="camel"):
    """A request to people."""

    request_id: str
    state: str
    answer_digest: str | None = None


class Image(msgspec.Struct, rename="camel", kw_only=True):
    """What the checkers need of a state; unknown members are somebody else's business."""

    state_id: str
    lifecycle: str
    next_source_seq: int
    acked_source_seq: int
    outbox: list[ImageEvent]
    peak_outbox_bytes: int
    last_controller_command_seq: int
    compacted_through_controller_seq: int
    commands: list[ImageCommand]
    turn: ImageTurn | None = None
    turns_started: int
    generation: int
    lines_accepted: int
    run_terminal: bool
    harness_survived: bool
    session_open: bool
    unrecoverable_outcome: str | None = None
    diagnostics: list[str] = []
    tool_calls: list[ImageCall] = []
    requests: list[ImageRequest] = []


class _File(msgspec.Struct, rename={"digest": "contentSha256"}):
    digest: str
    content: msgspec.Raw


_FILE: Final = msgspec.json.Decoder(_File)
_IMAGE: Final = msgspec.json.Decoder(Image)


@dataclass
class _Read:
    stable: bytes
    image: Image | None


class Observer:
    """Reads one disk; what it has read once it does not read again."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._read: dict[int, _Read] = {}

    def surviving(self) -> list[Image | None]:
        """Return every state that a power loss now could leave, `TORN` for none whole."""
        disk = self._disk
        number = disk.directory(ROOT).stable.get(DIRECTORY)
        if number is None:
            return [TORN]
        directory = disk.inodes[number]
        assert isinstance(directory, Directory)
        numbers = {directory.stable.get(NAME)}
        for operation in directory.operations:
            if operation.added == NAME:
                numbers.add(operation.number)
            elif operation.removed == NAME:
                numbers.add(None)
        return [self._image(found) for found in sorted(numbers, key=lambda n: n or 0)]

    def newest(self) -> Image | None:
        """Return the state that every process sees now, whatever a power loss would do."""
        number = self._disk.directory(ROOT).entries.get(DIRECTORY)
        if number is None:
            return TORN
        found = self._disk.directory(number).entries.get(NAME)
        if found is None:
            return TORN
        file = self._disk.inodes[found]
        assert isinstance(file, File)
        if file.tail:
            return TORN
        if not file.pieces and len(file.data) == len(file.stable):
            return self._image(found)
        return parse(bytes(file.data))

    def _image(self, number: int | None) -> Image | None:
        if number is None:
            return TORN
        file = self._disk.inodes.get(number)
        if not isinstance(file, File) or file.pieces or file.stable_tail:
            return TORN
        known = self._read.get(number)
        if known is None or known.stable is not file.stable:
            known = self._read[number] = _Read(file.stable, parse(file.stable))
        return known.image


def parse(data: bytes) -> Image | None:
    """Return the state in a file's bytes, or `TORN` if they do not prove themselves."""
    try:
        file = _FILE.decode(data)
        content = bytes(file.content)
        if hashlib.sha256(content).hexdigest() != file.digest:
            return TORN
        return _IMAGE.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return TORN
