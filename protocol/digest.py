"""Domain-separated SHA-256 and HMAC-SHA-256, the only hashes of the protocol.

It decides how parts are framed so that no two lists of parts share bytes. It refuses to
know what is hashed.
"""

import hashlib
import hmac
from typing import Final

from protocol.secrets import Secret

LABEL_PREFIX: Final = "sha256:"


def framed(domain: str, *parts: bytes) -> bytes:
    """Return ``utf8(domain) || 0x00 || for each part: uint64_be(len) || part``.

    Source: prp-wire 2.2.
    """
    pieces = [domain.encode(), b"\0"]
    for part in parts:
        pieces.append(len(part).to_bytes(8, "big"))
        pieces.append(part)
    return b"".join(pieces)


def domain_digest(domain: str, *parts: bytes) -> bytes:
    """Return the 32 bytes of SHA-256 over the framed parts."""
    return hashlib.sha256(framed(domain, *parts)).digest()


def domain_hmac(key: Secret, domain: str, *parts: bytes) -> bytes:
    """Return the 32 bytes of HMAC-SHA-256 over the framed parts."""
    return hmac.digest(key.reveal(), framed(domain, *parts), "sha256")


def sha256_label(data: bytes) -> str:
    """Return `sha256:` and the lower-case hex digest of ``data``."""
    return LABEL_PREFIX + hashlib.sha256(data).hexdigest()
