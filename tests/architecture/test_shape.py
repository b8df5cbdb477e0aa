"""Modules and functions stay small and finished, and each rule notices a breach."""

import statistics

import pytest

from tests.architecture.shape import (
    FUNCTION_LINES_MAX,
    FUNCTION_LINES_MEDIAN_MAX,
    MODULE_LINES_MAX,
    docstring_complaints,
    lines_of,
    package_complaints,
    size_complaints,
    stub_complaints,
)
from tests.architecture.source import Module, functions_of, product


def test_modules_and_functions_stay_under_their_ceilings() -> None:
    assert [line for module in product() for line in size_complaints(module)] == []


def test_functions_are_short_on_the_whole() -> None:
    lengths = [lines_of(function) for module in product() for function in functions_of(module)]

    assert statistics.median(lengths) < FUNCTION_LINES_MEDIAN_MAX


def test_package_files_hold_one_docstring_only() -> None:
    assert [line for module in product() for line in package_complaints(module)] == []


def test_modules_say_what_they_refuse_to_know() -> None:
    assert [line for module in product() for line in docstring_complaints(module)] == []


def test_product_has_no_unfinished_place() -> None:
    assert [line for module in product() for line in stub_complaints(module)] == []


def test_size_rule_fails_when_a_module_or_function_is_one_line_too_long() -> None:
    body = "    x = 1\n" * (FUNCTION_LINES_MAX - 1)
    fits = Module("runnerd.a", f"def f() -> None:\n{body}")
    longer = Module("runnerd.a", f"def f() -> None:\n{body}    y = 1\n")
    filled = "def f() -> None:\n    return\n" + "x = 1\n" * (MODULE_LINES_MAX - 2)

    assert list(size_complaints(fits)) == []
    assert len(list(size_complaints(longer))) == 1
    assert list(size_complaints(Module("runnerd.a", filled))) == []
    assert len(list(size_complaints(Module("runnerd.a", filled + "y = 1\n")))) == 1


def test_size_rule_lets_a_table_be_long() -> None:
    table = Module("runnerd.a", "x = 1\n" * (MODULE_LINES_MAX + 1))

    assert list(size_complaints(table)) == []


@pytest.mark.parametrize("text", ["", "x = 1\n", '"""Text."""\nfrom a import b\n'])
def test_package_rule_fails_when_there_is_more_or_less_than_a_docstring(text: str) -> None:
    assert len(list(package_complaints(Module("runnerd", text, is_package=True)))) == 1


@pytest.mark.parametrize("text", ["x = 1\n", '"""It decides something."""\n'])
def test_docstring_rule_fails_when_a_module_does_not_say_what_it_leaves_out(text: str) -> None:
    assert len(list(docstring_complaints(Module("runnerd.a", text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # TODO: later",
        "def f() -> None:\n    raise NotImplementedError",
        "def f() -> None:\n    assert False, 'never'",
        "def f() -> None:\n    pass",
        "class A:\n    def f(self) -> None:\n        '''Text.'''\n        ...",
        "async def f() -> None:\n    ...",
    ],
)
def test_stub_rule_fails_when_code_is_missing(text: str) -> None:
    assert len(list(stub_complaints(Module("runnerd.a", text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "class Port(Protocol[T]):\n    def f(self) -> None:\n        '''Text.'''\n        ...",
        "def ignore(outcome: object) -> None:\n    '''The outcome is known elsewhere.'''",
        "def f() -> None:\n    try:\n        g()\n    except OSError:\n        pass",
    ],
)
def test_stub_rule_is_content_when_nothing_is_missing(text: str) -> None:
    assert list(stub_complaints(Module("runnerd.a", text))) == []
