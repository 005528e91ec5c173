"""note_problem.lua: why a queued transaction cannot run."""

from __future__ import annotations

from tests.support.live_states import Stage


def test_a_problem_is_noted_for_people_until_it_is_queued_anew(stage: Stage) -> None:
    _, bell = stage.handed_over()
    stage.live.note_problems([(bell.tx_id, bell.sequence)], "no worker offers the step")
    fields = stage.fields(bell.tx_id)
    assert (fields["status"], fields["problem"]) == ("queued", "no worker offers the step")


def test_a_problem_of_an_old_bell_is_not_noted(stage: Stage) -> None:
    _, bell = stage.handed_over()
    with stage.nothing_changes():
        stage.live.note_problems([(bell.tx_id, bell.sequence - 1)], "out of date")
