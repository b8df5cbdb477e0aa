"""A program sees the allow-list, the named extras and our own facts, and never the ticket."""

from protocol.ids import Generation
from runnerd.core.actions import StartHarness
from runnerd.harness.environment import INHERITED, child_environment, mark_variable

OURS = {
    "RUNNERD_LAUNCH": "state.3",
    "RUNNERD_RUN_ID": "run-7",
    "RUNNERD_TURN": "2",
    "RUNNERD_LINES_ACCEPTED": "41",
}


def order(*env_names: str) -> StartHarness:
    return StartHarness(
        generation=Generation(3),
        launch_mark="state.3",
        argv=("true",),
        cwd="/",
        env_names=env_names,
        turn_ordinal=2,
        lines_accepted=41,
    )


def test_environment_holds_the_allow_list_and_nothing_else() -> None:
    environ = dict.fromkeys(INHERITED, "kept") | {"EDITOR": "vi", "RUNNERD_OTHER": "1"}

    environment = child_environment(order(), "run-7", environ)

    assert environment == dict.fromkeys(INHERITED, "kept") | OURS


def test_environment_holds_the_named_extras_that_exist() -> None:
    environment = child_environment(order("EDITOR", "PAGER"), "run-7", {"EDITOR": "vi"})

    assert environment == {"EDITOR": "vi"} | OURS


def test_environment_never_holds_the_ticket_when_it_is_named() -> None:
    ticket = "PAPERCLIP_RUNNER_BOOTSTRAP_TICKET"

    assert child_environment(order(ticket), "run-7", {ticket: "secret"}) == OURS


def test_extras_cannot_replace_our_own_facts() -> None:
    environ = {"RUNNERD_LAUNCH": "other.1", "RUNNERD_TURN": "9", "RUNNERD_OTHER": "1"}

    assert child_environment(order(*environ), "run-7", environ) == OURS


def test_names_that_a_shell_could_not_hand_on_are_left_out() -> None:
    environ = {"a.b": "1", "1a": "1", "": "1", "ä": "1", "a\n": "1"}

    assert child_environment(order(*environ), "run-7", environ) == OURS


def test_mark_is_the_entry_of_the_environment_that_names_the_launch() -> None:
    environment = child_environment(order(), "run-7", {})

    assert mark_variable("state.3").decode() in [f"{k}={v}" for k, v in environment.items()]
