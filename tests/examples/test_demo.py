"""`datp demo` says yes when all is well, and no when anything is not."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from sqlalchemy import Engine

from datp_tasks.cli.demo import pace, run_demo
from datp_tasks.cli.demo_plan import KINDS, Transfer, deposits, example, make_plan
from datp_tasks.client.client import Client
from datp_tasks.engine.registry import discover
from datp_tasks.pipelines.files import load_definitions
from datp_tasks.record.record_types import Summary
from examples.payments import PIPELINES_FOLDER, STEPS_MODULE
from tests.examples.inline_client import InlineClient


def run(engine: Engine, *, timeout_s: float = 60, **faults: Any) -> tuple[bool, str]:
    discover([STEPS_MODULE])
    definitions = load_definitions([PIPELINES_FOLDER])
    by_name = {definition.name: definition for definition in definitions}
    client = cast(Client, InlineClient(engine=engine, definitions=by_name, **faults))
    console = Console(file=StringIO(), width=100)
    verdict = run_demo(client, engine, transfers=50, seed=1, console=console, timeout_s=timeout_s)
    return verdict, cast(StringIO, console.file).getvalue()


def test_the_demo_passes_again_and_again_on_the_same_database(payments_engine: Engine) -> None:
    for _ in range(2):
        verdict, shown = run(payments_engine)
        assert verdict is True, shown
        assert "Every transfer ended as it should, and all the money is there." in shown
        assert re.search(r"50 transfers in .* [1-9][0-9]* a second", shown)
        for kind in KINDS:
            assert kind.label in shown


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("forgets_rollbacks", "still holds"),
        ("forgets_commits", "but should have"),
        ("forgets_to_wake", "has not ended in time"),
        ("accepts_everything", "was accepted for another request"),
    ],
)
def test_the_demo_fails_when_the_engine_is_wrong(
    payments_engine: Engine, fault: str, problem: str
) -> None:
    timeout_s = 0.5 if fault == "forgets_to_wake" else 60
    verdict, shown = run(payments_engine, timeout_s=timeout_s, **{fault: True})
    assert verdict is False
    assert problem in shown


def ended(*times_s: tuple[float, float]) -> list[Transfer]:
    """Transfers that were accepted and ended so many seconds after the demo began."""
    began = datetime(2030, 1, 1, tzinfo=UTC)
    return [
        Transfer(
            kind=KINDS[0],
            data={},
            external_id="x",
            ended=cast(
                Summary,
                SimpleNamespace(
                    created_at=began + timedelta(seconds=accepted_s),
                    completed_at=began + timedelta(seconds=ended_s),
                ),
            ),
        )
        for accepted_s, ended_s in times_s
    ]


def test_the_pace_is_counted_from_the_first_accepted_to_the_last_ended() -> None:
    shown = pace([*ended((1, 5), (0, 1.5), (0.5, 1.75), (1, 2.4), (1, 2.5))])
    assert "5 transfers in 5.0 s" in shown
    assert "1 a second, 3 in the busiest second" in shown


def test_the_pace_knows_transfers_that_took_no_time_or_never_ended() -> None:
    assert "1 in the busiest second" in pace(ended((0, 0)))
    assert pace([Transfer(kind=KINDS[0], data={}, external_id="x")]) == "No transfer has ended."


def test_a_plan_has_every_kind_and_repeats_with_its_seed() -> None:
    plan = make_plan(random.Random(7), "run", 300)
    assert len(plan) == 300
    counts = Counter(transfer.kind.label for transfer in plan)
    assert set(counts) == {kind.label for kind in KINDS}
    assert plan == make_plan(random.Random(7), "run", 300)
    assert {kind.label for kind in KINDS} == {
        transfer.kind.label for transfer in make_plan(random.Random(7), "run", 1)
    }


def test_accounts_get_just_what_they_will_be_asked_for() -> None:
    plan = make_plan(random.Random(7), "run", 100)
    needed = deposits("run", plan)
    for transfer in plan:
        covered = transfer.data["amount"] <= needed[transfer.data["from"]]
        assert covered is not transfer.kind.is_poor


def test_the_example_is_found_and_a_missing_dependency_is_not_hidden() -> None:
    assert example("").__name__.endswith("payments")
    assert example("ledger").reserve
    with pytest.raises(ModuleNotFoundError, match="the payments example is not installed"):
        example("no_such_module")
