"""Commands: queued in order, handed out one at a time, settled once.

    queued ──(lowest open, session takes commands)──▶ handed out ──(result)──▶ settled
                                                        │   ▲
                                                        └───┘ again: reconnect, or another queued

It decides numbers, order and which result belongs to which command. It refuses to know
what a command does.
"""

import msgspec

from controller_mock.core.actions import (
    Action,
    Change,
    CountDelivery,
    CountResultRedelivery,
    Publish,
    PutCommand,
    PutResult,
    Reply,
    SendControl,
)
from controller_mock.core.admission import refuse
from controller_mock.core.command_requests import check_room, known_command, wire_command
from controller_mock.core.inputs import CommandRequested
from controller_mock.core.state import (
    DurableRun,
    LiveRun,
    OpenCommand,
    Run,
    Session,
    SettledCommand,
    Step,
    changed,
    run_row,
)
from protocol.base.clock import Now
from protocol.base.revision import Gated, Transition
from protocol.commands import (
    TERMINAL_COMMAND_TYPES,
    WireCommand,
    command_fingerprint,
    is_object,
)
from protocol.envelope import CommandResultAck, Deliver, ResultMessage
from protocol.errors import ErrorCode, PrpError
from protocol.limits import (
    SETTLED_RESULTS_MAX,
)


class HandedOut(msgspec.Struct, frozen=True, kw_only=True):
    """What a session gets next, and the state in which it has got it."""

    durable: DurableRun
    session: Session | None
    command: OpenCommand | None = None
    writes: tuple[Change, ...] = ()


def on_command_requested(run: Run, stimulus: CommandRequested, now: Now) -> Step:
    """Queue a command; the reply leaves once it is durable, and so does the command.

    A command that is open already is handed out again with it. A known id with the same
    content is answered with the number it has.

    Returns:
        The command at the next revision. Or a reply: ``runner_revoked``,
        ``command_queue_full``, ``command_too_large``, ``command_invalid``,
        ``command_conflict`` for a known id with other content,
        ``authority_change_unsupported``.

    Source: prp-wire 8.1 and 8.2.
    """
    try:
        command, body = wire_command(run.durable, stimulus, now)
        known = known_command(run.durable, command)
        if known is None:
            check_room(run.durable)
    except PrpError as error:
        return Transition(run, (Gated(Reply(request=stimulus.request, code=error.code)),))
    if known is not None:
        return Transition(run, (_replied(stimulus, known, run),))
    opened = OpenCommand(command=command, fingerprint=command_fingerprint(command))
    put = PutCommand(
        controller_seq=command.controller_seq,
        command_id=command.command_id,
        type=command.type,
        body=body,
        fingerprint=opened.fingerprint,
        issued_at=command.issued_at,
    )
    longer = msgspec.structs.replace(
        run.durable,
        last_controller_seq=command.controller_seq,
        open_commands=(*run.durable.open_commands, opened),
    )
    handed = hand_out(longer, run.live.session)
    after = changed(run, handed.durable, _with_session(run.live, handed))
    return Transition(
        after,
        (_replied(stimulus, command, after), *_delivered(after, handed)),
        (put, *handed.writes, run_row(after.durable)),
    )


def on_result(run: Run, session: Session, message: ResultMessage, now: Now) -> Step:
    """Settle the command that is out, or judge the result of one that is settled.

    Returns:
        The result at the next revision, and behind it the next command or, for a terminal
        one, its acknowledgement. Or CloseConnection: ``command_result_unknown`` if no
        such command was handed out, ``command_result_conflict`` if it differs from the
        stored one or names the command wrongly, ``message_invalid``.

    Source: prp-wire 8.4 and 8.5.
    """
    result = message.result
    if not is_object(result.result):
        return refuse(run, session.connection, ErrorCode.MESSAGE_INVALID)
    for settled in reversed(run.durable.settled):
        if settled.command_id == result.command_id:
            return _repeated(run, session, settled, message)
    out = run.durable.open_commands[0] if run.durable.open_commands else None
    if out is None or out.command.command_id != result.command_id or out.deliveries == 0:
        return refuse(run, session.connection, ErrorCode.COMMAND_RESULT_UNKNOWN)
    named = (result.command_type, result.controller_seq)
    if named != (out.command.type, out.command.controller_seq):
        return refuse(run, session.connection, ErrorCode.COMMAND_RESULT_CONFLICT)
    return _settled(run, session, out, message, now)


def hand_out(durable: DurableRun, session: Session | None) -> HandedOut:
    """Return the lowest open command as one that the session has now got once more.

    Nothing is handed out without a session, to a revoked runner, or behind a terminal
    command.
    """
    if (
        session is None
        or session.terminal_delivered
        or durable.revocation_epoch > 0
        or not durable.open_commands
    ):
        return HandedOut(durable=durable, session=session)
    lowest, *others = durable.open_commands
    counted = msgspec.structs.replace(lowest, deliveries=lowest.deliveries + 1)
    if counted.command.type in TERMINAL_COMMAND_TYPES:
        session = msgspec.structs.replace(session, terminal_delivered=True)
    return HandedOut(
        durable=msgspec.structs.replace(durable, open_commands=(counted, *others)),
        session=session,
        command=counted,
        writes=(CountDelivery(counted.command.controller_seq),),
    )


def _settled(
    run: Run, session: Session, out: OpenCommand, message: ResultMessage, now: Now
) -> Step:
    command, result = out.command, message.result
    settled = SettledCommand(
        command_id=command.command_id,
        controller_seq=command.controller_seq,
        type=command.type,
        issued_at=command.issued_at,
        fingerprint=out.fingerprint,
        status=result.status,
        result_digest=message.digest,
    )
    put = PutResult(
        controller_seq=command.controller_seq,
        status=result.status,
        body=message.body,
        digest=message.digest,
        received_at_unix_ms=now.unix_ms,
    )
    durable = msgspec.structs.replace(
        run.durable,
        open_commands=run.durable.open_commands[1:],
        settled=(*run.durable.settled, settled)[-SETTLED_RESULTS_MAX:],
    )
    handed = hand_out(durable, session)
    after = changed(run, handed.durable, _with_session(run.live, handed))
    published: Gated[Action] = Gated(Publish(), after.revision)
    return Transition(
        after,
        (*_result_ack(after, session, settled), *_delivered(after, handed), published),
        (put, *handed.writes),
    )


def _repeated(run: Run, session: Session, settled: SettledCommand, message: ResultMessage) -> Step:
    if settled.result_digest != message.digest:
        return refuse(run, session.connection, ErrorCode.COMMAND_RESULT_CONFLICT)
    # Nothing waits for the counter of a result that is not acknowledged.
    after = changed(run, run.durable)
    return Transition(
        after,
        _result_ack(after, session, settled),
        (CountResultRedelivery(settled.controller_seq),),
    )


def _result_ack(run: Run, session: Session, settled: SettledCommand) -> tuple[Gated[Action], ...]:
    if settled.type not in TERMINAL_COMMAND_TYPES:
        return ()
    ack = CommandResultAck(
        command_id=settled.command_id,
        command_type=settled.type,
        controller_seq=settled.controller_seq,
        status=settled.status,
    )
    action = SendControl(
        connection=session.connection,
        message=ack,
        envelope_id=f"command_result_ack_{settled.controller_seq}",
    )
    return (Gated(action, run.revision),)


def _delivered(run: Run, handed: HandedOut) -> tuple[Gated[Action], ...]:
    if handed.command is None or handed.session is None:
        return ()
    command, delivery = handed.command.command, handed.command.deliveries
    action = SendControl(
        connection=handed.session.connection,
        message=Deliver(command, delivery),
        envelope_id=f"command_{command.command_id}_{delivery}",
    )
    return (Gated(action, run.revision),)


def _with_session(live: LiveRun, handed: HandedOut) -> LiveRun:
    return msgspec.structs.replace(live, session=handed.session)


def _replied(
    stimulus: CommandRequested, command: WireCommand | SettledCommand, run: Run
) -> Gated[Action]:
    reply = Reply(
        request=stimulus.request,
        command_id=command.command_id,
        controller_seq=command.controller_seq,
    )
    return Gated(reply, run.revision)
