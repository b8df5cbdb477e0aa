"""A failing history for people: what broke, how to run it again, and its story.

It decides the words. It refuses to run anything but a replay.
"""

import subprocess
from pathlib import Path
from typing import Final

from tests.simulator.minimise import minimise
from tests.simulator.stacks import replay
from tests.simulator.tape import write
from tests.simulator.trace import story, trace_hash
from tests.simulator.verdict import Outcome

ROOT: Final = Path(__file__).resolve().parents[2]
FAILURES: Final = ROOT / ".cache" / "simulator"
_STORY_LINES: Final = 30


def build() -> str:
    """Return the commit that is checked out, as far as that is known."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip()


def headline(outcome: Outcome) -> str:
    """Return the first line: the invariant, and where it broke."""
    assert outcome.violation is not None
    seconds, ms = divmod(outcome.virtual_ms, 1000)
    virtual = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}"
    return f"FAIL {outcome.violation}  step={outcome.step}/{outcome.steps}  virtual={virtual}"


def say_failed(stack: str, seed: int, words: str) -> None:
    """Print a failing seed in one piece: other processes print to the same place."""
    text = f"FAIL {words}  stack={stack}  seed={seed}\n  replay:    {_replay(stack, seed)}\n"
    print(text, end="", flush=True)


def _replay(stack: str, seed: int) -> str:
    return f"./dev simulate --stack {stack} --seed {seed}"


def full_report(outcome: Outcome, *, minimised: bool = True) -> str:
    """Return everything that is printed of a failing history; writes its tape."""
    assert outcome.violation is not None
    lines = [
        headline(outcome),
        f"  stack={outcome.stack}  seed={outcome.draws.seed}  profile={outcome.profile}",
        f"  build={build()}  trace={trace_hash(outcome.trace)}",
        f"  replay:    {_replay(outcome.stack, outcome.draws.seed)}",
    ]
    told = outcome
    if minimised:
        tape = minimise(outcome)
        path = write(tape, FAILURES)
        told = replay(tape)
        before = sum(len(values) for values in outcome.draws.recorded().values())
        after = sum(len(values) for values in tape.draws.values())
        lines.append(
            f"  minimised: ./dev simulate --tape {path.relative_to(ROOT)}"
            f"  (draws {before} -> {after}, steps {outcome.steps} -> {told.steps},"
            f" families {len(outcome.families)} -> {len(told.families)})"
        )
    lines.append("  story:")
    lines += [f"    {line}" for line in story(told.trace, _STORY_LINES)]
    return "\n".join(lines)
