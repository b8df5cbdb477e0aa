"""Entry of `controller-mock`.

It decides what an interrupted or incomplete start looks like. It refuses to know the command
line, which it imports only when that is settled.
"""

import os
import sys

_OK = 0
_RUN_CANCELLED = 2
_INTERNAL = 70
"""As in ExitStatus, which is not loaded yet."""
_SERVE = "serve"


def main() -> int:
    """Perform the process's own command line; returns the exit status."""
    try:
        _take_sigterm_as_sigint()
        _fill_standard_streams()
        try:
            from controller_mock.console.command_line import perform
        except (ImportError, OSError) as error:
            missing = getattr(error, "name", None) or f"a module ({type(error).__name__})"
            reason = f"{missing} cannot be imported; install what the package depends on"
            print(f"controller-mock: internal_fault: {reason}", file=sys.stderr)
            return _INTERNAL
        return perform(sys.argv[1:])
    except KeyboardInterrupt:
        # Who serves is ended in no other way.
        return _OK if sys.argv[1:2] == [_SERVE] else _RUN_CANCELLED


def _take_sigterm_as_sigint() -> None:
    """Let SIGTERM end a start as SIGINT does, until a command takes both over."""
    # The interpreter has this one loaded, and it is all of `signal` that is needed.
    plain = sys.modules["_signal"]

    def interrupt(number: int, frame: object) -> None:
        on_sigint = plain.getsignal(plain.SIGINT)
        if not callable(on_sigint):
            raise KeyboardInterrupt
        on_sigint(number, frame)

    plain.signal(plain.SIGTERM, interrupt)


def _fill_standard_streams() -> None:
    """Give a process that was started without standard streams empty ones.

    Otherwise the next files that are opened, the store's lock among them, would receive what
    is meant for a person.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one. Programs that are started inherit it.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - for the whole process
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115 - for the whole process


if __name__ == "__main__":
    sys.exit(main())
