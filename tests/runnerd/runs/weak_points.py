"""Each weak point of the original's durable runs, and the tests that ours does not have it.

It decides nothing; `test_weak_points` asks whether every test of the table exists. Source:
durable-runs 10, by its numbers.
"""

from collections.abc import Mapping
from typing import Final

RUNS: Final = "tests/runnerd/runs/"
SESSIONS: Final = RUNS + "sessions/"
CRASH: Final = "tests/crash/"

BUDGET: Final = RUNS + "test_budget.py::"
CHECKPOINT: Final = RUNS + "test_checkpoint.py::"
CHECKPOINT_SWEEP: Final = CRASH + "test_checkpoint_sweep.py::"
CHECKPOINT_WORKSPACE: Final = RUNS + "test_checkpoint_workspace.py::"
COORDINATOR: Final = RUNS + "test_coordinator.py::"
EFFECTS: Final = RUNS + "test_effects.py::"
FILE_SESSIONS: Final = SESSIONS + "test_file_sessions.py::"
LEGACY: Final = SESSIONS + "test_legacy.py::"
MIGRATION: Final = SESSIONS + "test_migration.py::"
PROJECTION: Final = RUNS + "test_projection.py::"
RESUME: Final = RUNS + "test_resume.py::"
RUN_LOCK: Final = RUNS + "test_run_lock.py::"
RUN_LOG_SWEEP: Final = CRASH + "test_run_log_sweep.py::"
RUN_STORE: Final = RUNS + "test_run_store.py::"
SESSION_SWEEP: Final = CRASH + "test_session_sweep.py::"
VERIFICATION: Final = RUNS + "test_verification.py::"
STORE_POINTS: Final = RUNS + "test_weak_points.py::"

WEAK_POINTS: Final[Mapping[str, tuple[str, ...]]] = {
    "1 a legacy session is marked complete before it is checked": (
        LEGACY + "test_file_whose_lines_do_not_hang_together_is_refused_at_once",
        MIGRATION + "test_source_whose_lines_do_not_hang_together_stays_and_leaves_nothing",
    ),
    "1 the public file is replaced by an unreadable target": (
        MIGRATION + "test_complete_target_that_lacks_messages_never_takes_the_source_s_place",
        MIGRATION + "test_public_name_holds_the_source_or_the_session_at_every_moment",
        SESSION_SWEEP + "test_session_keeps_its_promises_when_the_process_dies",
    ),
    "2 an equal append conflicts when an object stands twice in it": (
        STORE_POINTS + "test_second_try_is_equal_when_the_payload_holds_one_object_twice",
    ),
    "2 an equal append conflicts when a date stands in it": (
        STORE_POINTS + "test_second_try_is_equal_when_the_payload_holds_a_date",
    ),
    "3 a critical record rewrites the whole file": (
        STORE_POINTS + "test_critical_record_costs_the_same_calls_however_long_the_log_is",
    ),
    "3 the folder is not synchronised after a rename": (
        STORE_POINTS + "test_first_record_is_durable_by_name_and_later_ones_by_sync",
        RUN_LOG_SWEEP + "test_log_keeps_its_promises_when_power_is_lost",
    ),
    "3 ordinary records are never synchronised": (
        STORE_POINTS + "test_critical_record_takes_the_ordinary_ones_before_it_along",
    ),
    "4 a lock is released by deleting a name without looking whose it is": (
        RUN_LOCK + "test_lock_file_stays_and_names_its_holder",
        RUN_LOCK + "test_foreign_lock_of_a_dead_process_is_reported_and_never_removed",
    ),
    "4 a reused pid or a shared folder misleads the lock": (
        RUN_LOCK + "test_name_of_a_living_process_in_a_lock_file_keeps_nobody_out",
        RUN_LOCK + "test_one_of_two_processes_wins_a_run_and_nothing_is_overwritten",
    ),
    "4 a crash while a lock is reclaimed blocks the run for ever": (
        RUN_LOCK + "test_run_is_free_when_its_writer_was_killed",
    ),
    "5 damaged text in a complete record is accepted": (
        STORE_POINTS + "test_damaged_text_in_a_complete_record_is_refused",
    ),
    "5 numbers are rewritten and blank lines dropped by a repair": (
        STORE_POINTS + "test_numbers_and_blank_lines_survive_mending_and_critical_records",
    ),
    "6 a deleted file is noticed only by its numbers": (
        STORE_POINTS + "test_deleted_file_is_noticed_and_not_only_by_its_numbers",
        RUN_STORE + "test_writer_notices_that_its_file_was_taken_away_and_never_starts_over",
    ),
    "7 keys joined by colons collide": (
        COORDINATOR + "test_call_whose_key_is_taken_is_refused_and_nothing_is_recorded",
        EFFECTS + "test_key_of_another_call_is_refused_before_anything_runs",
        RESUME + "test_two_calls_under_one_key_are_refused",
    ),
    "8 an unbound receipt goes back from started to not started": (
        RESUME + "test_receipt_never_goes_back_even_if_unbound",
    ),
    "8 a receipt without a call is ignored": (
        RESUME + "test_receipt_without_its_call_is_judged_as_well",
    ),
    "8 an unknown effect vanishes behind a finished step": (
        RESUME + "test_unknown_effect_does_not_vanish_behind_a_finished_step",
        VERIFICATION + "test_effect_in_doubt_keeps_a_run_from_success_even_behind_its_step",
    ),
    "8 shuffled records are sorted": (
        STORE_POINTS + "test_records_are_returned_as_they_stand_and_never_sorted",
        PROJECTION + "test_shuffled_records_have_no_state",
    ),
    "9 a limit goes blind when a provider reports tokens and no cost": (
        BUDGET + "test_missing_cost_is_named_and_the_limits_it_blinds_are_said",
    ),
    "10 a copied folder breaks the link and the session no longer opens": (
        FILE_SESSIONS + "test_copied_folder_opens_and_goes_on_without_the_original",
    ),
    "10 one unreadable neighbour stops all sessions of a folder": (
        FILE_SESSIONS + "test_unreadable_neighbour_stops_no_other_session",
    ),
    "10 a broken last line is cut although it was complete": (
        FILE_SESSIONS + "test_broken_last_line_that_was_written_whole_is_refused_and_stays",
    ),
    "11 a snapshot is rewritten in place after the tool ran": (
        CHECKPOINT + "test_mark_makes_a_new_snapshot_and_writes_into_none",
        CHECKPOINT_SWEEP + "test_file_is_old_or_new_when_the_process_dies",
    ),
    "11 a restore writes in place": (
        CHECKPOINT_WORKSPACE + "test_other_names_of_a_file_keep_what_the_tool_left",
        CHECKPOINT_SWEEP + "test_restore_tells_the_truth_when_a_call_fails",
    ),
    "11 the mode of a file is not kept": (CHECKPOINT + "test_restore_brings_back_bytes_and_mode",),
}
