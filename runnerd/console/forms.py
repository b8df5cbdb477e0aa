"""The words behind a group of commands: names, flags with values, bare flags.

It decides which words a command's form allows. It refuses to know what they mean.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from runnerd.flags import usage

_JSON: Final = "--json"
_SHOWN_LENGTH_MAX: Final = 64


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What one command takes beside the folder."""

    positionals: tuple[int, ...]
    needed: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """A command line that fits a form."""

    command: str
    names: tuple[str, ...]
    values: Mapping[str, str]
    bare: frozenset[str]

    @property
    def as_json(self) -> bool:
        """Whether a machine is to read the answer."""
        return _JSON in self.bare


def read_words(
    group: str, forms: Mapping[str, Form], arguments: Sequence[str], common: tuple[str, ...]
) -> Words:
    """Return what stands behind the name of a group.

    A value stands behind its flag or behind an equals sign; one that begins with two
    dashes needs the latter.

    Args:
        common: flags with a value that every command takes.

    Raises:
        PrpError: ``usage_invalid`` naming what does not fit.
    """
    command = arguments[0] if arguments else ""
    form = forms.get(command)
    if form is None:
        raise usage(f"{group} takes one of {', '.join(forms)}")
    words = _sorted_out(f"{group} {command}", form, arguments[1:], common)
    if len(words.names) not in form.positionals:
        wanted, found = form.positionals[-1], len(words.names)
        raise usage(f"{group} {command} takes {wanted} name(s), not {found}")
    for flag in form.needed:
        if not words.values.get(flag):
            raise usage(f"{flag} is missing")
    return msgspec.structs.replace(words, command=command)


def _sorted_out(
    command: str, form: Form, arguments: Sequence[str], common: tuple[str, ...]
) -> Words:
    allowed = (*common, *form.needed, *form.values)
    names: list[str] = []
    values: dict[str, str] = {}
    bare: list[str] = []
    words = iter(arguments)
    for word in words:
        name, has_equals, value = word.partition("=")
        if not word.startswith("--"):
            names.append(word)
        elif word == _JSON or word in form.bare:
            bare.append(word)
        elif name not in allowed:
            raise usage(f"{command} takes no {ascii(name)[:_SHOWN_LENGTH_MAX]}")
        elif name in values:
            raise usage(f"{name} is given twice")
        else:
            values[name] = value if has_equals else _next(words, name)
    return Words(
        command=command,
        names=tuple(names),
        values=MappingProxyType(values),
        bare=frozenset(bare),
    )


def _next(words: Iterator[str], name: str) -> str:
    value = next(words, None)
    if value is None or value.startswith("--"):
        raise usage(f"{name} has no value")
    return value
