"""Entry of `controller-mock`.

It decides what an interrupted start looks like. It refuses to know the command line, which it
imports only when that is settled.
"""

import sys

_RUN_CANCELLED = 2
"""ExitStatus.RUN_CANCELLED, which is not loaded yet."""


def main() -> int:
    """Perform the process's own command line; returns the exit status."""
    try:
        from controller_mock.console.command_line import perform

        return perform(sys.argv[1:])
    except KeyboardInterrupt:
        return _RUN_CANCELLED


if __name__ == "__main__":
    sys.exit(main())
