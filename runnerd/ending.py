"""The last moments: how an end that is not the clean one is told, and where.

It decides which words reach standard error and the diagnostics file. It refuses to decide
that or why the process ends.
"""

import os
import traceback
from typing import TypeGuard

from protocol.base.posix_fs import SystemEntropy
from protocol.errors import ErrorCode, ExitStatus, exit_status
from runnerd.help import last_line
from runnerd.io.diagnostics import leave_last_words
from runnerd.io.log import StandardError


def tell_end(
    code: ErrorCode,
    message: str = "",
    *,
    last_failure: ErrorCode | None,
    diagnostics_directory: str | None,
    remedy: str = "",
) -> ExitStatus:
    """Write the one last line, and leave it in the diagnostics directory if it is a failure.

    Args:
        message: what happened; the code's own words if empty.
        last_failure: why the last connection or attempt ended, if none stands.
        remedy: what to do; the code's own words if empty.

    Returns:
        The documented status of the code.
    """
    detail = "" if last_failure is None else f"last: {last_failure.value}"
    line = last_line(code, message, detail, remedy)
    is_failure = code is not ErrorCode.STOP_REQUESTED
    _say(line, line if is_failure else "", diagnostics_directory)
    return exit_status(code)


def tell_fault(error: Exception, *, diagnostics_directory: str | None) -> ExitStatus:
    """Report a fault of ours by its kind and place.

    What the error says may quote anything, so it goes only into the diagnostics file,
    which is redacted.
    """
    cause = _root_cause(error)
    frames = traceback.extract_tb(cause.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "unknown"
    line = last_line(ErrorCode.INTERNAL_FAULT, detail=f"{type(cause).__name__} at {place}")
    story = line + "\n" + "".join(traceback.format_exception(error))
    _say(line, story, diagnostics_directory)
    return ExitStatus.INTERNAL


def _root_cause(error: BaseException) -> BaseException:
    """Return what began it: inside groups of tasks, and behind what only passed it on."""
    while True:
        if _is_group(error):
            error = error.exceptions[0]
        elif error.__cause__ is not None:
            error = error.__cause__
        else:
            return error


def _is_group(error: BaseException) -> TypeGuard[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)


def _say(line: str, last_words: str, diagnostics_directory: str | None) -> None:
    StandardError().write_line(line)
    if diagnostics_directory is not None and last_words:
        leave_last_words(diagnostics_directory, last_words + "\n", SystemEntropy())
