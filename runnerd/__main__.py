"""Entry of the program: the ticket leaves the environment before anything else is imported.

It decides the order of the first moments. It refuses to know the daemon, which it imports
only when the ticket is safe.
"""

import gc
import os
import sys

_INTERNAL = 70
"""ExitStatus.INTERNAL, which is not loaded yet."""


def main() -> int:
    """Run the daemon with the process's own arguments; returns the exit status."""
    noted = _note_stops()
    from runnerd.ticket import capture

    captured = capture()
    # A start makes much that lives for ever and little that is garbage.
    gc.disable()
    from runnerd.startup import fill_standard_descriptors, import_daemon, listen_to_signals

    fill_standard_descriptors()
    stops = listen_to_signals(noted)
    try:
        run = import_daemon()
    except (ImportError, OSError) as error:
        # The table of codes may be what is missing.
        missing = getattr(error, "name", None) or f"a module ({type(error).__name__})"
        reason = f"{missing} cannot be imported; install what the package depends on"
        os.write(2, f"runnerd: internal_fault: {reason}\n".encode())
        return _INTERNAL
    return run(sys.argv[1:], captured, stops)


def _note_stops() -> list[int]:
    """Note SIGTERM and SIGINT from here on, instead of dying of them; returns the noted ones."""
    noted: list[int] = []

    def note(number: int, frame: object) -> None:
        noted.append(number)

    # The interpreter has this one loaded. `signal`, which wraps it, would cost the ticket the
    # time that its enumerations take.
    plain = sys.modules["_signal"]
    for number in (plain.SIGTERM, plain.SIGINT):
        if plain.getsignal(number) != plain.SIG_IGN:
            plain.signal(number, note)
    return noted


if __name__ == "__main__":
    sys.exit(main())
