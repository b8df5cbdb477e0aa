"""Where the bootstrap ticket comes from: a named file, the environment, or a credential.

It decides which source counts and what a usable ticket is. It refuses to know whether a
controller will take it.
"""

import os
from typing import Final

from protocol.errors import ErrorCode, PrpError
from protocol.limits import TICKET_BYTES_MAX
from protocol.secrets import Secret
from runnerd.io.private_file import NotPrivate, read_private_file
from runnerd.ticket import VARIABLE, CapturedTicket

CREDENTIAL_NAME: Final = "paperclip-runner-bootstrap-ticket"
"""Name of the credential that a supervisor may put into $CREDENTIALS_DIRECTORY."""


def choose_ticket(
    captured: CapturedTicket, ticket_file: str | None, credentials_directory: str | None
) -> Secret:
    """Return the one ticket of this start and wipe what was captured.

    A named file goes before the environment, which goes before the supervisor's
    credential. A named file is removed once it was read: the ticket in it is good for one
    use. A credential belongs to the supervisor and stays.

    Returns:
        Or raises PrpError ``ticket_missing``; its text names the source, never the ticket.
    """
    token = captured.token
    try:
        if ticket_file is not None:
            content = _read(ticket_file, "the ticket file")
            _remove(ticket_file)
            return _secret(content, "the ticket file")
        if token is not None:
            return _secret(bytes(token), VARIABLE)
    finally:
        if token is not None:
            token[:] = bytes(len(token))
    if credentials_directory:
        path = os.path.join(credentials_directory, CREDENTIAL_NAME)
        if os.path.lexists(path):
            # systemd leaves the file to root and lets the service's user in by an access list.
            content = _read(path, "the credential", may_have_access_list=True)
            return _secret(content, "the credential")
    raise PrpError(ErrorCode.TICKET_MISSING, f"{VARIABLE} is not set")


def _read(path: str, what: str, *, may_have_access_list: bool = False) -> bytes:
    try:
        return read_private_file(path, TICKET_BYTES_MAX, may_have_access_list=may_have_access_list)
    except NotPrivate as error:
        raise PrpError(ErrorCode.TICKET_MISSING, f"{what}: {error}") from error


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        # A read-only place is the supervisor's to clear.
        return


def _secret(content: bytes, what: str) -> Secret:
    text = content.rstrip(b"\r\n")
    if not text.strip():
        raise PrpError(ErrorCode.TICKET_MISSING, f"{what} is blank")
    try:
        text.decode()
    except UnicodeDecodeError:
        raise PrpError(ErrorCode.TICKET_MISSING, f"{what} is not valid UTF-8") from None
    return Secret(text)
