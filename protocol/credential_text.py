"""Finds what looks like a credential in text.

It decides by name and by shape, and where both leave a doubt it finds one. It refuses to
know where a text comes from.
"""

import re
from collections.abc import Callable
from typing import Final

from protocol.errors import ErrorCode
from protocol.redaction import MARK

# Every pattern is bounded or possessive, so that no text makes one slow.

_SHAPES: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?s:.*?)(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
    r"|(?<![A-Za-z0-9_])(?:"
    r"sk-[A-Za-z0-9_-]{12,}+"
    r"|gh[oprsu]_[A-Za-z0-9_]{20,}+"
    r"|github_pat_[A-Za-z0-9_]{20,}+"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}+"
    r"|AKIA[A-Z0-9]{16}"
    r"|(?:bootstrap|lease)_(?:[0-9a-f]{40,}+|[0-9a-f]{8}-[0-9a-f-]{27})"
    r")"
)
"""Private keys, the access keys of common services, and this protocol's own tokens."""
_USERINFO: Final = re.compile(r"(://[^\s/:@]{0,256}+:)([^\s/]{1,256})(?=@)")
_DOTTED: Final = re.compile(
    r"(?<![\w.-])[A-Za-z0-9_-]{8,4096}+(?:\.[A-Za-z0-9_-]{8,8192}+){2,4}(?![\w-])"
)
"""Three to five segments: a signed or sealed token, or a dotted name of a program."""

_NAME: Final = re.compile(
    r"authorization|bearer|browser[-_]?code|cookie|connection[-_]?string|jwt|login[-_]?url"
    r"|password|passwd|private[-_]?key|secret|token|ticket|api[-_]?key|credential",
    re.IGNORECASE,
)
_PROSE_NAME: Final = re.compile(r"(?:token|ticket|credential)s?", re.IGNORECASE)
"""A name that people use in sentences, before words that are no value."""
_NAME_CHARACTERS: Final = "-_.ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_NAME_LENGTH_MAX: Final = 256
_ASSIGNED: Final = re.compile(r"""(\\{0,8}["'`])?\]?[ \t]{0,8}+(?::=|=>|={1,2}|:)([ \t]{0,8}+)""")
_SPACED: Final = re.compile(r"[ \t]{1,8}+")
_QUOTE: Final = re.compile(r"""(\\{0,8})(["'`])""")
_WORD: Final = re.compile(r"""(?:[^\s"'`<>&\\]|\\(?!["'`]))++""")
_ESCAPES_MAX: Final = 16
_SCHEME: Final = re.compile(r"(?:basic|bearer|digest|negotiate|token)[ \t]{1,8}", re.IGNORECASE)
_TRAILING: Final = ".,;:!?)]}"

_PLAIN: Final = re.compile(r"[A-Za-z]{1,16}|[^\w]{1,8}")
"""A word of a sentence, or the punctuation that a parser complains of."""
_REFERENCE: Final = re.compile(r"[A-Z]{2,10}-[0-9]{1,6}|https?://.*")
"""A ticket of another kind: what an issue tracker calls one."""
_EMPTY: Final = re.compile(r"(?:null|none|nil|undefined|true|false|<redacted>)?", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9.,_]{0,30}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_COUNTER: Final = re.compile(
    r"(?:input|output|cached?|read|write|thought|reasoning|prompt|completion|context"
    r"|total|max|min|num|pre|post|used)*+tokens?(?:used|count|budget|limit)?|tokens"
)
_COUNTS: Final = re.compile(
    r"""[\[{]\s{0,8}(?:\\{0,8}["']?\w{1,64}\\{0,8}["']?\s{0,8}:\s{0,8}[\[{]?\s{0,8}){0,4}[0-9]"""
)
"""The beginning of a list or object of numbers."""
_BOUNDARIES: Final = frozenset(
    {"company", "actor", "active_task", "grant", "governed_action", "lock", "revision"}
)

_LIKELY_LENGTH_MIN: Final = 6
_SURE_LENGTH_MIN: Final = 24
_OWN_CODES: Final = frozenset(code.value for code in ErrorCode if _NAME.search(code.value))
"""Codes that speak of credentials: what follows them is a message."""

Span = tuple[int, int]


def without_credentials(text: str) -> str:
    """Return ``text`` with every credential that its name or shape gives away replaced.

    Idempotent. Identities, digests, counters and sentences about tokens stay.

    Source: runner-behaviour 14, text rule.
    """
    text = _SHAPES.sub(MARK, text)
    text = _USERINFO.sub(rf"\g<1>{MARK}", text)
    text = _DOTTED.sub(lambda found: MARK if _is_signed_token(found[0]) else found[0], text)
    pieces: list[str] = []
    done = position = 0
    while (core := _NAME.search(text, position)) is not None:
        start, position = _whole_name(text, core)
        span = _value_of(text, text[start:position], core[0], position)
        if span is not None:
            pieces += (text[done : span[0]], MARK)
            done = position = span[1]
    return "".join((*pieces, text[done:]))


def is_credential(name: str) -> bool:
    """Tell whether a member of this name holds a credential, unless one of the below says not."""
    return _NAME.search(name) is not None


def is_counter(name: str) -> bool:
    """Tell whether the name counts tokens of text, so that a number under it is no secret."""
    last = name.rpartition(".")[2].lower().replace("-", "").replace("_", "")
    return _COUNTER.fullmatch(last) is not None


def is_boundary(name: str, value: str) -> bool:
    """Tell whether this is the boundary that authorized a tool call: one of seven words."""
    return name in ("authorizationBoundary", "authorization_boundary") and value in _BOUNDARIES


# --- The value behind a name ------------------------------------------------------------------


def _value_of(text: str, name: str, core: str, end: int) -> Span | None:
    """Return where the value stands that ``name``, which ends at ``end``, announces.

    None if there is none, or none that has to go.
    """
    if name.lower() in _OWN_CODES:
        return None
    if (assigned := _ASSIGNED.match(text, end)) is not None:
        span = _assigned_value(text, name, assigned)
    elif (spaced := _SPACED.match(text, end)) is not None:
        span = _spaced_value(text, name, core, spaced.end())
    else:
        return None
    return None if span is None or _is_harmless(text[slice(*span)], name) else span


def _assigned_value(text: str, name: str, assigned: re.Match[str]) -> Span | None:
    start = assigned.end()
    is_sentence = not assigned[1] and bool(assigned[2]) and _PROSE_NAME.fullmatch(name) is not None
    if text.startswith(MARK, start):
        return None
    if (quote := _QUOTE.match(text, start)) is not None:
        quoted = (quote.end(), _closing(text, quote))
        is_complaint = is_sentence and not _has(str.isalnum, text[slice(*quoted)])
        return None if is_complaint else quoted
    if "cookie" in name.lower() or text.startswith(("{", "["), start):
        # Several values may follow, so the whole line goes.
        is_count = is_counter(name) and _COUNTS.match(text, start)
        return None if is_count else _rest_of_line(text, start)
    if (scheme := _SCHEME.match(text, start)) is not None:
        return _word(text, scheme.end())
    word = _word(text, start)
    is_prose = is_sentence and word is not None and _PLAIN.fullmatch(text, *word) is not None
    return None if is_prose else word


def _spaced_value(text: str, name: str, core: str, start: int) -> Span | None:
    """Without a sign between them only a likely value goes: sentences speak of tokens too."""
    span = _word(text, start)
    if span is None:
        return None
    word = text[slice(*span)]
    is_option = name.startswith("-") and not word.startswith("-")
    if is_option or core.lower() == "bearer" or _is_likely(word.replace(MARK, "")):
        return span
    return None


def _is_harmless(value: str, name: str) -> bool:
    return (
        value == MARK
        or _EMPTY.fullmatch(value) is not None
        or _DIGEST.fullmatch(value) is not None
        or (_NUMBER.fullmatch(value) is not None and is_counter(name))
        or is_boundary(name, value)
    )


def _whole_name(text: str, core: re.Match[str]) -> Span:
    before = text[max(0, core.start() - _NAME_LENGTH_MAX) : core.start()]
    after = text[core.end() : core.end() + _NAME_LENGTH_MAX]
    return (
        core.start() - (len(before) - len(before.rstrip(_NAME_CHARACTERS))),
        core.end() + (len(after) - len(after.lstrip(_NAME_CHARACTERS))),
    )


def _word(text: str, start: int) -> Span | None:
    if text.startswith(MARK, start):
        return None
    found = _WORD.match(text, start)
    if found is None:
        return None
    end = start + len(found[0].rstrip(_TRAILING))
    if text.startswith(MARK, end - len(MARK) + 1):
        end += 1
    return (start, end) if end > start else None


def _rest_of_line(text: str, start: int) -> Span:
    end = text.find("\n", start)
    return start, len(text) if end < 0 else end


def _closing(text: str, quote: re.Match[str]) -> int:
    """Return where a quoted value ends: at its own quote, escaped as often, or with the line."""
    depth, sign = len(quote[1]), quote[2]
    start = seen = quote.end()
    # Only as far as the next quote is looked for the end of the line, or a long line of short
    # values would be searched once for each of them.
    while (position := text.find(sign, seen)) >= 0:
        line_end = text.find("\n", seen, position)
        if line_end >= 0:
            return line_end
        before = text[max(start, position - _ESCAPES_MAX) : position]
        escapes = len(before) - len(before.rstrip("\\"))
        if escapes == depth or (depth == 0 and escapes % 2 == 0):
            return position - depth
        seen = position + 1
    return _rest_of_line(text, seen)[1]


# --- Shapes -----------------------------------------------------------------------------------


def _is_signed_token(dotted: str) -> bool:
    return dotted.startswith("eyJ") or any(map(_is_random, dotted.split(".")))


def _is_likely(word: str) -> bool:
    """Tell a value from a word of a sentence or a number in it."""
    return (
        len(word) >= _LIKELY_LENGTH_MIN
        and _REFERENCE.fullmatch(word) is None
        and (len(word) >= _SURE_LENGTH_MIN or (_has(str.isdigit, word) and _has(str.isalpha, word)))
    )


def _is_random(segment: str) -> bool:
    return all(_has(kind, segment) for kind in (str.isdigit, str.islower, str.isupper))


def _has(kind: Callable[[str], bool], word: str) -> bool:
    return any(map(kind, word))
