"""The runner's state file as an observer reads it: from the disk's stable bytes alone.

It decides what a power loss at this moment could leave. It shares no type and no reader
with the product, and refuses to ask it anything.
"""

import functools
import hashlib
from typing import Final

import msgspec

from tests.simulator.disk import ROOT, Directory, Disk, File

DIRECTORY: Final = "state"
PATH: Final = "/" + DIRECTORY
NAME: Final = "runner-state.json"

TORN: Final = None
"""A content that is not one whole published state."""


class ImageEvent(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One unacknowledged event; ``body`` keeps its bytes."""

    source_seq: int
    priority: int
    event_type: str
    body: msgspec.Raw


class ImageCommand(msgspec.Struct, frozen=True, gc=False, rename="camel"):
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


class ImageTurn(msgspec.Struct, frozen=True, gc=False, rename="camel"):
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


class ImageCall(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A call of a tool."""

    call_id: str
    state: str
    result_digest: str | None = None


class ImageRequest(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A request to people."""

    request_id: str
    state: str
    answer_digest: str | None = None


class Image(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
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
    cancel_unrecorded: bool
    """The run is over and its end is told later, when its log has it."""
    harness_survived: bool
    session_open: bool
    unrecoverable_outcome: str | None = None
    diagnostics: list[str] = []
    tool_calls: list[ImageCall] = []
    requests: list[ImageRequest] = []


class _Header(msgspec.Struct, rename={"digest": "contentSha256"}):
    digest: str


_HEADER: Final = msgspec.json.Decoder(_Header)
_IMAGE: Final = msgspec.json.Decoder(Image)
_BEFORE_CONTENT: Final = b',"content":'
_AFTER_CONTENT: Final = b"}\n"
_PARSED_MAX: Final = 512
"""Contents that are remembered: those of a few histories, and where histories begin."""


class Observer:
    """Reads one disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

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
        return parse(file.stable)


@functools.lru_cache(_PARSED_MAX)
def parse(data: bytes) -> Image | None:
    """Return the state in a file's bytes, or `TORN` if they do not prove themselves."""
    header, found, rest = data.partition(_BEFORE_CONTENT)
    if not found or not rest.endswith(_AFTER_CONTENT):
        return TORN
    content = rest[: -len(_AFTER_CONTENT)]
    try:
        if hashlib.sha256(content).hexdigest() != _HEADER.decode(header + b"}").digest:
            return TORN
        return _IMAGE.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return TORN
