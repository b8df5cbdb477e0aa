"""Pure modules touch nothing but their inputs, and each rule notices a breach."""

import sys

import pytest

from tests.architecture.layers import IMPURE_ADAPTER_IN_PROTOCOL, PURE, is_pure
from tests.architecture.purity import set_order_complaints, world_complaints
from tests.architecture.source import Module, is_below, product

STANDARD = frozenset(sys.stdlib_module_names)


def pure_modules() -> list[Module]:
    return [module for module in product() if is_pure(module.name)]


def test_pure_packages_are_found_and_have_one_exception() -> None:
    below = {
        module.name
        for module in product()
        if any(is_below(module.name, package) for package in PURE)
    }

    assert below - {module.name for module in pure_modules()} == {IMPURE_ADAPTER_IN_PROTOCOL}


def test_pure_modules_never_touch_the_world() -> None:
    found = [line for module in pure_modules() for line in world_complaints(module, STANDARD)]

    assert found == []


def test_pure_modules_never_depend_on_the_order_of_a_set() -> None:
    assert [line for module in pure_modules() for line in set_order_complaints(module)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "import random",
        "import secrets",
        "import os.path",
        "import socket",
        "import asyncio",
        "from uuid import uuid4",
        "import subprocess",
        "import logging",
        "from pathlib import Path",
        "import urllib.request",
        "from websockets.utils import generate_key",
        "def read() -> str:\n    import os\n    return os.environ['X']",
        "async def wait() -> None:\n    return",
        "text = open('file').read()",
        "print('seen')",
        "from datetime import datetime\nnow = datetime.now()",
        "import datetime\nnow = datetime.datetime.utcnow()",
        "order = id(object())",
    ],
)
def test_purity_rule_fails_when_a_module_touches_the_world(text: str) -> None:
    assert len(list(world_complaints(Module("runnerd.core.step", text), STANDARD))) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "from datetime import UTC, datetime\nmoment = datetime.fromisoformat('2026-01-02')",
        "import urllib.parse",
        "from collections.abc import Mapping",
        "def on_ack(now: int) -> int:\n    return now",
    ],
)
def test_purity_rule_is_content_when_a_module_only_computes(text: str) -> None:
    assert list(world_complaints(Module("runnerd.core.step", text), STANDARD)) == []


@pytest.mark.parametrize(
    "text",
    [
        "for word in {'a', 'b'}:\n    act(word)",
        "words = tuple(set(found))",
        "text = ','.join({word for word in found})",
        "def choose(found: frozenset[str]) -> list[str]:\n    return [word for word in found]",
        "def choose() -> list[str]:\n    found = set(given)\n    return [*found]",
        "first = next(iter(set(found) - set(other)))",
        "def take(found: set[str]) -> str:\n    return found.pop()",
    ],
)
def test_set_rule_fails_when_the_order_of_a_set_decides(text: str) -> None:
    assert len(list(set_order_complaints(Module("runnerd.core.step", text)))) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "words = sorted(set(found))",
        "is_known = word in {'a', 'b'}",
        "count = len({word for word in found})",
        "def choose(found: frozenset[str]) -> bool:\n    return 'a' in found",
    ],
)
def test_set_rule_is_content_when_only_membership_counts(text: str) -> None:
    assert list(set_order_complaints(Module("runnerd.core.step", text))) == []
