"""Which steps share a message, and which get one of their own."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit

Data = dict[str, Any]


def declare(kit: Kit) -> list[str]:
    groups: list[str] = []

    @kit.step("t/note")
    def note(ctx: Any, data: Data) -> Data:
        groups.append(kit.connections.live.fields_many([ctx.tx_id])[0]["group"])
        return {"n": data.get("n", 0) + 1}

    @kit.step("t/other")
    def other(ctx: Any, data: Data) -> None: ...

    return groups


def test_consecutive_steps_of_one_group_need_one_message(datp: Kit) -> None:
    declare(datp)
    datp.use(Pipeline("p").step("t/note").step("t/other").step("t/note").build())
    assert datp.run("p", {}).output == {"n": 2}
    assert [step_type for step_type, _ in datp.send.rung] == ["t/note"]


def test_a_step_that_asks_for_it_gets_its_own_message(datp: Kit) -> None:
    declare(datp)
    datp.use(
        Pipeline("p")
        .step("t/note")
        .step("t/other", dispatch="queue")
        .step("t/note")
        .step("t/note", dispatch="queue")
        .build()
    )
    tx_id = datp.run("p", {}).tx_id
    assert [step_type for step_type, _ in datp.send.rung] == ["t/note", "t/other", "t/note"]
    assert [pairs for _, pairs in datp.send.rung] == [[(tx_id, n)] for n in (1, 2, 3)]
    assert datp.status(tx_id).output == {"n": 3}


def test_a_pipeline_gives_every_step_its_own_message_but_those_that_say_otherwise(
    datp: Kit,
) -> None:
    declare(datp)
    pipeline = Pipeline("p", dispatch="step").step("t/note").step("t/other")
    datp.use(pipeline.step("t/note").step("t/other", dispatch="inline").build())
    tx_id = datp.run("p", {}).tx_id
    assert [step_type for step_type, _ in datp.send.rung] == ["t/note", "t/other", "t/note"]
    assert [pairs for _, pairs in datp.send.rung] == [[(tx_id, n)] for n in (1, 2, 3)]


@pytest.mark.kit(dispatch="step")
def test_the_settings_give_every_step_its_own_message_where_its_pipeline_says_nothing(
    datp: Kit,
) -> None:
    declare(datp)
    datp.use(
        Pipeline("p").step("t/note").step("t/other").build(),
        Pipeline("together", dispatch="inline").step("t/note").step("t/other").build(),
    )
    datp.run("p", {})
    assert [step_type for step_type, _ in datp.send.rung] == ["t/note", "t/other"]
    datp.run("together", {})
    assert [step_type for step_type, _ in datp.send.rung[2:]] == ["t/note"]


def test_a_first_step_with_its_own_message_is_not_sent_twice(datp: Kit) -> None:
    declare(datp)
    datp.use(Pipeline("p").step("t/note", dispatch="queue").build())
    assert datp.run("p", {}).output == {"n": 1}
    assert len(datp.send.rung) == 1


def test_a_step_in_its_own_node_group_runs_there_and_the_next_back_home(datp: Kit) -> None:
    groups = declare(datp)
    datp.use(
        Pipeline("p", group="home")
        .step("t/note")
        .step("t/note", group="vault")
        .step("t/note", group="vault")
        .step("t/note")
        .build()
    )
    assert datp.run("p", {}).output == {"n": 4}
    assert groups == ["home", "vault", "vault", "home"]
    assert len(datp.send.rung) == 3


def test_a_worker_that_serves_both_groups_needs_no_message(datp: Kit) -> None:
    groups = declare(datp)
    datp.process.worker.hop._committer._groups = frozenset({"home", "vault"})
    datp.use(Pipeline("p", group="home").step("t/note").step("t/note", group="vault").build())
    assert datp.run("p", {}).output == {"n": 2}
    assert groups == ["home", "vault"]
    assert len(datp.send.rung) == 1


def test_a_first_step_that_no_node_offers_waits_and_says_why(datp: Kit) -> None:
    datp.use(Pipeline("p").step("t/late").build())
    tx_id = datp.submit("p", {})
    summary = datp.status(tx_id)
    assert summary.status is Status.QUEUED
    assert "does not offer the step type t/late" in (summary.note or "")

    @datp.step("t/late")
    def late(ctx: Any, data: Data) -> Data:
        return {"late": True}

    datp.recover()
    summary = datp.status(tx_id)
    assert (summary.output, summary.note) == ({"late": True}, None)


def test_a_later_step_that_no_node_offers_waits_and_says_why(datp: Kit) -> None:
    declare(datp)
    datp.use(Pipeline("p").step("t/note").step("t/late").build())
    tx_id = datp.submit("p", {})
    summary = datp.status(tx_id)
    assert summary.status is Status.QUEUED
    assert "offers the step t/late" in (summary.note or "")
    # It does not go round in circles meanwhile.
    assert len(datp.send.rung) == 1

    @datp.step("t/late")
    def late(ctx: Any, data: Data) -> None: ...

    datp.recover()
    assert datp.status(tx_id).output == {"n": 1}
