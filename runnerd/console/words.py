"""The command line of `runnerd runs`: words in, one request out.

It decides which words can be meant together. It refuses to open anything.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from protocol.errors import PrpError
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
"""

_RUNS: Final = "--runs"
_STATE_DIR: Final = "--state-dir"
_JSON: Final = "--json"
_DRY_RUN: Final = "--dry-run"
BUNDLE: Final = "--bundle"


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What one command takes beside the folder."""

    positionals: tuple[int, ...]
    needed: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()


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
    names: tuple[str, ...]
    values: Mapping[str, str]
    as_json: bool


def read_request(arguments: Sequence[str]) -> Request:
    """Return what the words behind `runs` ask for; raises PrpError ``usage_invalid``."""
    command = arguments[0] if arguments else ""
    form = FORMS.get(command)
    if form is None:
        raise usage(f"runs takes one of {', '.join(FORMS)}")
    names, values, bare = _sorted_out(command, form, arguments[1:])
    if len(names) not in form.positionals:
        raise usage(f"runs {command} takes {form.positionals[-1]} name(s), not {len(names)}")
    for flag in form.needed:
        if not values.get(flag):
            raise usage(f"{flag} is missing")
    if command == "resume" and _DRY_RUN not in bare:
        raise usage(f"a run is resumed by its controller; here it can only be tried: {_DRY_RUN}")
    return Request(
        command=command,
        folder=_folder(values, names),
        names=names,
        values=MappingProxyType(values),
        as_json=_JSON in bare,
    )


def _sorted_out(
    command: str, form: Form, arguments: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, str], set[str]]:
    allowed = (_RUNS, _STATE_DIR, *form.needed, *form.values)
    names: list[str] = []
    values: dict[str, str] = {}
    bare: set[str] = set()
    words = iter(arguments)
    for word in words:
        name, has_equals, value = word.partition("=")
        if not word.startswith("--"):
            names.append(word)
        elif word == _JSON or word in form.bare:
            bare.add(word)
        elif name not in allowed:
            raise usage(f"runs {command} takes no {ascii(name)[:64]}")
        elif name in values:
            raise usage(f"{name} is given twice")
        else:
            values[name] = value if has_equals else _next(words, name)
    return tuple(names), values, bare


def _next(words: Iterator[str], name: str) -> str:
    value = next(words, None)
    if value is None:
        raise usage(f"{name} has no value")
    return value


def _folder(values: Mapping[str, str], names: tuple[str, ...]) -> str:
    given = [flag for flag in (_RUNS, _STATE_DIR, BUNDLE) if flag in values]
    if len(given) != 1 or (given == [BUNDLE] and names):
        raise _misplaced(BUNDLE in values)
    if BUNDLE in values:
        return ""
    if not values[given[0]]:
        raise usage(f"{given[0]} has no value")
    if _RUNS in values:
        return values[_RUNS]
    return os.path.join(values[_STATE_DIR], RUNS_FOLDER)


def _misplaced(has_bundle: bool) -> PrpError:
    if has_bundle:
        return usage(f"{BUNDLE} stands alone")
    return usage(f"one of {_RUNS} and {_STATE_DIR} is needed")
