"""The bounded, redacted tail of a harness's standard error.

It decides which last lines are kept and that no secret is among them. It refuses to write
them anywhere.
"""

from collections import deque
from typing import Final

from protocol.limits import HARNESS_LINE_BYTES_MAX, STDERR_TAIL_BYTES_MAX, STDERR_TAIL_LINES_MAX
from protocol.redaction import bounded_diagnostic, redact_text
from runnerd.core.inputs import HarnessLogs

OVERSIZED: Final = b"[a line that is too long was left out]"
_NEWLINE: Final = b"\n"
_KEY_BEGINS: Final = b"-----BEGIN "
_KEY: Final = b"PRIVATE KEY"
_KEY_LEFT_OUT: Final = b"[REDACTED]"


class StderrTail:
    """Takes any number of bytes and keeps the last lines.

    A private key is known by its first line, which may have left the tail before its last,
    so keys are taken out as they come; everything else is redacted when the tail is asked for.
    """

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._seen_lines = 0
        self._unfinished = bytearray()
        self._is_oversized = False
        self._in_key = False

    def push(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        first, newline, rest = data.partition(_NEWLINE)
        self._extend(first)
        if not newline:
            return
        self._end_line()
        if self._in_key or _KEY in rest:
            lines = rest.split(_NEWLINE)
        else:
            # Of a flood only the end is cut into lines.
            lines = rest.rsplit(_NEWLINE, STDERR_TAIL_LINES_MAX + 1)
            self._seen_lines += rest.count(_NEWLINE) + 1 - len(lines)
        last = lines.pop()
        for line in lines:
            self._extend(line)
            self._end_line()
        self._extend(last)

    def push_line(self, text: str) -> None:
        """Add a line of our own."""
        self._end_unfinished()
        self._extend(text.encode().replace(_NEWLINE, b" "))
        self._end_line()

    def logs(self) -> HarnessLogs:
        """Return the tail, redacted first and cut afterwards; the stream has ended."""
        self._end_unfinished()
        text = _NEWLINE.join(self._kept).decode("utf-8", "replace")
        lines = deque(
            bounded_diagnostic(line) for line in (redact_text(text).split("\n") if text else ())
        )
        size = sum(len(line.encode()) for line in lines)
        while size > STDERR_TAIL_BYTES_MAX or len(lines) > STDERR_TAIL_LINES_MAX:
            size -= len(lines.popleft().encode())
        return HarnessLogs(
            lines=tuple(lines),
            retained_bytes=size,
            dropped_lines=max(0, self._seen_lines - len(lines)),
        )

    def _extend(self, data: bytes) -> None:
        if self._is_oversized:
            return
        self._unfinished += data
        if len(self._unfinished) > HARNESS_LINE_BYTES_MAX:
            self._unfinished.clear()
            self._is_oversized = True

    def _end_unfinished(self) -> None:
        if self._unfinished or self._is_oversized:
            self._end_line()

    def _end_line(self) -> None:
        line = OVERSIZED if self._is_oversized else bytes(self._unfinished).removesuffix(b"\r")
        self._unfinished.clear()
        self._is_oversized = False
        self._seen_lines += 1
        if self._in_key:
            self._in_key = not _is_key_end(line)
            return
        if _is_key_begin(line):
            self._in_key = True
            line = _KEY_LEFT_OUT
        self._keep(line)

    def _keep(self, line: bytes) -> None:
        self._kept.append(line)
        self._kept_bytes += len(line)
        while len(self._kept) > 1 and (
            len(self._kept) > STDERR_TAIL_LINES_MAX or self._kept_bytes > STDERR_TAIL_BYTES_MAX
        ):
            self._kept_bytes -= len(self._kept.popleft())


def _is_key_begin(line: bytes) -> bool:
    """A key that also ends in this line is left to the redaction of text."""
    begin = line.rfind(_KEY_BEGINS)
    return begin >= 0 and _KEY in line[begin:] and b"-----END " not in line[begin:]


def _is_key_end(line: bytes) -> bool:
    return b"-----END " in line and _KEY in line
