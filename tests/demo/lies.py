"""Falsehoods that can be put into the rows of a true record, and the figures that they break.

It decides what each lie changes. It refuses to know how the checker finds it.
"""

from typing import Final

ORDER: Final = "output lines are contiguous from 1"
WHOLE: Final = "files reported exactly once"
EFFECTS: Final = "logical effects per completed command"

# One committed line and its place, the last row, and a row that repeats another's body.
LINE: Final = (
    "(SELECT source_seq FROM events WHERE event_type = 'item.delta'"
    " ORDER BY source_seq LIMIT 1 OFFSET 2)"
)
LAST: Final = "(SELECT max(source_seq) FROM events)"


def repeated(where: str) -> str:
    """Return a statement that reports a row once more as a new event at the end."""
    return f"""
        INSERT INTO events (run_id, source_seq, source_event_id, event_type, delivery_count, body)
        SELECT run_id, {LAST} + 1, 'event_again', event_type, 1, json_set(
            body, '$.sourceSeq', {LAST} + 1, '$.sourceEventId', 'event_again'
        ) FROM events WHERE {where}
    """


EXTRA: Final = {"events stored"}
LIES: Final[dict[str, tuple[tuple[str, ...], set[str]]]] = {
    "a row is missing": (
        (f"DELETE FROM events WHERE source_seq = {LINE}",),
        {
            *("events stored", "sequence is contiguous from 1", "events lost", ORDER),
            *(WHOLE, "files missing"),
        },
    ),
    "the last row is missing": (
        (f"DELETE FROM events WHERE source_seq = {LAST}",),
        {"events stored", "events lost", "run.terminal events", "outcome of the run"},
    ),
    "a line is there twice": (
        (repeated(f"source_seq = {LINE}"),),
        {*EXTRA, "events duplicated", ORDER, WHOLE, "files reported twice"},
    ),
    "a row is there twice": (
        (f"INSERT INTO events SELECT * FROM events WHERE source_seq = {LAST}",),
        {
            *EXTRA,
            "events duplicated",
            "sequence is contiguous from 1",
            "run.terminal events",
            "outcome of the run",
        },
    ),
    "the sequence has a gap": (
        (
            "UPDATE events SET source_seq = source_seq + 1,"
            f" body = json_set(body, '$.sourceSeq', source_seq + 1) WHERE source_seq > {LINE}",
        ),
        {"sequence is contiguous from 1", "events lost"},
    ),
    "a hash is altered": (
        (
            "UPDATE events SET body = json_set(body, '$.payload.text', replace("
            "json_extract(body, '$.payload.text'),"
            " substr(json_extract(body, '$.payload.text'), 1, 64), printf('%064d', 0)))"
            f" WHERE source_seq = {LINE}",
        ),
        {WHOLE, "files with another hash"},
    ),
    "a line is about no file": (
        (
            "UPDATE events SET body = json_set(body, '$.payload.text', printf('%064d  \"x\"\n', 0))"
            f" WHERE source_seq = {LINE}",
        ),
        {WHOLE, "files missing", "lines about no file"},
    ),
    "a line is no line": (
        (
            "UPDATE events SET body = json_set(body, '$.payload.text', 'nonsense')"
            f" WHERE source_seq = {LINE}",
        ),
        {WHOLE, ORDER, "files missing", "lines about no file"},
    ),
    "a line has another's number": (
        (
            "UPDATE events SET body = json_set(body, '$.payload.lineNumber',"
            " json_extract(body, '$.payload.lineNumber') + 1)"
            f" WHERE source_seq = {LINE}",
        ),
        {ORDER, "events duplicated"},
    ),
    "two lines changed places": (
        (
            f"CREATE TABLE first AS SELECT body FROM events WHERE source_seq = {LINE}",
            f"CREATE TABLE second AS SELECT body FROM events WHERE source_seq = {LINE} + 1",
            "UPDATE events SET body = json_set(body, '$.payload', (SELECT json_extract(body,"
            f" '$.payload') FROM second)) WHERE source_seq = {LINE}",
            "UPDATE events SET body = json_set(body, '$.payload', (SELECT json_extract(body,"
            f" '$.payload') FROM first)) WHERE source_seq = {LINE} + 1",
        ),
        {ORDER},
    ),
    "the run ends twice": (
        (repeated("event_type = 'run.terminal'"),),
        {*EXTRA, "run.terminal events", "outcome of the run"},
    ),
    "the run failed": (
        (
            "UPDATE events SET body = json_set(body, '$.payload.runTerminalState', 'failed')"
            " WHERE event_type = 'run.terminal'",
        ),
        {"outcome of the run"},
    ),
    "no turn was interrupted": (
        (
            "UPDATE events SET event_type = 'turn.started',"
            " body = json_set(body, '$.eventType', 'turn.started')"
            " WHERE event_type = 'turn.interrupted'",
        ),
        {"turns interrupted"},
    ),
    "a turn completed twice": (
        (repeated("event_type = 'turn.completed'"),),
        {*EXTRA, "turns completed"},
    ),
    "a restart is reported twice": (
        (repeated("event_type = 'runner.reconciled'"),),
        {*EXTRA, "restarts reported by the runner"},
    ),
    "a body contradicts its row": (
        (f"UPDATE events SET body = json_set(body, '$.sourceSeq', 1) WHERE source_seq = {LINE}",),
        {"bodies that contradict their row"},
    ),
    "a body is no JSON": (
        (f"UPDATE events SET body = substr(body, 2) WHERE source_seq = {LINE}",),
        {"state is readable"},
    ),
    "a command had two effects": (
        (
            "UPDATE commands SET result = json_set(result, '$.result.logicalEffectCount', 2)"
            " WHERE controller_seq = 4",
        ),
        {EFFECTS},
    ),
    "nobody knows a command's effects": (
        (
            "UPDATE commands SET result = json_remove(result, '$.result.logicalEffectCount')"
            " WHERE controller_seq = 4",
        ),
        {EFFECTS},
    ),
    "a command is not completed": (
        ("UPDATE commands SET status = 'indeterminate' WHERE controller_seq = 3",),
        {"commands completed"},
    ),
    "a command is missing": (
        ("DELETE FROM commands WHERE controller_seq = 5",),
        {"commands"},
    ),
    "a ticket was not used": (
        (
            "UPDATE credentials SET used = 0 WHERE position ="
            " (SELECT max(position) FROM credentials WHERE kind = 'bootstrap')",
        ),
        {"tickets used"},
    ),
    "the socket was never cut": (
        ("UPDATE runs SET connection_count = 2",),
        {"connections authenticated"},
    ),
    "the run is not there": (("DELETE FROM runs",), {"state is readable"}),
}
