"""One program behind its gate: how it is started, held, released and let go.

It decides what a started program inherits: three pipes, an environment, a session of its own.
It refuses to know what the program prints and how its tree is ended.
"""

import contextlib
import os
import subprocess
from collections.abc import Mapping
from typing import Final

from protocol.errors import ErrorCode, PrpError
from protocol.redaction import bounded_diagnostic, redact_text
from runnerd.harness.pipes import ReadEnd
from runnerd.harness.proc import boot_id, read_process

_SHELL: Final = "/bin/sh"
_SHELL_OWN_NAMES: Final = ("PWD", "OLDPWD", "SHLVL")
"""Variables that shells add to what they hand on."""


class GatedProcess:
    """A process that becomes the program when its gate is opened, and ends when it is closed.

    It is a shell that reads one line from its standard input and then is replaced by the
    program, so pid, birth, session and group stay the same. The other end of the gate is
    held by this process alone: when it dies, the gate closes and the program never runs.
    """

    def __init__(
        self, popen: "subprocess.Popen[bytes]", gate: int, stdout: ReadEnd, stderr: ReadEnd
    ) -> None:
        birth = read_process(popen.pid, boot_id())
        assert birth is not None, "a child that nobody has waited for exists"
        self.birth = birth.birth
        self.stdout = stdout
        self.stderr = stderr
        self.pidfd = os.pidfd_open(popen.pid)
        self._popen = popen
        self._gate: int | None = gate

    def open_gate(self) -> None:
        """Let the program run, with nothing to read. A second call changes nothing."""
        if self._gate is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._gate, b"\n")
            self.close_gate()

    def open_gate_to_write(self) -> int | None:
        """Let the program run; returns where it reads from, which is now the caller's.

        None if the gate was opened or closed before, or the held process is gone.
        """
        gate, self._gate = self._gate, None
        if gate is None:
            return None
        try:
            os.write(gate, b"\n")
        except BrokenPipeError:
            os.close(gate)
            return None
        return gate

    def close_gate(self) -> None:
        """Let a program that is still held end without having run."""
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None

    def let_go(self, returncode: int) -> None:
        """Give every descriptor up, with the return code that the one reaper saw."""
        self.close_gate()
        self.stdout.close()
        self.stderr.close()
        os.close(self.pidfd)
        # Otherwise subprocess would wait for the process again, behind the reaper's back.
        self._popen.returncode = returncode


def spawn(argv: tuple[str, ...], cwd: str, environment: Mapping[str, str]) -> GatedProcess:
    """Start a program behind its gate, as leader of a new session and process group.

    Args:
        cwd: working directory, also for names in ``argv`` and on PATH that are relative.
        environment: all that the program sees.

    Returns:
        The held process. Raises PrpError ``harness_start_failed`` with a redacted reason;
        then no process is left.

    Source: runner-behaviour 12 and 13, faults P09 and H11.
    """
    try:
        # It loads its patterns with the first use: later there may be no descriptor for that.
        redact_text("")
    except (OSError, ImportError) as error:
        reason = "nothing can be redacted, so nothing can be told"
        raise PrpError(ErrorCode.HARNESS_START_FAILED, reason) from error
    _check(argv, cwd, environment.get("PATH", os.defpath))
    with contextlib.ExitStack() as undo:
        try:
            process = _spawn(argv, cwd, environment, undo)
        except (OSError, ValueError) as error:
            raise start_failed(f"it could not be started: {error}") from error
        undo.pop_all()
        return process


def start_failed(reason: str) -> PrpError:
    """Return the error of a program that never ran."""
    return PrpError(ErrorCode.HARNESS_START_FAILED, bounded_diagnostic(reason))


def _spawn(
    argv: tuple[str, ...], cwd: str, environment: Mapping[str, str], undo: contextlib.ExitStack
) -> GatedProcess:
    with contextlib.ExitStack() as ours_only:
        # Every end of a pipe is close-on-exec: only the duplicates made for the child stay.
        stdin, gate = _pipe(keep=undo, drop=ours_only, keeps_reading=False)
        stdout, child_stdout = _pipe(keep=undo, drop=ours_only, keeps_reading=True)
        stderr, child_stderr = _pipe(keep=undo, drop=ours_only, keeps_reading=True)
        popen = subprocess.Popen(
            (_SHELL, "-c", _gate_script(environment), "sh", *argv),
            stdin=stdin,
            stdout=child_stdout,
            stderr=child_stderr,
            cwd=cwd,
            env=environment,
            close_fds=True,
            start_new_session=True,
        )
        undo.callback(_kill_held, popen)
    return GatedProcess(popen, gate, ReadEnd(stdout), ReadEnd(stderr))


def _pipe(
    *, keep: contextlib.ExitStack, drop: contextlib.ExitStack, keeps_reading: bool
) -> tuple[int, int]:
    reading, writing = os.pipe()
    (keep if keeps_reading else drop).callback(os.close, reading)
    (drop if keeps_reading else keep).callback(os.close, writing)
    return reading, writing


def _kill_held(popen: "subprocess.Popen[bytes]") -> None:
    popen.kill()
    popen.wait()


def _gate_script(environment: Mapping[str, str]) -> str:
    added = " ".join(name for name in _SHELL_OWN_NAMES if name not in environment)
    # 125 is what programs that start others use for a failure of their own.
    return f'read -r _ || exit 125; unset {added}; exec "$@"'


def _check(argv: tuple[str, ...], cwd: str, path: str) -> None:
    """Refuse what the shell would only report as an exit status, with a clear reason."""
    if not argv or not argv[0]:
        raise start_failed("no program is named")
    if "\0" in cwd or any("\0" in argument for argument in argv):
        raise start_failed("an argument or the working directory holds a NUL")
    if not os.path.isdir(cwd):
        raise start_failed(f"the working directory does not exist: {cwd}")
    if not os.access(cwd, os.X_OK):
        raise start_failed(f"the working directory may not be entered: {cwd}")
    program = argv[0]
    if program.startswith("-"):
        raise start_failed(f"a program's name cannot begin with a dash: {program}")
    if "/" in program:
        candidates = [os.path.join(cwd, program)]
    else:
        candidates = [os.path.join(cwd, folder, program) for folder in path.split(os.pathsep)]
    files = [candidate for candidate in candidates if os.path.isfile(candidate)]
    if not files:
        place = "does not exist" if "/" in program else "is not on the PATH"
        if "/" in program and os.path.exists(candidates[0]):
            place = "is no file"
        raise start_failed(f"the program {place}: {program}")
    if not any(os.access(file, os.X_OK) for file in files):
        raise start_failed(f"the program may not be executed: {program}")
