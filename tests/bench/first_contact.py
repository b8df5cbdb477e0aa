"""The least that a start in Python can be: imports, one blocking socket, the handshake, no state.

Run as ``first_contact.py HOST PORT PATH CONFIG [STATE_DIR MODULE ...]``, the ticket in the
runner's variable. The modules are imported first, and a file in STATE_DIR is replaced before
the call, for no runner may call before it has made a state durable. It is what `runnerd`'s
start is held against, so it spares every import that `runnerd` spares. It keeps the connection
until its standard input ends. It is not for importing.
"""

import contextlib
import gc
import sys
from types import ModuleType

gc.disable()
# The WebSocket library asks it for a version, which costs a fifth of a start.
sys.modules["importlib.metadata"] = ModuleType("importlib.metadata")

for name in sys.argv[6:]:
    # The list also names what a start looks for in vain.
    with contextlib.suppress(ImportError):
        __import__(name)

import os  # noqa: E402

import msgspec  # noqa: E402

from protocol.secrets import Secret  # noqa: E402
from tests.bench.bare_file import BareFile  # noqa: E402
from tests.bench.blocking import Offered, Session, Wire  # noqa: E402

_TICKET = "PAPERCLIP_RUNNER_BOOTSTRAP_TICKET"


def main(host: str, port: str, path: str, config: str, state_dir: str = "") -> None:
    """Shake hands once."""
    if state_dir:
        BareFile(state_dir).replace(config.encode())
    offered = msgspec.json.decode(config, type=Offered)
    ticket = Secret(os.environ.pop(_TICKET))
    session = Session(Wire(host, int(port), path), offered, ticket)
    sys.stdin.read()
    del session


if __name__ == "__main__":
    main(*sys.argv[1:6])
