"""What a capability token stands for: a public id and a key that never crosses the wire.

It decides how both derive from the token. It refuses to know who holds the token or
whether it is still good.
"""

from typing import Final

from protocol.digest import LABEL_PREFIX, domain_digest
from protocol.ids import CredentialId
from protocol.secrets import Secret

ID_DOMAIN: Final = "paperclip-runner-credential-id-v1"
KEY_DOMAIN: Final = "paperclip-runner-auth-key-v1"


def credential_id(token: Secret) -> CredentialId:
    """Return the id that names the token's credential in public.

    Source: prp-wire 2.3.
    """
    return CredentialId(LABEL_PREFIX + domain_digest(ID_DOMAIN, bytes(token.reveal())).hex())


def auth_key(token: Secret) -> Secret:
    """Return the 32-byte key of both handshake proofs; a controller stores this, not the token.

    Source: prp-wire 2.3.
    """
    return Secret(domain_digest(KEY_DOMAIN, bytes(token.reveal())))
