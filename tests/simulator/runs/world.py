"""One machine, its durable run, whoever works on it, and the world outside.

It decides how a host begins and ends, and what strikes it. It refuses to choose what happens
next (the history) and to judge it (the judge and the ledger).
"""

from collections.abc import Callable
from typing import Any

from protocol.errors import ErrorCode, PrpError
from protocol.reactions import REACTIONS, Reaction
from runnerd.runs.decisions import DecidedOutcome, Decider, DeciderKind
from runnerd.runs.effect_facts import Verdict
from runnerd.runs.reconcile import evidence_of, reconcile_effect
from runnerd.runs.records import Durability
from runnerd.runs.resume_plan import ResumeDecision
from runnerd.runs.run_facts import collect_facts
from tests.runnerd.runs.memory_locks import MemoryLocks
from tests.simulator.disk import Mode
from tests.simulator.disk_faults import Call as DiskCall
from tests.simulator.disk_faults import Died, Fault
from tests.simulator.draws import Draws
from tests.simulator.machine import Machine
from tests.simulator.profile import Profile
from tests.simulator.runs.conversations import Conversations
from tests.simulator.runs.host import AT, CONFIG, Call, Host
from tests.simulator.runs.judge import RunJudge
from tests.simulator.runs.ledger import Ledger
from tests.simulator.runs.reader import effects_of
from tests.simulator.verdict import Violation

_EXPECTED = (Reaction.FENCE, Reaction.EXIT)
_PERSON_MUST_LOOK = (ErrorCode.UNKNOWN_EFFECT, ErrorCode.COMMITTED_EFFECT_PENDING)
_OVER = (ErrorCode.RUN_ALREADY_FINISHED, ErrorCode.OPERATION_NOT_RESUMABLE)


class World:
    """Everything that a history can touch."""

    def __init__(self, draws: Draws, profile: Profile, mode: Mode) -> None:
        self.draws = draws
        self.profile = profile
        self.trace: list[object] = []
        self.seen: set[str] = set()
        self.machine = Machine(mode, draws.seed)
        self.locks = MemoryLocks()
        self.ledger = Ledger()
        self.judge = RunJudge(self.machine.disk, self.ledger)
        self.conversations: Conversations | None = None
        self.host: Host | None = None
        self.works: tuple[tuple[str, str], ...] = ()
        """What the run has to do, each once: a name and the tool for it."""
        self.finished_steps: set[str] = set()
        self.calls_made = 0
        self.late: list[Call] = []
        """Calls that were given up in the present process."""
        self.needs_person = False
        self.is_over = False
        self.faults_are_on = True
        self.armed: tuple[int, Fault] | None = None
        self.loses_power = False
        """The next death of a process is a power loss."""
        self.steps_taken = 0
        self.kept: dict[str, Any] = {}

    # --- faults ----------------------------------------------------------------------------------

    def strike(self, call: DiskCall) -> Fault | None:
        """Say what happens to a disk call of the host."""
        if self.armed is None:
            return None
        countdown, fault = self.armed
        if countdown > 1:
            self.armed = (countdown - 1, fault)
            return None
        self.armed = None
        self.trace.append(("disk", call.name, fault))
        self.seen.add(f"fault at {call.name}")
        return fault

    def note_append(self, sequence: int, kind: str, payload: Any) -> None:
        """Note that the host is about to write a record."""
        what: str = payload["event"]["type"] if kind == "event" else kind
        self.trace.append(("append", sequence, what))
        self.judge.attempt(sequence, kind, payload)

    def scaled(self, family: str, weight: int) -> int:
        """Return a weight that is threefold in a storm."""
        return weight * (2 * self.profile.level(family) - 1)

    # --- the host --------------------------------------------------------------------------------

    def act(self, work: Callable[[Host], None]) -> None:
        """Let the host do something; a failure of the disk or its death ends it."""
        host = self.host
        assert host is not None
        try:
            work(host)
            if host.is_over:
                self.end_host()
        except Died:
            self.trace.append("died")
            self._died()
        except PrpError as error:
            self._ended(error)

    def start_host(self) -> None:
        """Start a process; it begins the run or takes it up."""
        self.host = Host(self)
        self.late.clear()
        self.act(self._open)

    def _open(self, host: Host) -> None:
        if self.conversations is not None:
            self.conversations.open(host.fs, self)
        was_torn = self.judge.log().is_torn
        facts = host.open()
        if was_torn:
            self.seen.add("torn tail repaired")
        if self.judge.damaged is not None:
            raise Violation("I22", "a damaged log was opened")
        config = CONFIG
        if self.faults_are_on and self.profile.has("other_config"):
            config = self.draws.stream("workload").pick(
                "config", (CONFIG, CONFIG, CONFIG, "0" * 64)
            )
        decision = host.begin(facts, config)
        if decision is None:
            return
        self._judge_decision(decision, config)
        if decision.refusal is not None:
            self.trace.append(decision.refusal)
            self._refused(decision.refusal.code)

    def _judge_decision(self, decision: ResumeDecision, config: str) -> None:
        """What is in doubt by the bytes of the log is never taken as settled (I14)."""
        if decision.plan is not None and config != CONFIG:
            raise Violation("I13", "a run was resumed with another configuration")
        doubts = effects_of(self.judge.log())
        verdicts = {account.effect_id: account.verdict for account in decision.effects}
        for key, effect in doubts.items():
            if not effect.is_in_doubt or effect.tool == "look":
                continue
            verdict = verdicts.get(key)
            is_offered = effect.tool == "pay" and verdict is Verdict.REPLAY
            if verdict is not Verdict.PAUSE and not is_offered:
                raise Violation("I14", f"{effect.call_id} is in doubt and was taken as {verdict}")
            if verdict is Verdict.PAUSE and decision.plan is not None:
                raise Violation("I14", f"{effect.call_id} is in doubt and the run went on")

    def _refused(self, code: ErrorCode) -> None:
        self.trace.append(("refused", code.value))
        if code in _OVER:
            self.is_over = True
            self.seen.add("second end refused")
        elif code in _PERSON_MUST_LOOK:
            self.needs_person = True
            self.seen.add(
                "unknown effect reported"
                if code is ErrorCode.UNKNOWN_EFFECT
                else "committed effect reported"
            )
        elif code is ErrorCode.RESUME_CONFIG_MISMATCH:
            self.seen.add("other configuration refused")
        else:
            raise Violation("I18", f"a resumption was refused as {code.value}")
        self.end_host()

    def _ended(self, error: PrpError) -> None:
        self.trace.append(("ended", error.code.value))
        if error.code is ErrorCode.RUN_STATE_CORRUPT:
            self._judge_closed(error)
        elif REACTIONS[error.code] not in _EXPECTED:
            raise Violation("I18", f"{error} is no way to end") from error
        self.end_host()

    def _judge_closed(self, error: PrpError) -> None:
        """Only damage closes a log: somebody's, or a hole that a power loss has left (R19)."""
        log = self.judge.log()
        if not log.damage:
            raise Violation("I22", f"a whole log was refused: {error}")
        if self.judge.damaged is not None:
            if self.judge.content() != self.judge.damaged:
                raise Violation("I22", "a damaged log was changed")
            self.seen.add("damage refused")
        elif not self.judge.may_have_hole or len(log.records) < self.judge.kept:
            raise Violation("I22", f"the log is not whole: {error}")
        self.is_over = True

    def end_host(self) -> None:
        """Let the host end in order."""
        host = self.host
        if host is None:
            return
        try:
            host.close()
        except Died:
            self.trace.append("died at the end")
            self._died()
        except PrpError:
            self.trace.append("not closed")
        self.host_died()

    def _died(self) -> None:
        if self.loses_power:
            self.seen.add("power loss in a disk call")
            self.lose_power()
        self.host_died()

    def host_died(self) -> None:
        """Let the kernel tidy up behind a process."""
        host, self.host = self.host, None
        if host is not None:
            host.fs.kill()
        self.locks.held.clear()
        if self.judge.damaged is None:
            self.judge.check_log()
        if self.conversations is not None:
            self.conversations.check()

    def lose_power(self) -> None:
        """End everything on the machine."""
        self.loses_power = False
        self.trace.append("power loss")
        self.host_died()
        self.judge.power_is_lost()
        self.machine.disk.lose_power(self.draws.stream("disk"))
        self.seen |= self.machine.disk.last_losses
        if self.conversations is not None:
            self.conversations.power_was_lost()

    # --- people ----------------------------------------------------------------------------------

    def decide(self) -> None:
        """Let a person look at the world and record what is true, effect by effect."""
        self.host = Host(self)
        self.act(self._decide)
        self.end_host()

    def _decide(self, host: Host) -> None:
        host.open()
        assert host.run is not None
        for effect in list(effects_of(self.judge.log()).values()):
            work = effect.call_id.partition("-")[0]
            if effect.tool == "look" and effect.status != "committed":
                continue
            is_pending = effect.status == "committed" and f"step-{work}" not in self._output()
            if effect.decided or not (effect.needs_person or is_pending):
                continue
            for request in self.ledger.requests:
                if request.work == work:
                    self.ledger.refuse(request)
            is_done = self.ledger.is_done(work)
            record = reconcile_effect(
                collect_facts(host.run.records()),
                effect.key,
                DecidedOutcome.COMMITTED if is_done else DecidedOutcome.NOT_DONE,
                decided_by=Decider(kind=DeciderKind.PERSON, name="R. Example"),
                evidence=evidence_of(f"{work}: {is_done}".encode()),
                decided_at=AT,
            )
            self.note_append(record.sequence, record.kind.value, record.payload)
            host.run.append(record, Durability.CRITICAL)
            self.judge.wrote(record.sequence, is_critical=True)
            self.seen.add("decided by a person")
        self.needs_person = False

    def _output(self) -> set[str]:
        steps: set[str] = set()
        for record in self.judge.log().records:
            if record["kind"] == "event" and record["payload"]["event"]["type"] == "step_output":
                steps.add(record["payload"]["event"]["stepId"])
        return steps
