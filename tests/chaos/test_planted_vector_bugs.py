"""Bugs planted in vectors and shared transactions: the sweep finds each, and nothing without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from datp_tasks.engine import vector_steps
from datp_tasks.engine.outcomes import Ended
from datp_tasks.engine.round import Round
from datp_tasks.engine.run import Run
from datp_tasks.record import effects as effects_module
from datp_tasks.record.effects import Effects
from datp_tasks.testing import Kit, crash_sweep
from datp_tasks.testing.cases import Report
from datp_tasks.testing.sweep import MOVERS
from tests.chaos.vector_world import VectorWorld

SIZE = 4

Plant = Callable[[pytest.MonkeyPatch], None]


def without_a_fence_for_one_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of each batch takes effect, whatever SQL says of it."""
    hold = Effects.hold

    def careless(effects: Effects, *limits: Any) -> None:
        hold(effects, *limits)
        wanted: dict[str, Any] = vars(effects)["_wanted"]
        effects.held |= {next(iter(wanted))}

    monkeypatch.setattr(Effects, "hold", careless)


def effect_of_a_failed_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is recorded as if it had been done."""
    outputs = vars(vector_steps)["_outputs"]

    def careless(runs: Sequence[Run]) -> Any:
        failed = {run.tx_id: None for run in runs if isinstance(run.outcome, Ended)}
        return {**outputs(runs), **failed}

    monkeypatch.setattr(vector_steps, "_outputs", careless)


def half_a_batch_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """In halves, nothing looks for what an earlier try has recorded."""
    hold = Effects.hold

    def careless(effects: Effects, *limits: Any) -> None:
        hold(effects, *limits)
        if len(vars(effects)["_wanted"]) < SIZE:
            effects.recorded = {}

    monkeypatch.setattr(Effects, "hold", careless)
    query = effects_module.Query
    monkeypatch.setattr(query, "save", query.save + "ON CONFLICT DO NOTHING")


def no_savepoint_for_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed neighbour did is committed together with the others."""
    monkeypatch.setattr(Effects, "undo_item", lambda effects: None)


def shared_without_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that share a transaction take effect, and only the first of them is recorded."""
    record = Effects.record

    def careless(effects: Effects, outputs: dict[str, Any]) -> None:
        record(effects, dict(list(outputs.items())[:1]))

    monkeypatch.setattr(Effects, "record", careless)


#: The bug, the pipeline and the case with which the sweep finds it, and what it says.
BUGS: list[tuple[Plant, str, str, str]] = [
    (without_a_fence_for_one_item, "once", "hop.after_claim#1=pause", "is failed, but has"),
    (effect_of_a_failed_item, "vectors", "hop.after_step#1=crash", r"\(fails\) is success"),
    (half_a_batch_twice, "vectors", "commit:effects.open:after#1=lost-answer", "'book', 'book'"),
    (no_savepoint_for_one_that_fails, "shared", "hop.after_step#1=crash", "is failed, but has"),
    (shared_without_a_record, "shared", "effect.after_commit#1=crash", "'book', 'book'"),
]


def one_case(kit: Kit, world: VectorWorld, pipeline: str, case: str) -> Report:
    report = crash_sweep(
        kit,
        pipeline,
        world.data,
        check=world.complaints_about,
        ends=["success", "failed"],
        together=SIZE,
        jobs=MOVERS,
        only=[case],
    )
    assert [str(result.case) for result in report.results] == [case]
    assert report.missed == []
    return report


@pytest.mark.parametrize(("plant", "pipeline", "case", "words"), BUGS)
def test_a_planted_bug_is_found_and_its_place_is_clean_without_it(
    kit: Kit,
    vector_world: VectorWorld,
    monkeypatch: pytest.MonkeyPatch,
    plant: Plant,
    pipeline: str,
    case: str,
    words: str,
) -> None:
    one_case(kit, vector_world, pipeline, case).assert_clean()
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        one_case(kit, vector_world, pipeline, case).assert_clean()


def test_a_round_that_the_guard_broke_up_is_not_committed(
    kit: Kit, vector_world: VectorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seal is what keeps a transaction that others have taken over from being committed."""
    monkeypatch.setattr(Round, "seal", lambda round: False)
    ends = kit.run_together("shared", [vector_world.data(n) for n in (1, 3)])
    # Never together, but alone, and once.
    assert [list(vector_world.complaints_about(end)) for end in ends] == [[], []]
