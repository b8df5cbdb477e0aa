"""Decides whether the published upstream peers can be had on this machine, and where they lie.

Knows nothing of how they behave. They are fetched once into a cache outside version control;
``python -m tests.interop.peers`` fetches them and prints what is there.
"""

import base64
import functools
import hashlib
import json
import os
import platform
import shlex
import shutil
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.interop.cache import (
    FetchFailed,
    cache_folder,
    cache_lock,
    published,
    run,
    write_script,
)
from tests.interop.glibc import loader_for

PACKAGE = "@paperclipai/server"
VERSION = "2026.916.1"
INTEGRITY = (
    "sha512-zRNWVpfhZUnV2nncNamp6lP5Y0W//y6iUA8eTYTL2Qur"
    "IvBBuy178u7XTKkcjN5Z4hd6KNMVeFKyGh40jG4fVQ=="
)
"""Hash of the published tarball; another one is refused."""

RUNNER_GLIBC = (2, 39)
"""What the published runner binary was linked against."""

OURS = Path(__file__).parent / "upstream"
WANTED = ("package/dist/vendor/paperclip-runner/", "package/package.json")
NPM_SETTINGS = {
    "npm_config_audit": "false",
    "npm_config_fund": "false",
    "npm_config_update_notifier": "false",
    "npm_config_fetch_retries": "2",
    "npm_config_fetch_retry_mintimeout": "1000",
    "npm_config_fetch_retry_maxtimeout": "5000",
    "npm_config_omit_lockfile_registry_resolved": "true",
}


@dataclass(frozen=True)
class Missing:
    """A peer that this machine cannot have, and why."""

    reason: str


@dataclass(frozen=True)
class UpstreamController:
    """The upstream TypeScript controller; `argv` starts our driver for it.

    See ``upstream/controller.mjs`` for what the driver understands.
    """

    argv: tuple[str, ...]
    package: Path
    """The folder of the upstream runner package, `control-plane` and `bin` among its content."""


@dataclass(frozen=True)
class UpstreamRunner:
    """The upstream runner; `executable` is one path, so that a controller can launch it."""

    executable: Path
    build_metadata: str
    """What it prints of itself, one JSON object."""


@functools.cache
def upstream_controller() -> UpstreamController | Missing:
    """Return the upstream controller, fetched if need be, or the reason why there is none."""
    try:
        package = _package()
        node = _tool("node")
    except FetchFailed as failure:
        return Missing(f"upstream controller: {failure}")
    return UpstreamController((node, str(OURS / "controller.mjs"), str(package)), package)


@functools.cache
def upstream_runner() -> UpstreamRunner | Missing:
    """Return the upstream runner, fetched if need be, or the reason why there is none."""
    try:
        if (machine := platform.machine()) != "x86_64":
            raise FetchFailed(f"published for x86_64, this machine is {machine}")
        executable = _startable(_package() / "bin" / "paperclip-runnerd")
        metadata = run([executable, "--build-metadata"], what="build metadata", timeout_s=30)
    except FetchFailed as failure:
        return Missing(f"upstream runner: {failure}")
    return UpstreamRunner(executable, metadata.strip())


def _startable(binary: Path) -> Path:
    loader = loader_for(RUNNER_GLIBC)
    if loader is None:
        return binary
    command = [str(loader.loader), "--library-path", str(loader.libraries), str(binary)]
    script = cache_folder() / "paperclip-runnerd"
    write_script(script, f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    return script


def _package() -> Path:
    lock = (OURS / "package-lock.json").read_bytes()
    key = f"{INTEGRITY} {hashlib.sha256(lock).hexdigest()}"
    folder = published("npm", key, _fetch_package)
    return folder / "package" / "dist" / "vendor" / "paperclip-runner"


def _fetch_package(folder: Path) -> None:
    npm = _tool("npm")
    print(f"interop: fetching {PACKAGE}@{VERSION} (once)", file=sys.stderr)
    tarball = _pack(npm, folder)
    with tarfile.open(tarball) as archive:
        archive.extractall(folder, members=_wanted(archive), filter="data")
    tarball.unlink()
    # Node looks for a module in every parent folder, so the package itself stays as published.
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(OURS / name, folder / name)
    run(
        [npm, "ci", "--ignore-scripts"],
        what="what the upstream controller imports",
        cwd=folder,
        environment=NPM_SETTINGS,
    )


def _pack(npm: str, folder: Path) -> Path:
    run(
        [npm, "pack", "--ignore-scripts", f"{PACKAGE}@{VERSION}"],
        what=f"{PACKAGE}@{VERSION}",
        cwd=folder,
        environment=NPM_SETTINGS,
    )
    tarballs = list(folder.glob("*.tgz"))
    if len(tarballs) != 1:
        raise FetchFailed(f"npm pack left {len(tarballs)} tarballs")
    with tarballs[0].open("rb") as content:
        digest = hashlib.file_digest(content, "sha512").digest()
    if f"sha512-{base64.b64encode(digest).decode()}" != INTEGRITY:
        raise FetchFailed(f"{PACKAGE}@{VERSION} is not the tarball whose hash is on record")
    return tarballs[0]


def _wanted(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    return (member for member in archive if member.name.startswith(WANTED))


def _tool(name: str) -> str:
    """Return the path of node or npm, installed from the distribution where that is allowed."""
    if (path := shutil.which(name)) is not None:
        return path
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise FetchFailed(f"{name} is not installed (on Debian: apt-get install nodejs npm)")
    with cache_lock("install.lock"):
        if shutil.which(name) is None:
            print("interop: installing nodejs and npm", file=sys.stderr)
            quiet = {"DEBIAN_FRONTEND": "noninteractive"}
            install = ["apt-get", "-qq", "install", "-y", "--no-install-recommends"]
            run(["apt-get", "-qq", "update"], what="package lists", environment=quiet)
            run([*install, "nodejs", "npm"], what="nodejs and npm", environment=quiet)
    if (path := shutil.which(name)) is None:
        raise FetchFailed(f"{name} is still missing after its installation")
    return path


def main() -> int:
    """Fetch both peers and print where they are; exit 1 if one is missing."""
    status = 0
    for peer in (upstream_controller(), upstream_runner()):
        match peer:
            case Missing(reason):
                print(f"interop: skipped, {reason}", file=sys.stderr)
                status = 1
            case UpstreamController(package=package):
                print(f"upstream controller: {package}")
            case UpstreamRunner(executable, metadata):
                fields = json.loads(metadata)
                print(f"upstream runner: {executable} ({fields['schema']})")
    return status


if __name__ == "__main__":
    sys.exit(main())
