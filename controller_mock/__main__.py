"""Entry of `controller-mock`.

It decides what an interrupted or incomplete start looks like. It refuses to know the command
line, which it imports only when that is settled.
"""

import sys

_RUN_CANCELLED = 2
_INTERNAL = 70
"""As in ExitStatus, which is not loaded yet."""


def main() -> int:
    """Perform the process's own command line; returns the exit status."""
    try:
        try:
            from controller_mock.console.command_line import perform
        except (ImportError, OSError) as error:
            missing = getattr(error, "name", None) or f"a module ({type(error).__name__})"
            reason = f"{missing} cannot be imported; install what the package depends on"
            print(f"controller-mock: internal_fault: {reason}", file=sys.stderr)
            return _INTERNAL
        return perform(sys.argv[1:])
    except KeyboardInterrupt:
        return _RUN_CANCELLED


if __name__ == "__main__":
    sys.exit(main())
