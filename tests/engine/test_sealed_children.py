"""What a sealed pipeline is given and returns rests sealed, whichever pipeline calls it."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Call, Pipeline, Sleep
from datp_tasks.errors import PipelineInvalid
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.search_everywhere import places_with

Data = dict[str, Any]
WORD = "zanzibar"


@pytest.fixture
def steps(datp: Kit) -> Kit:
    @datp.step("t/add")
    def add(ctx: Any, data: Data) -> Data:
        ctx.progress({"stage": WORD})
        return {**data, "added": WORD}

    @datp.step("t/choose")
    def choose(ctx: Any, data: Data) -> Any:
        return Call("secret", {**data, "called": WORD})

    @datp.step("t/choose-caller")
    def choose_caller(ctx: Any, data: Data) -> Any:
        return Call("caller", data)

    @datp.step("t/wait")
    def wait(ctx: Any, data: Data) -> Any:
        return data if ctx.switch("go") else Sleep(switch="go", seconds=3_600)

    datp.use(
        Pipeline("secret", sealed=True).step("t/add").build(),
        Pipeline("plain").step("t/add").build(),
    )
    return datp


def calling(name: str, params: Data) -> Any:
    return Pipeline(name).step("util/child-pipeline", params=params).build()


@pytest.mark.parametrize(
    "params",
    [
        {"pipeline": "secret"},
        {"field": "kind", "map": {"s": "secret", "p": "plain"}},
        {"field": "kind", "map": {"p": "plain"}, "default": "secret"},
        {"pipeline": "between"},
    ],
)
def test_a_plain_parent_that_may_call_a_sealed_pipeline_rests_sealed(
    steps: Kit, params: Data
) -> None:
    steps.use(calling("between", {"pipeline": "secret"}), calling("parent", params))
    summary = steps.run("parent", {"name": WORD, "kind": "s"})
    assert (summary.status, (summary.output or {})["added"]) == (Status.SUCCESS, WORD)
    steps.run_jobs()
    assert places_with(steps, WORD) == []


@pytest.mark.parametrize("part", ["input", "output"])
def test_neither_search_attributes_nor_the_payee_have_it_in_clear_text(
    steps: Kit, part: str
) -> None:
    search = {"who": {"from": f"{part}.name", "type": "string"}}
    payee = {"owner": "to", "show": ["name"]}
    steps.use(
        Pipeline("parent", search=search, payee=payee)
        .step("util/child-pipeline", params={"pipeline": "sealed-later"})
        .build()
    )
    steps.use(Pipeline("sealed-later", sealed=True).step("t/add").build())
    summary = steps.run("parent", {"name": WORD, "to": "bank"})
    assert summary.status is Status.SUCCESS
    assert places_with(steps, WORD) == []
    with steps.connections.engine.connect() as sql:
        query = "SELECT payload ->> 'data' FROM tx_event WHERE owner = 'bank' AND kind = 'payee'"
        assert sql.exec_driver_sql(query).scalars().all() == ["{}"]


def test_what_would_show_data_of_a_sealed_child_is_refused_when_it_is_applied(steps: Kit) -> None:
    steps.use(calling("between", {"pipeline": "secret"}))
    showing = Pipeline("parent", payee={"owner": "to", "show": ["name"]}).step(
        "util/child-pipeline", params={"pipeline": "between"}
    )
    with pytest.raises(PipelineInvalid, match="parent: payee: it calls secret, which is sealed"):
        steps.use(showing.build())


def test_one_whose_children_are_plain_stays_plain(steps: Kit) -> None:
    steps.use(calling("parent", {"field": "kind", "map": {"p": "plain", "x": "no-such"}}))
    assert steps.run("parent", {"name": WORD, "kind": "p"}).status is Status.SUCCESS
    assert "tx_summary" in places_with(steps, WORD)


def test_pipelines_that_call_each_other_end_the_search(steps: Kit) -> None:
    steps.use(calling("a", {"pipeline": "b"}), calling("b", {"pipeline": "a"}))
    assert steps.run("a", {"name": WORD}).status is Status.INTERNAL_ERROR


@pytest.mark.parametrize("starts", ["chooser", "calls-chooser", "chooses-caller"])
def test_a_function_of_a_plain_pipeline_cannot_hand_data_to_a_sealed_one(
    steps: Kit, starts: str
) -> None:
    """At once, below a child, or by a child of the one that it chose."""
    steps.use(
        Pipeline("chooser").step("t/choose").build(),
        calling("calls-chooser", {"pipeline": "chooser"}),
        Pipeline("chooses-caller").step("t/choose-caller").build(),
        calling("caller", {"pipeline": "secret"}),
    )
    summary = steps.run(starts, {"name": "x"})
    assert summary.status is Status.INTERNAL_ERROR
    assert "secret is sealed and this transaction is not: set sealed: true in" in (
        summary.note or ""
    )
    assert places_with(steps, WORD) == []


def test_what_was_accepted_before_its_child_was_sealed_goes_on_as_it_began(steps: Kit) -> None:
    steps.use(
        Pipeline("late").step("t/add").build(),
        Pipeline("parent")
        .step("t/wait")
        .step("util/child-pipeline", params={"pipeline": "late"})
        .build(),
    )
    tx_id = steps.submit("parent", {"name": WORD})
    steps.use(Pipeline("late", sealed=True).step("t/add").build())
    summary = steps.set_switch(tx_id, "go", True)
    assert summary.status is Status.SUCCESS
