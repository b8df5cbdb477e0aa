"""Tests of the real daemon over TLS: which server it believes."""

import signal
from pathlib import Path

import pytest

from tests.process.daemon import daemon, flags
from tests.runnerd.certificates import CertificateAuthority
from tests.runnerd.peer import Authority
from tests.runnerd.peer_server import serving

pytestmark = pytest.mark.process


def test_server_vouched_for_by_the_bundle_is_believed_also_on_a_reconnect(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    with serving(Authority(), authority.server()) as server:
        arguments = [
            *flags(server.url, tmp_path / "state"),
            *("--ca-bundle-path", str(authority.bundle)),
        ]
        with daemon(arguments) as run:
            server.wait_until(lambda: server.authority.connections == 1, "a welcome")

            server.drop_connections()

            server.wait_until(lambda: server.authority.connections == 2, "a reconnect")
            run.signal(signal.SIGTERM)
            assert run.wait() == 75


@pytest.mark.parametrize("fault", ["another authority", "another address", "no bundle"])
def test_server_that_cannot_be_verified_is_refused(tmp_path: Path, fault: str) -> None:
    authority = CertificateAuthority(tmp_path)
    context = authority.server("127.0.0.2" if fault == "another address" else "127.0.0.1")
    bundle = authority.bundle
    if fault == "another authority":
        (tmp_path / "other").mkdir()
        bundle = CertificateAuthority(tmp_path / "other").bundle
    with serving(Authority(), context) as server:
        arguments = [*flags(server.url, tmp_path / "state"), "--bootstrap-deadline-ms", "500"]
        if fault != "no bundle":
            arguments += ["--ca-bundle-path", str(bundle)]

        with daemon(arguments) as run:
            assert (run.wait(), run.code) == (69, "bootstrap_deadline_exceeded")

        assert "last: tls_refused" in run.last_line
        reasons = {str(fact["reason"]) for fact in run.facts("peer_refused")}
        assert all("certificate" in reason or "mismatch" in reason for reason in reasons)
        assert server.authority.hellos == []


def test_plain_server_behind_a_tls_url_is_refused(tmp_path: Path) -> None:
    with serving(Authority()) as server:
        url = server.url.replace("ws://", "wss://")
        arguments = [*flags(url, tmp_path / "state"), "--bootstrap-deadline-ms", "500"]

        with daemon(arguments) as run:
            assert (run.wait(), run.code) == (69, "bootstrap_deadline_exceeded")


@pytest.mark.parametrize("content", [b"", b"not a certificate", b"\xff" * 100])
def test_bundle_without_a_certificate_is_a_usage_error(tmp_path: Path, content: bytes) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(content)
    bundle.chmod(0o600)
    url = "wss://127.0.0.1:9/connect"

    with daemon([*flags(url, tmp_path / "state"), "--ca-bundle-path", str(bundle)]) as run:
        assert (run.wait(), run.code) == (64, "usage_invalid")
    assert "no usable certificate" in run.last_line


def test_bundle_that_others_may_write_is_a_usage_error(tmp_path: Path) -> None:
    bundle = CertificateAuthority(tmp_path).bundle
    bundle.chmod(0o666)
    url = "wss://127.0.0.1:9/connect"

    with daemon([*flags(url, tmp_path / "state"), "--ca-bundle-path", str(bundle)]) as run:
        assert (run.wait(), run.code) == (64, "usage_invalid")
    assert "0666" in run.last_line
