"""The small vocabulary of every handler: advance durable state, change live state, refuse.

It decides that only durable changes raise the revision. It refuses to know any input.
"""

from typing import Never

from msgspec import structs

from protocol.base.revision import Gated, Revision, Transition
from protocol.errors import ErrorCode
from runnerd.core.actions import Action, CloseConnection
from runnerd.core.state import Runner

Step = Transition[Runner, Action, Never]


def advance(runner: Runner, **changes: object) -> Runner:
    """Return the runner with changed durable fields at the next revision."""
    return structs.replace(
        runner,
        revision=Revision(runner.revision + 1),
        durable=structs.replace(runner.durable, **changes),
    )


def with_live(runner: Runner, **changes: object) -> Runner:
    """Return the runner with changed live fields at the same revision."""
    return structs.replace(runner, live=structs.replace(runner.live, **changes))


def claim(runner: Runner, action: Action) -> Gated[Action]:
    """Gate an action on everything that is staged: it may leave when all of that is durable."""
    return Gated(action, after=runner.revision)


def refuse(runner: Runner, code: ErrorCode) -> Step:
    """Close the connection; durable state is untouched, nothing more of it is applied.

    Closing claims nothing, so it waits for no write. The endpoint then reports the loss.
    """
    connection = runner.live.connection
    if connection is None or connection.closing is not None:
        return Transition(runner)
    closing = with_live(runner, connection=structs.replace(connection, closing=code))
    close = CloseConnection(connection.binding.connection_id, code)
    return Transition(closing, (Gated(close, passes=True),))
