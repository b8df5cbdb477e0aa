"""A program starts behind its gate, with three descriptors and the environment it was given."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, PrpError
from runnerd.harness.process import GatedProcess, spawn
from tests.runnerd.harness.support import lives, python, shell, wait_dead, wait_until

PATH = {"PATH": os.environ["PATH"]}


@contextlib.contextmanager
def spawned(*argv: str, cwd: str = "/", **environment: str) -> Generator[GatedProcess]:
    process = spawn(argv, cwd, PATH | environment)
    try:
        yield process
    finally:
        signal.pidfd_send_signal(process.pidfd, signal.SIGKILL)
        wait_dead(process.pidfd)
        _, status = os.waitpid(process.birth.pid, 0)
        process.let_go(os.waitstatus_to_exitcode(status))


def is_waiting_shell(pid: int) -> bool:
    name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition(")")
    return name.endswith("(sh") and rest.split()[0] == "S"


def output_of(process: GatedProcess) -> bytes:
    process.open_gate()
    wait_dead(process.pidfd)
    return process.stdout.read() or b""


def refusal(*argv: str, cwd: str = "/", path: str = os.environ["PATH"]) -> str:
    with pytest.raises(PrpError) as caught:
        spawn(argv, cwd, {"PATH": path})
    assert caught.value.code is ErrorCode.HARNESS_START_FAILED
    return caught.value.message


def test_program_runs_only_after_the_gate_is_opened(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with spawned("touch", str(ran)) as process:
        wait_until(lambda: is_waiting_shell(process.birth.pid))

        assert not ran.exists()
        process.open_gate()
        process.open_gate()
        wait_dead(process.pidfd)

    assert ran.exists()


def test_program_never_runs_when_the_gate_is_closed(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    with spawned("touch", str(ran)) as process:
        process.close_gate()
        process.open_gate()
        wait_dead(process.pidfd)
        status = os.waitid(os.P_PIDFD, process.pidfd, os.WEXITED | os.WNOWAIT)

    assert status is not None
    assert (status.si_code, status.si_status) == (os.CLD_EXITED, 125)
    assert not ran.exists()


def test_program_leads_a_session_and_group_of_its_own_and_keeps_its_birth() -> None:
    source = (
        "import os; print(os.getpid(), os.getpgid(0), os.getsid(0), open('/proc/self/stat').read())"
    )
    with spawned(*python(source)) as process:
        birth = process.birth

        printed = output_of(process).decode().split()

    assert printed[:3] == [str(birth.pid)] * 3
    assert (birth.process_group_id, birth.session_id) == (birth.pid, birth.pid)
    assert str(birth.start_ticks) in printed
    assert birth.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_only_the_standard_descriptors_reach_the_program() -> None:
    source = "import os; print(sorted(os.listdir('/proc/self/fd'), key=int))"
    inherited = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        with spawned(*python(source)) as process:
            printed = output_of(process)
    finally:
        os.close(inherited)

    # The fourth is the listing's own.
    assert printed == b"['0', '1', '2', '3']\n"


def test_standard_input_of_the_program_is_at_its_end() -> None:
    with spawned("cat") as process:
        assert output_of(process) == b""


@pytest.mark.parametrize("extra", [{}, {"PWD": "/", "SHLVL": "7"}])
def test_environment_of_the_program_is_exact(extra: dict[str, str]) -> None:
    source = "import os, json; print(json.dumps(dict(os.environ)))"
    with spawned(*python(source), LC_ALL="C", ODD="a b\n'\"$(x)\\", **extra) as process:
        printed = json.loads(output_of(process))

    # bash as sh names the program in `_`; Python adds LC_CTYPE when it leaves the C locale.
    for added in {"_", "LC_CTYPE", "SHLVL"} - set(extra):
        printed.pop(added, None)
    if "SHLVL" in extra:
        printed["SHLVL"] = "7"
    assert printed == PATH | {"LC_ALL": "C", "ODD": "a b\n'\"$(x)\\"} | extra


def test_arguments_reach_the_program_as_they_are() -> None:
    odd = ("", "a b", "$HOME", "'\"", "-n", "ä\n\\")
    with spawned(*python("import sys; print(sys.argv[1:])", *odd)) as process:
        assert output_of(process).decode() == f"{list(odd)!r}\n"


def test_program_is_found_relative_to_its_working_directory(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "agent"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho here\n")
    script.chmod(0o755)

    with spawned("bin/agent", cwd=str(tmp_path)) as process:
        assert output_of(process) == b"here\n"
    with spawned("agent", cwd=str(tmp_path), PATH="bin") as process:
        assert output_of(process) == b"here\n"


def test_reason_is_clear_when_a_program_cannot_be_started(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")

    assert refusal() == "no program is named"
    assert refusal("") == "no program is named"
    assert refusal("no-such-program") == "the program is not on the PATH: no-such-program"
    assert refusal("true", path="") == "the program is not on the PATH: true"
    assert refusal("./none") == "the program does not exist: ./none"
    assert refusal("/") == "the program is no file: /"
    assert refusal(str(plain)) == f"the program may not be executed: {plain}"
    assert refusal("plain", path=str(tmp_path)) == "the program may not be executed: plain"
    assert refusal("true", cwd="/none") == "the working directory does not exist: /none"
    assert refusal("-c") == "a program's name cannot begin with a dash: -c"
    assert refusal("true", "a\0b") == "an argument or the working directory holds a NUL"
    assert "Argument list too long" in refusal("true", "x" * 4_000_000)
    assert refusal("true", "\ud800").startswith("it could not be started")


def test_nothing_is_left_when_descriptors_run_out_at_any_point() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = sorted(os.listdir("/proc/self/fd"))
    taken = {int(name) for name in before}
    # The limit is on numbers, and those of other open files lie between the free ones.
    free = [number for number in range(soft) if number not in taken][:24]
    reasons: list[str] = []
    for limit in free:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            with spawned("true"):
                pass
        except PrpError as error:
            reasons.append(error.message)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert 6 <= len(reasons) < 24
    assert all("Too many open files" in reason for reason in reasons)
    assert sorted(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


REFUSING = """
import os, resource, sys
from protocol.errors import PrpError
from protocol.redaction import redact_text
from runnerd.harness.process import spawn
environ = {"PATH": os.environ["PATH"]}
if sys.argv[1] == "processes":
    redact_text("")
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 65534)  # the limit does not hold for root
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
else:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    spawn(("true",), "/", environ)
except PrpError as error:
    print(error.code.value, error.message)
"""


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ("processes", "it could not be started: [Errno 11]"),
        ("descriptors", "nothing can be redacted, so nothing can be told"),
    ],
)
def test_start_fails_with_a_reason_when_the_kernel_refuses(refused: str, reason: str) -> None:
    done = subprocess.run(
        (sys.executable, "-c", REFUSING, refused), capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith(f"harness_start_failed {reason}")


def test_program_is_gone_when_its_start_is_undone(tmp_path: Path) -> None:
    with spawned(*shell("sleep 1000")) as process:
        process.open_gate()
        pid = process.birth.pid
        assert lives(pid)

    assert not lives(pid)
