"""A real daemon under test: started, fed, signalled, and asked for its last words."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.runnerd.peer import IDENTITY, RUNNER_DIGEST, RUNNER_VERSION, TICKET
from tests.runnerd.peer_server import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[2]
STATE_FILE = "runner-state.json"
TICKET_VARIABLE = "PAPERCLIP_RUNNER_BOOTSTRAP_TICKET"


def flags(url: str, state_dir: Path) -> list[str]:
    """Return the required flags for the identity of the test controller."""
    return [
        *("--connect-url", url),
        *("--state-dir", str(state_dir)),
        *("--runner-id", IDENTITY.runner_instance_id),
        *("--environment-lease-id", IDENTITY.environment_lease_id),
        *("--run-id", IDENTITY.run_id),
        *("--session-id", IDENTITY.normalized_session_id),
        *("--turn-id", IDENTITY.turn_id),
        *("--item-id", IDENTITY.item_id),
        *("--runner-version", RUNNER_VERSION),
        *("--runner-digest", RUNNER_DIGEST),
    ]


class Daemon:
    """One started process; its standard error is kept whole."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        ticket: str | None = TICKET,
        wrapper: Sequence[str] = (),
        **environment: str,
    ) -> None:
        environ = {name: value for name, value in os.environ.items() if name != TICKET_VARIABLE}
        environ.update(environment)
        if ticket is not None:
            environ[TICKET_VARIABLE] = ticket
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, "-m", "runnerd", *arguments],
            cwd=REPOSITORY,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.stdout = ""
        self._lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def stderr(self) -> str:
        """Everything on standard error so far."""
        return "".join(self._lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self._lines.append(line)
                self._said.notify_all()

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait_for_fact(self, name: str) -> None:
        """Wait until a fact is logged."""
        with self._said:
            assert self._said.wait_for(lambda: bool(self.facts(name)), PATIENCE_S), self.stderr

    def wait(self) -> int:
        """Wait for the end and return the exit status."""
        assert self.process.stdout is not None
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self.stdout = self.process.stdout.read()
        assert "Traceback" not in self.stderr, self.stderr
        return self.process.returncode

    def facts(self, name: str) -> list[dict[str, object]]:
        """Return the logged facts of one name."""
        lines = [json.loads(line) for line in self.stderr.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    @property
    def last_line(self) -> str:
        """The last line on standard error."""
        return self.stderr.rstrip("\n").rpartition("\n")[2]

    @property
    def code(self) -> str:
        """The code in the last line."""
        return self.last_line.removeprefix("runnerd: ").partition(":")[0]

    def kill(self) -> None:
        """End the process if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def daemon(
    arguments: Sequence[str], *, ticket: str | None = TICKET, **environment: str
) -> Generator[Daemon]:
    """Run a daemon for the length of a test."""
    started = Daemon(arguments, ticket=ticket, **environment)
    try:
        yield started
    finally:
        started.kill()
