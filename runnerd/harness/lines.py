"""Lines out of a stream of bytes, within a bound.

It decides where a line ends and which one is too long. It refuses to know where the bytes
come from and who wants the lines.
"""

from collections import deque

_NEWLINE = b"\n"
_RETURN = b"\r"


class LineSplitter:
    """Splits at LF, drops one CR before it, and for text replaces what is not UTF-8.

    It holds no more than the lines of one push and one unfinished line. After a line that
    exceeds the bound, ``is_overlong`` is set and everything from that line on is dropped.
    """

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._lines: deque[bytes] = deque()
        self._unfinished = bytearray()
        self.is_overlong = False

    @property
    def has_line(self) -> bool:
        """A complete line can be taken."""
        return bool(self._lines)

    def push(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        if self.is_overlong:
            return
        first, newline, rest = data.partition(_NEWLINE)
        self._unfinished += first
        if newline:
            lines = rest.split(_NEWLINE)
            last = lines.pop()
            for line in (bytes(self._unfinished), *lines):
                if not self._add(line):
                    return
            self._unfinished = bytearray(last)
        # One byte more may still be the CR of a line end.
        if len(self._unfinished.removesuffix(_RETURN)) > self._line_bytes_max:
            self._drop()

    def take(self, lines_max: int, bytes_max: int) -> tuple[str, ...]:
        """Return the next lines as text; otherwise as `take_raw`."""
        return tuple(
            line.decode("utf-8", "replace") for line in self.take_raw(lines_max, bytes_max)
        )

    def take_raw(self, lines_max: int, bytes_max: int) -> tuple[bytes, ...]:
        """Return the next lines, in order, and keep the others.

        Args:
            bytes_max: of the lines without their ends; a first line may exceed it alone.
        """
        taken: list[bytes] = []
        size = 0
        while self._lines and len(taken) < lines_max:
            size += len(self._lines[0])
            if taken and size > bytes_max:
                break
            taken.append(self._lines.popleft())
        return tuple(taken)

    def finish_last(self) -> None:
        """Make the unfinished line, if there is one, a line: the stream ended on purpose."""
        if self._unfinished:
            self._add(bytes(self._unfinished))
            self._unfinished.clear()

    def take_torn(self) -> str:
        """Return and drop the unfinished line, empty if there is none: the stream was cut off."""
        torn = self._unfinished.decode("utf-8", "replace")
        self._unfinished.clear()
        return torn

    def _add(self, line: bytes) -> bool:
        line = line.removesuffix(_RETURN)
        if len(line) > self._line_bytes_max:
            self._drop()
            return False
        self._lines.append(line)
        return True

    def _drop(self) -> None:
        self.is_overlong = True
        self._unfinished.clear()
