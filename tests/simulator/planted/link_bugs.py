"""Planted bugs of the protocol and the controller, and those that live elsewhere.

It decides what is broken and by which invariant that must be named. It refuses to know how
the simulator finds it.
"""

from typing import Final

from tests.simulator.planted.bug import Bug, Edit, Elsewhere

CONTROLLER: Final = "controller_mock/core/"

BUGS: Final = (
    Bug(
        "B19a",
        "ticket stays valid after success",
        ("I13",),
        (
            Edit(
                CONTROLLER + "tickets.py",
                "    used = msgspec.structs.replace(ticket, used=True)\n",
                "    used = ticket\n",
            ),
        ),
        stack="full",
    ),
    Bug(
        "B19b",
        "ticket consumed by a failed proof",
        ("I13",),
        (
            Edit(
                CONTROLLER + "tickets.py",
                "        keys = server_verify("
                "handshake.challenge, credential.auth_key, stimulus.frame)\n"
                "    except PrpError as error:\n"
                "        return refuse(run, connection, error.code)\n",
                "        keys = server_verify("
                "handshake.challenge, credential.auth_key, stimulus.frame)\n"
                "    except PrpError as error:\n"
                "        spoiled = msgspec.structs.replace(credential, used=True)\n"
                "        held = tuple(\n"
                "            spoiled if c.credential_id == spoiled.credential_id else c\n"
                "            for c in run.durable.credentials\n"
                "        )\n"
                "        durable = msgspec.structs.replace(run.durable, credentials=held)\n"
                "        step = refuse(changed(run, durable), connection, error.code)\n"
                "        return Transition(step.state, step.actions, (spoiled,))\n",
            ),
        ),
        stack="full",
        needs=("relay",),
    ),
    Bug(
        "B20a",
        "frame counter check `≥` instead of `=`",
        ("I15", "I25"),
        (
            Edit(
                "protocol/secure_channel.py",
                "        sealed = _sealed_bytes(frame, counter)\n",
                '        claimed = frame.partition(b\'"counter":\')[2].partition(b",")[0]\n'
                "        if claimed.isdigit() and len(claimed) < 9:\n"
                "            counter = max(counter, int(claimed))\n"
                "        sealed = _sealed_bytes(frame, counter)\n",
            ),
        ),
        stack="full",
        needs=("relay",),
    ),
    Bug(
        "B20b",
        "counter not advanced",
        ("I15", "I25"),
        (
            Edit(
                "protocol/secure_channel.py",
                "        self._frames_sealed = counter + 1\n",
                "        self._frames_sealed = counter\n",
            ),
            Edit(
                "protocol/secure_channel.py",
                "        self._frames_opened = counter + 1\n",
                "        self._frames_opened = counter\n",
            ),
        ),
        stack="full",
    ),
    Bug(
        "B21",
        "one key for both directions",
        ("I15", "I25"),
        (
            Edit(
                "protocol/handshake.py",
                "        client_to_core=Secret("
                "domain_hmac(auth_key, CLIENT_TO_CORE_DOMAIN, binding)),\n",
                "        client_to_core=Secret("
                "domain_hmac(auth_key, CORE_TO_CLIENT_DOMAIN, binding)),\n",
            ),
        ),
        stack="full",
    ),
    Bug(
        "B22",
        "controller acknowledges before its commit",
        ("I1", "I7"),
        (
            Edit(
                CONTROLLER + "ingest.py",
                "(Gated(ack, run.revision),)",
                "(Gated(ack),)",
            ),
        ),
        stack="full",
    ),
    Bug(
        "B28",
        "RecursionError of hostile JSON escapes",
        ("I18",),
        (
            Edit(
                "protocol/canonical_json.py",
                "    except (msgspec.DecodeError, RecursionError):\n"
                "        return _parse_unusual(data, depth, nodes)\n",
                "    except msgspec.DecodeError:\n"
                "        return _parse_unusual(data, depth, nodes)\n",
            ),
        ),
        stack="full",
        needs=("relay",),
    ),
    Bug(
        "B29",
        "input cut at the limit and accepted",
        ("I19",),
        (
            Edit(
                "runnerd/core/tool_calls.py",
                "        return ErrorCode.TOOL_INPUT_TOO_LARGE\n    digest = sha256_label(exact)\n",
                "        title = called.input['title'][: SEMANTIC_INPUT_BYTES_MAX - 20]\n"
                "        called = structs.replace(called, input={'title': title})\n"
                "        exact = canonical_bytes(called.input)\n"
                "    digest = sha256_label(exact)\n",
            ),
        ),
        stack="full",
        needs=("dialogue", "large_input"),
    ),
    Bug(
        "B38",
        "lower owner epoch obeyed",
        ("I16",),
        (
            Edit(
                "protocol/extensions.py",
                "    if obeyed is None or owner == obeyed:\n        return\n",
                "    return\n",
            ),
        ),
        stack="full",
        needs=("takeover",),
    ),
    Bug(
        "B39",
        "state directory is used without its lock",
        ("I16",),
        (
            Edit(
                "runnerd/io/state_file.py",
                "        self._lock = self._take_lock(self._directory)\n",
                "",
            ),
        ),
        stack="full",
        needs=("start_twice",),
    ),
    Bug(
        "B40",
        "a rolled-back controller takes the runner's cursor over",
        ("I3",),
        (
            Edit(
                CONTROLLER + "tickets.py",
                "    if cursor is None or not durable.is_sparse or cursor",
                "    if cursor is None or cursor",
            ),
        ),
        stack="full",
        needs=("old_store",),
    ),
)

ELSEWHERE: Final = (
    Elsewhere("B23", "slower, older snapshot replaces a newer one", "external checkpoints"),
    Elsewhere("B25", "process signalled by PID without its birth", "real processes"),
    Elsewhere("B26", "ticket left in the environment block", "real processes"),
)
