import asyncio
import json
import os
import shutil
import signal
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest

from controller_mock.console.run_identity import run_config
from controller_mock.console.serve import check_address
from protocol.errors import ErrorCode, PrpError
from protocol.ids import RunId
from protocol.secrets import Secret
from tests.controller_mock.console.support import Console, console, report
from tests.controller_mock.runner_client import RunnerClient, connect, event_body, ticket
from tests.controller_mock.served import WAIT_S, eventually

pytestmark = pytest.mark.process


async def announced(serving: Console) -> Any:
    await serving.until(lambda seen: seen.out.endswith(b"\n"))
    return json.loads(serving.out)


async def test_announcement_and_ticket_file_are_all_that_a_runner_needs(tmp_path: Path) -> None:
    file = tmp_path / "ticket"
    arguments = ("--data", str(tmp_path / "data"), "--run", "run-7", "--ticket-file", str(file))
    async with console("serve", *arguments) as serving:
        line = await announced(serving)
        token = file.read_text()

        client = await connect(line["url"], run_config(RunId("run-7")), ticket(Secret(token)))
        await client.send_events([event_body(client.config, 1)])
        await client.acked_through(1)
        await client.close()
        [summary] = await report(tmp_path / "data")
        serving.signal(signal.SIGTERM)
        assert await serving.status() == 0

        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert token.encode() not in serving.out + serving.err
        [run] = line["runs"]
        assert (run["runId"], run["ticketFile"]) == ("run-7", str(file))
        assert summary["events"] == 1


async def test_announced_command_line_starts_a_real_runner(tmp_path: Path) -> None:
    file = tmp_path / "ticket"
    arguments = ("--data", str(tmp_path / "data"), "--run", "run-7", "--ticket-file", str(file))
    async with console("serve", *arguments) as serving:
        [run] = (await announced(serving))["runs"]

        runner = await asyncio.create_subprocess_exec(
            *run["argv"],
            env={**os.environ, run["ticketVariable"]: file.read_text()},
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(WAIT_S):
            while (await report(tmp_path / "data"))[0]["connections"] == 0:
                assert runner.returncode is None
        runner.terminate()

        assert await runner.wait() == 75


async def test_hangup_issues_fresh_tickets(tmp_path: Path) -> None:
    pattern = str(tmp_path / "ticket-{run}")
    runs = ("--run", "run-1", "--run", "run-2")
    arguments = ("--data", str(tmp_path / "data"), *runs, "--ticket-file", pattern)
    async with console("serve", *arguments) as serving:
        line = await announced(serving)
        files = [Path(run["ticketFile"]) for run in line["runs"]]
        before = [file.read_text() for file in files]

        serving.signal(signal.SIGHUP)
        await eventually(lambda: all(file.read_text() not in before for file in files))

        for name, file in zip(("run-1", "run-2"), files, strict=True):
            token = Secret(file.read_text())
            client = await connect(line["url"], run_config(RunId(name)), ticket(token))
            await client.close()


async def test_hangup_stops_no_run_when_a_ticket_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-2").mkdir()
    pattern = str(tmp_path / "{run}" / "ticket")
    runs = ("--run", "run-1", "--run", "run-2")
    arguments = ("--data", str(tmp_path / "data"), *runs, "--ticket-file", pattern)
    async with console("serve", *arguments) as serving:
        files = [Path(run["ticketFile"]) for run in (await announced(serving))["runs"]]
        before = files[1].read_text()
        shutil.rmtree(files[0].parent)

        serving.signal(signal.SIGHUP)
        await eventually(lambda: files[1].read_text() != before)
        serving.signal(signal.SIGTERM)
        assert await serving.status() == 0

        assert b"ticket_not_written" in serving.err


async def test_runs_of_an_earlier_serve_go_on(tmp_path: Path) -> None:
    file = tmp_path / "ticket"
    arguments = ("--data", str(tmp_path / "data"), "--run", "run-7", "--ticket-file", str(file))
    cursors: list[int] = []
    for seq in (1, 2):
        async with console("serve", *arguments) as serving:
            line = await announced(serving)
            config = run_config(RunId("run-7"))
            client = await connect(line["url"], config, ticket(Secret(file.read_text())))
            cursors.append(client.acked)
            await client.send_events([event_body(client.config, seq)])
            await client.acked_through(seq)
            await client.close()
            serving.signal(signal.SIGINT)
            assert await serving.status() == 0

    assert cursors == [0, 1]


async def test_runner_connects_over_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    file = tmp_path / "ticket"
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    arguments = ("--data", str(tmp_path / "data"), "--run", "run-7", "--ticket-file", str(file))
    async with console("serve", *arguments, *tls) as serving:
        line = await announced(serving)
        assert line["url"].startswith("wss://127.0.0.1:")

        context = ssl.create_default_context(cafile=str(certificate))
        config = run_config(RunId("run-7"))
        client = await RunnerClient.dial(line["url"], config, context)
        await client.authenticate(ticket(Secret(file.read_text())))
        await client.send_events([event_body(client.config, 1)])
        await client.acked_through(1)
        await client.close()


async def test_plain_text_on_a_tls_port_is_no_traceback(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    async with console("serve", "--data", str(tmp_path / "data"), *tls) as serving:
        line = await announced(serving)

        reader, writer = await asyncio.open_connection(line["host"], line["port"])
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()
        writer.close()
        serving.signal(signal.SIGTERM)
        assert await serving.status() == 0

        assert serving.err == b""


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--host", "0.0.0.0"), 64, b"--tls-cert"),
        (("--tls-cert", "x"), 64, b"go together"),
        (("--tls-cert", "/no/such", "--tls-key", "/no/such"), 69, b"listen_failed"),
        (("--host", "192.0.2.1", "--tls-cert", "/no/such", "--tls-key", "/x"), 69, b"certificate"),
        (("--path", "no-slash"), 64, b"--path"),
        (("--run", "no/slash"), 64, b"a run id is"),
        (("--run", "a", "--run", "b", "--ticket-file", "one"), 64, b"{run}"),
        (("--run", "a", "--ticket-file", "/no/such/folder/ticket"), 64, b"--ticket-file"),
        (("--run", "a", "--ticket-file", "/"), 64, b"--ticket-file"),
    ],
)
async def test_what_cannot_be_served_is_a_code(
    tmp_path: Path, arguments: tuple[str, ...], status: int, words: bytes
) -> None:
    async with console("serve", "--data", str(tmp_path / "data"), *arguments) as serving:
        assert await serving.status() == status

        assert words in serving.err
        assert b"Traceback" not in serving.err
        assert serving.out == b""


async def test_port_in_use_is_a_code(tmp_path: Path) -> None:
    async with console("serve", "--data", str(tmp_path / "one")) as first:
        port = str((await announced(first))["port"])

        async with console("serve", "--data", str(tmp_path / "two"), "--port", port) as second:
            assert await second.status() == 69
            assert b"listen_failed" in second.err


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_may_be_served_without_tls(host: str) -> None:
    check_address(host, has_tls=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example"])
def test_other_addresses_need_tls(host: str) -> None:
    with pytest.raises(PrpError) as caught:
        check_address(host, has_tls=False)

    assert caught.value.code is ErrorCode.USAGE_INVALID
    check_address(host, has_tls=True)


def make_certificate(certificate: Path, key: Path) -> None:
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "controller")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
