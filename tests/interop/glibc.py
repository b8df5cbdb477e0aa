"""Decides how a program built for a newer glibc is started on this machine.

Knows nothing of the program. The newer C library is unpacked into the cache from the next release
of the machine's own distribution, found at the mirror that the machine uses already; nothing is
installed, and the machine's package lists stay as they are.
"""

import os
import platform
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.interop.cache import FetchFailed, published, run

NEXT_SUITES = {
    "bullseye": "trixie",
    "bookworm": "trixie",
    "focal": "noble",
    "jammy": "noble",
}
"""Where a release older than glibc 2.39 finds a newer one."""

LOADER = "ld-linux-x86-64.so.2"


@dataclass(frozen=True)
class Loader:
    """A dynamic loader and the folder of its libraries."""

    loader: Path
    libraries: Path


def loader_for(version: tuple[int, int]) -> Loader | None:
    """Return the loader that a program needing this glibc must be started with.

    Returns:
        None where the machine's own glibc is new enough.

    Raises:
        FetchFailed: there is no newer one to be had.
    """
    if installed_glibc() >= version:
        return None
    release = platform.freedesktop_os_release()
    codename = release.get("VERSION_CODENAME", "")
    suite = NEXT_SUITES.get(codename)
    if suite is None:
        raise FetchFailed(f"no release with a newer glibc is known for {codename or 'this system'}")

    def build(folder: Path) -> None:
        _unpack(folder, release["ID"], codename, suite)

    folder = published(f"glibc-{suite}", f"libc6 libgcc-s1 of {suite}", build)
    libraries = _libraries(folder)
    return Loader(loader=libraries / LOADER, libraries=libraries)


def installed_glibc() -> tuple[int, int]:
    """Return the version of this machine's glibc, (0, 0) where it has none."""
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except ValueError:
        name = ""
    found = re.fullmatch(r"glibc (\d+)\.(\d+).*", name)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _unpack(folder: Path, distribution: str, codename: str, suite: str) -> None:
    apt = folder / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    keyring = Path(f"/usr/share/keyrings/{distribution}-archive-keyring.gpg")
    signed_by = f"[signed-by={keyring}] " if keyring.is_file() else ""
    sources = apt / "sources.list"
    sources.write_text(f"deb {signed_by}{_mirror(codename)} {suite} main\n")
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": apt / "lists",
        "Dir::Cache": apt / "cache",
        "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
        "Acquire::http::Timeout": "30",
        "Acquire::https::Timeout": "30",
    }
    options = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    run(["apt-get", "-qq", *options, "update"], what=f"package lists of {suite}")
    run(
        ["apt-get", "-qq", *options, "download", "libc6", "libgcc-s1"],
        what=f"the C library of {suite}",
        cwd=apt,
    )
    for package in sorted(apt.glob("*.deb")):
        run(["dpkg-deb", "-x", package, folder / "root"], what=f"unpack {package.name}")
    libraries = _libraries(folder)
    run([libraries / LOADER, "--library-path", libraries, "/bin/true"], what="the newer loader")
    shutil.rmtree(apt)


def _mirror(codename: str) -> str:
    """Return where this machine gets its own release from."""
    listing = run(["apt-get", "update", "--print-uris"], what="package sources of this machine")
    found = re.search(rf"'(\S+)/dists/{re.escape(codename)}/InRelease'", listing)
    if found is None:
        raise FetchFailed(f"this machine's package sources do not name {codename}")
    return found[1]


def _libraries(folder: Path) -> Path:
    for path in sorted((folder / "root").rglob("libc.so.6")):
        if (path.parent / LOADER).exists():
            return path.parent
    raise FetchFailed("the unpacked C library has no loader")
