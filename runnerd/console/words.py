"""The command line of `runnerd runs`: words in, one request out.

It decides which words can be meant together. It refuses to open anything.
"""

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from protocol.errors import PrpError
from runnerd.console.forms import Form, read_words
from runnerd.flags import usage
from runnerd.io.state_file import RUNS_FOLDER

USAGE: Final = """\
usage: runnerd runs list                          the runs of a folder
       runnerd runs show RUN                      one run: state, steps, effects
       runnerd runs timeline RUN                  its records, one a line
       runnerd runs resume --dry-run RUN          what a resumption would do, and why
                    [--config FILE] [--prompt TEXT]
       runnerd runs reconcile RUN CALL --outcome committed|not-done --evidence FILE
                    [--by NAME | --authority NAME] [--statement TEXT]
       runnerd runs verify [RUN | --bundle FILE]  proves every record, offline
       runnerd runs export RUN --output FILE      one bundle that verify accepts elsewhere

Each takes `--runs DIR`, the folder of the logs, or `--state-dir DIR`, a runner's directory, in
which that folder is `runs`; and `--json`. Only `reconcile` writes into the folder.

exit status:
   0  done; `resume`: it would be resumed
   3  nobody knows what became of an effect, or what a fault was
  64  the command line; another configuration, prompt or tools than the run began with
  65  no such run, the run is over, or a log or bundle is damaged or contradicts itself
  70  a fault of the program                      73  another process has the run
  74  the disk refused
"""

_RUNS: Final = "--runs"
STATE_DIR: Final = "--state-dir"
_DRY_RUN: Final = "--dry-run"
BUNDLE: Final = "--bundle"


FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {
        "list": Form(positionals=(0,)),
        "show": Form(positionals=(1,)),
        "timeline": Form(positionals=(1,)),
        "resume": Form(positionals=(1,), values=("--config", "--prompt"), bare=(_DRY_RUN,)),
        "reconcile": Form(
            positionals=(2,),
            needed=("--outcome", "--evidence"),
            values=("--by", "--authority", "--statement"),
        ),
        "verify": Form(positionals=(0, 1), values=(BUNDLE,)),
        "export": Form(positionals=(1,), needed=("--output",)),
    }
)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked."""

    command: str
    folder: str
    """Empty for a bundle, which lies in no folder."""
    place: tuple[str, str]
    """The flag and the directory that was named; it must be there, other than `folder`."""
    names: tuple[str, ...]
    values: Mapping[str, str]
    as_json: bool


def read_request(arguments: Sequence[str]) -> Request:
    """Return what the words behind `runs` ask for; raises PrpError ``usage_invalid``."""
    words = read_words("runs", FORMS, arguments, (_RUNS, STATE_DIR))
    command, names, values = words.command, words.names, words.values
    if command == "resume" and _DRY_RUN not in words.bare:
        raise usage(f"a run is resumed by its controller; here it can only be tried: {_DRY_RUN}")
    folder, place = _folder(values, names)
    return Request(
        command=command,
        folder=folder,
        place=place,
        names=names,
        values=values,
        as_json=words.as_json,
    )


def _folder(values: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, tuple[str, str]]:
    given = [flag for flag in (_RUNS, STATE_DIR, BUNDLE) if flag in values]
    if len(given) != 1 or (given == [BUNDLE] and names):
        raise _misplaced(BUNDLE in values)
    if BUNDLE in values:
        return "", (BUNDLE, "")
    [flag] = given
    named = values[flag]
    if not named:
        raise usage(f"{flag} has no value")
    return named if flag == _RUNS else os.path.join(named, RUNS_FOLDER), (flag, named)


def _misplaced(has_bundle: bool) -> PrpError:
    if has_bundle:
        return usage(f"{BUNDLE} stands alone")
    return usage(f"one of {_RUNS} and {STATE_DIR} is needed")
