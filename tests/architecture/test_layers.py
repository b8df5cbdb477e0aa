"""Nothing imports what its layer may not, and each rule notices a breach."""

import pytest

from tests.architecture.layers import (
    cycle_complaints,
    layer_complaints,
    posix_complaints,
    reexport_complaints,
    third_party_complaints,
)
from tests.architecture.source import PACKAGES, Module, product


def test_product_is_found() -> None:
    names = {module.name for module in product()}

    assert {*PACKAGES, "protocol.base.driver", "runnerd.core.step"} <= names


def test_modules_import_only_what_their_layer_allows() -> None:
    assert [line for module in product() for line in layer_complaints(module)] == []


def test_modules_use_only_the_packages_that_their_part_may_use() -> None:
    assert [line for module in product() for line in third_party_complaints(module)] == []


def test_modules_that_only_posix_has_stay_inside_adapters() -> None:
    assert [line for module in product() for line in posix_complaints(module)] == []


@pytest.mark.parametrize(
    ("name", "text", "complaints"),
    [
        ("runnerd.console.deciding", "import pwd", 1),
        ("runnerd.shell", "def late() -> None:\n    from fcntl import flock", 1),
        ("protocol.base.atomic_file", "import resource", 1),
        ("runnerd.harness.pipes", "import termios", 0),
        ("protocol.base.posix_fs", "import fcntl", 0),
    ],
)
def test_posix_rule_looks_at_every_module_but_the_adapters(
    name: str, text: str, complaints: int
) -> None:
    assert len(list(posix_complaints(Module(name, text)))) == complaints


def test_names_are_imported_from_the_module_that_defines_them() -> None:
    by_name = {module.name: module for module in product()}

    found = [line for module in product() for line in reexport_complaints(module, by_name)]

    assert found == []


def test_no_module_imports_itself_over_others() -> None:
    assert list(cycle_complaints(product())) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("protocol.errors", "from protocol.base import clock"),
        ("protocol.base.driver", "from protocol.envelope import Envelope"),
        ("protocol.codec", "import runnerd.core.state"),
        ("runnerd.core.step", "from runnerd.runs import records"),
        ("runnerd.runs.records", "from runnerd import core"),
        ("runnerd.core.step", "from runnerd.io.link import Link"),
        ("runnerd.config", "from runnerd.shell import run"),
        ("runnerd.io.link", "from runnerd.shell import run"),
        ("runnerd.io.link", "def late() -> None:\n    import runnerd.daemon"),
        ("runnerd.shell", "from controller_mock.core import step"),
        ("controller_mock.core.step", "from controller_mock.storage.store import Store"),
        ("controller_mock.storage.sqlite", "from controller_mock import shell"),
        ("controller_mock.shell", "import runnerd"),
        ("runnerd.shell", "from tests import demo"),
    ],
)
def test_layer_rule_fails_when_an_import_points_upwards(name: str, text: str) -> None:
    assert len(list(layer_complaints(Module(name, text)))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("protocol.base.ports", "import cryptography"),
        ("runnerd.core.step", "from cryptography.hazmat import primitives"),
        ("runnerd.shell", "import requests"),
        ("controller_mock.core.step", "import structlog"),
    ],
)
def test_package_rule_fails_when_a_part_uses_another_package(name: str, text: str) -> None:
    assert len(list(third_party_complaints(Module(name, text)))) == 1


def test_reexport_rule_fails_when_a_name_is_taken_from_the_wrong_module() -> None:
    by_name = {
        "runnerd.a": Module("runnerd.a", "from runnerd.b import thing"),
        "runnerd.b": Module("runnerd.b", "thing: int = 1"),
        "runnerd.c": Module("runnerd.c", "from runnerd.a import thing"),
    }

    assert list(reexport_complaints(by_name["runnerd.a"], by_name)) == []
    assert len(list(reexport_complaints(by_name["runnerd.c"], by_name))) == 1


def test_cycle_rule_fails_when_two_modules_import_each_other() -> None:
    modules = [
        Module("runnerd.a", "from runnerd import b"),
        Module("runnerd.b", "from runnerd.a import thing"),
        Module("runnerd.c", "from runnerd.a import thing"),
    ]
    late = Module("runnerd.b", "def f() -> None:\n    from runnerd.a import thing")

    assert len(list(cycle_complaints(modules))) == 2
    assert list(cycle_complaints([modules[0], late])) == []
