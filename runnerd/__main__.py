"""Entry of the program: the ticket leaves the environment before anything else happens.

It decides the order of the first moments. It refuses to know the daemon, which it imports
only when the ticket is safe.
"""

import gc
import os
import sys

from runnerd.ticket import capture

_INTERNAL = 70
"""ExitStatus.INTERNAL, which is not loaded yet."""


def main() -> int:
    """Run the daemon with the process's own arguments; returns the exit status."""
    captured = capture()
    # A start makes much that lives for ever and little that is garbage.
    gc.disable()
    from runnerd.startup import fill_standard_descriptors, import_daemon, listen_to_signals

    fill_standard_descriptors()
    stops = listen_to_signals()
    try:
        run = import_daemon()
    except (ImportError, OSError) as error:
        # The table of codes may be what is missing.
        missing = getattr(error, "name", None) or f"a module ({type(error).__name__})"
        reason = f"{missing} cannot be imported; install what the package depends on"
        os.write(2, f"runnerd: internal_fault: {reason}\n".encode())
        return _INTERNAL
    return run(sys.argv[1:], captured, stops)


if __name__ == "__main__":
    sys.exit(main())
