"""Tests of what counts as a destination."""

import socket

import pytest

from protocol.errors import ErrorCode, PrpError
from protocol.limits import CONNECT_URL_BYTES_MAX
from runnerd.destination import Destination, parse_url
from runnerd.io.resolver import Address, NotResolved, resolve


@pytest.mark.parametrize(
    ("url", "is_secure", "host", "port", "path"),
    [
        ("ws://127.0.0.1:4242/connect", False, "127.0.0.1", 4242, "/connect"),
        ("ws://127.0.0.1", False, "127.0.0.1", 80, "/"),
        ("WS://localhost:1/", False, "localhost", 1, "/"),
        ("ws://[::1]:65535/a/b", False, "::1", 65535, "/a/b"),
        ("ws://[::1]/a", False, "::1", 80, "/a"),
        ("wss://controller.example/a%20b", True, "controller.example", 443, "/a%20b"),
        ("wss://runner_pool.example:8443/x:y@z", True, "runner_pool.example", 8443, "/x:y@z"),
        ("wss://a./", True, "a.", 443, "/"),
    ],
)
def test_url_is_read_when_it_names_a_destination(
    url: str, is_secure: bool, host: str, port: int, path: str
) -> None:
    expected = Destination(is_secure=is_secure, host=host, port=port, path=path)

    assert parse_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:4242/connect",
        "http://127.0.0.1/",
        "wsx://127.0.0.1/",
        "ws:/127.0.0.1/",
        "ws://",
        "ws:///connect",
        "ws://127.0.0.1:0/",
        "ws://127.0.0.1:65536/",
        "ws://127.0.0.1:/",
        "ws://127.0.0.1:+80/",
        "ws://127.0.0.1:8 0/",
        "ws://127.0.0.1:00000080/",
        "ws://user@127.0.0.1/",
        "ws://user:secret@127.0.0.1/",
        "ws://127.0.0.1%2e/",
        "ws://[fe80::1%25eth0]/",
        "ws://::1/",
        "ws://[::1/",
        "ws://[127.0.0.1/",
        "ws://[]/",
        "ws://a:b:c/",
        "ws://-host/",
        "ws://ho st/",
        "ws://127.0.0.1/?ticket=1",
        "ws://127.0.0.1?x",
        "ws://127.0.0.1/#here",
        "ws://127.0.0.1/a\\b",
        "ws://127.0.0.1/a b",
        "ws://127.0.0.1/a\tb",
        "ws://127.0.0.1/\r\nHost: other",
        "ws://127.0.0.1/\x00",
        "ws://127.0.0.1/\x7f",
        " ws://127.0.0.1/",
        "ws://127.0.0.1/ü",
        "ws://exämple/",
        "ws://127.0.0.1/\udcff",
        "ws://127.0.0.1/" + "a" * CONNECT_URL_BYTES_MAX,
    ],
)
def test_url_is_refused_when_it_names_none(url: str) -> None:
    with pytest.raises(PrpError) as refused:
        parse_url(url)

    assert refused.value.code is ErrorCode.DESTINATION_REFUSED


def test_url_of_exactly_the_bound_is_read() -> None:
    start = "ws://127.0.0.1/"

    assert parse_url(start + "a" * (CONNECT_URL_BYTES_MAX - len(start))).port == 80


@pytest.mark.parametrize(
    ("url", "family", "host"),
    [
        ("ws://127.0.0.1:7/", socket.AF_INET, "127.0.0.1"),
        ("ws://127.255.255.254:7/", socket.AF_INET, "127.255.255.254"),
        ("ws://[::1]:7/", socket.AF_INET6, "::1"),
        ("ws://[0:0::1]:7/", socket.AF_INET6, "::1"),
        ("wss://192.0.2.1:7/", socket.AF_INET, "192.0.2.1"),
        ("wss://[2001:db8::1]:7/", socket.AF_INET6, "2001:db8::1"),
    ],
)
def test_numeric_host_is_its_own_address(url: str, family: int, host: str) -> None:
    assert resolve(parse_url(url)) == (Address(family, host, 7),)


@pytest.mark.parametrize(
    "url",
    [
        "ws://0.0.0.0:7/",
        "ws://10.0.0.1:7/",
        "ws://192.168.0.1:7/",
        "ws://169.254.1.1:7/",
        "ws://8.8.8.8:7/",
        "ws://255.255.255.255:7/",
        "ws://[::]:7/",
        "ws://[::2]:7/",
        "ws://[fe80::1]:7/",
        "ws://[2001:db8::1]:7/",
        "ws://[::ffff:127.0.0.1]:7/",
    ],
)
def test_plain_destination_is_refused_when_its_address_is_not_loopback(url: str) -> None:
    with pytest.raises(PrpError) as refused:
        resolve(parse_url(url))

    assert refused.value.code is ErrorCode.DESTINATION_REFUSED


def test_name_is_accepted_when_all_it_stands_for_is_loopback() -> None:
    addresses = resolve(parse_url("ws://localhost:7/"))

    assert addresses
    assert {address.host for address in addresses} <= {"127.0.0.1", "::1"}
    assert list(addresses) == sorted(set(addresses))


def test_name_is_refused_when_it_stands_for_nothing() -> None:
    try:
        with pytest.raises(PrpError) as refused:
            resolve(parse_url("wss://nobody.invalid:7/"))
    except NotResolved:
        pytest.skip("no name server answers on this machine")

    assert refused.value.code is ErrorCode.DESTINATION_REFUSED
