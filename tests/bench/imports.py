"""Which modules a start of `runnerd` loads before its welcome, as the interpreter reports it.

It decides where the start ends in that report. It refuses to know why a module is loaded.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

FIRST_AFTER_WELCOME = "anyio"
"""The daemon imports it when it has been welcomed (D11)."""

_LINE = re.compile(r"import time:\s*\d+ \|\s*\d+ \|(?P<indent> +)(?P<module>\S+)")
_INDENT_PER_LEVEL = 2


class Import(msgspec.Struct, frozen=True):
    """One line of the report of ``-X importtime``: a module after all that it imported."""

    level: int
    module: str


def parse(report: Iterable[str]) -> Iterator[Import]:
    """Read the report; lines of anything else are passed over."""
    for line in report:
        if (match := _LINE.match(line)) is not None:
            yield Import(len(match["indent"]) // _INDENT_PER_LEVEL, match["module"])


def before_welcome(imports: Iterable[Import]) -> tuple[str, ...]:
    """Return the modules whose import was over when the first one after the welcome began.

    A module stands in the report below what it imported itself, which is deeper by one level.
    Nothing is read beyond that first one.
    """
    before: list[Import] = []
    for each in imports:
        if each.module == FIRST_AFTER_WELCOME:
            while before and before[-1].level > each.level:
                before.pop()
            return tuple(dict.fromkeys(each.module for each in before))
        before.append(each)
    raise ValueError(f"{FIRST_AFTER_WELCOME} was never imported")


def importing(modules: Sequence[str]) -> str:
    """Return a program that loads just these modules, says so on its standard output and ends.

    Like the daemon it spares the reader of package metadata, unless that is among them. The
    report also names what was looked for in vain, e.g. another platform's modules.
    """
    spared = "importlib.metadata"
    spare = f"sys.modules[{spared!r}] = type(sys)({spared!r})" if spared not in modules else ""
    return f"""
import gc
import os
import sys
from importlib import import_module

gc.disable()
{spare}
for name in {list(modules)!r}:
    if name not in sys.modules:
        try:
            import_module(name)
        except ImportError:
            pass
os.write(1, b".")
"""
