"""An agent program that prints as many lines as it is asked for, when it is asked.

Started by a runner as ``agent.py ORDERS MOMENTS``: each line in the named pipe ORDERS is a
number of lines to print; the nanosecond before the first of them goes to MOMENTS, by the
monotonic clock and by the wall clock.
It imports nothing of the project.
"""

import os
import sys
import time

_LINES_PER_WRITE = 512


def main(orders: str, moments: str) -> None:
    """Print until nobody can order any more."""
    printed = 0
    with open(orders, "rb", buffering=0) as source, open(moments, "wb", buffering=0) as sink:
        while order := source.readline():
            wanted = int(order)
            lines = [b"line %d\n" % number for number in range(printed + 1, printed + wanted + 1)]
            chunks = [
                b"".join(lines[at : at + _LINES_PER_WRITE])
                for at in range(0, wanted, _LINES_PER_WRITE)
            ]
            sink.write(b"%d %d\n" % (time.monotonic_ns(), time.time_ns()))
            for chunk in chunks:
                _write_all(chunk)
            printed += wanted


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main(*sys.argv[1:])
