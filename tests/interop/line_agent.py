"""An agent program: prints numbered lines, and stops at each barrier until it is opened.

Arguments: how many lines, then one FIFO a barrier; the barriers lie at equal distances.
"""

import os
import sys


def main(count: int, barriers: list[str]) -> None:
    accepted = int(os.environ["RUNNERD_LINES_ACCEPTED"])
    part = count // (len(barriers) + 1)
    for number in range(accepted + 1, count + 1):
        print(f"line {number}", flush=True)
        index = number // part - 1
        if number % part == 0 and index < len(barriers):
            with open(barriers[index]) as barrier:
                barrier.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
