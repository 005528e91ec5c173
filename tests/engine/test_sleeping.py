"""Sleeping for days, and waiting for switches that may come at any moment."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Pipeline, Request, Sleep
from datp_tasks.client.requests import Submitted
from datp_tasks.errors import SwitchInvalid, TransactionFinal, TransactionUnknown
from datp_tasks.live import store
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

Data = dict[str, Any]


def declare(kit: Kit) -> list[Any]:
    """t/gate waits for the switch `go`; the values that it saw."""
    seen: list[Any] = []

    @kit.step("t/gate")
    def gate(ctx: Any, data: Data) -> Data | Sleep:
        seen.append(ctx.switch("go"))
        if ctx.switch("go") is None:
            return Sleep(switch="go", seconds=ctx.params.get("seconds"))
        return {"go": ctx.switch("go"), "sleeps": ctx.sleeps}

    kit.use(Pipeline("gate").step("t/gate").build())
    return seen


def test_two_days_pass(datp: Kit) -> None:
    datp.use(
        Pipeline("p")
        .step("util/delay", params={"seconds": 2 * 86_400})
        .step("util/fixed-reply", params={"output": {"awake": True}})
        .build()
    )
    tx_id = datp.submit("p", {})
    datp.advance(days=1.99)
    assert datp.status(tx_id).status is Status.SLEEPING
    datp.advance(days=0.01)
    summary = datp.status(tx_id)
    assert (summary.status, summary.output) == (Status.SUCCESS, {"awake": True})
    assert summary.completed_at is not None
    assert (summary.completed_at - summary.created_at).days == 2


def test_a_switch_wakes_at_once(datp: Kit) -> None:
    seen = declare(datp)
    tx_id = datp.submit("gate", {})
    assert datp.client.set_switch(tx_id, "go", True) is True
    assert datp.status(tx_id).output == {"go": True, "sleeps": 1}
    assert seen == [None, True]


def test_another_switch_does_not_wake(datp: Kit) -> None:
    seen = declare(datp)
    tx_id = datp.submit("gate", {})
    assert datp.client.set_switch(tx_id, "other", True) is False
    assert datp.status(tx_id).status is Status.SLEEPING
    assert seen == [None]


def test_without_the_switch_it_looks_again_when_the_time_is_over(datp: Kit) -> None:
    seen = declare(datp)
    tx_id = datp.submit("gate", {})
    datp.advance(seconds=7_200)
    assert seen == [None, None]
    assert datp.status(tx_id).status is Status.SLEEPING
    assert datp.set_switch(tx_id, "go", 1).output == {"go": 1, "sleeps": 2}


def test_a_switch_set_before_the_step_began_is_seen_at_once(datp: Kit) -> None:
    seen = declare(datp)
    datp.lose_bells()
    tx_id = datp.submit("gate", {})
    datp.client.set_switch(tx_id, "go", "early")
    datp.lose_bells(False)
    datp.recover()
    assert datp.status(tx_id).output == {"go": "early", "sleeps": 0}
    assert seen == ["early"]


def test_a_switch_set_while_the_step_decides_to_sleep_is_not_missed(datp: Kit) -> None:
    seen: list[Any] = []

    @datp.step("t/slow-gate")
    def gate(ctx: Any, data: Data) -> Data | Sleep:
        seen.append(ctx.switch("go"))
        if ctx.switch("go") is None:
            assert datp.client.set_switch(ctx.tx_id, "go", True) is False
            return Sleep(switch="go")
        return {"sleeps": ctx.sleeps}

    datp.use(Pipeline("p").step("t/slow-gate").build())
    assert datp.run("p", {}).output == {"sleeps": 1}
    assert seen == [None, True]


def test_a_step_that_knows_the_switch_and_waits_for_a_change_does_sleep(datp: Kit) -> None:
    seen: list[Any] = []

    @datp.step("t/counter")
    def counter(ctx: Any, data: Data) -> Data | Sleep:
        seen.append(ctx.switch("count"))
        return {"n": 3} if ctx.switch("count") == 3 else Sleep(switch="count")

    datp.use(Pipeline("p").step("t/counter").build())
    tx_id = datp.submit("p", {})
    for count in (1, 2):
        assert datp.set_switch(tx_id, "count", count).status is Status.SLEEPING
    # The same value is no change.
    assert datp.client.set_switch(tx_id, "count", 2) is False
    assert datp.set_switch(tx_id, "count", 3).status is Status.SUCCESS
    assert seen == [None, 1, 2, 3]


def test_a_step_that_sets_the_switch_it_waits_for_runs_again_and_then_sleeps(datp: Kit) -> None:
    seen: list[Any] = []

    @datp.step("t/self")
    def itself(ctx: Any, data: Data) -> Sleep:
        seen.append(ctx.switch("mine"))
        ctx.set_switch("mine", "set")
        return Sleep(switch="mine")

    datp.use(Pipeline("p").step("t/self").build())
    tx_id = datp.submit("p", {})
    assert datp.status(tx_id).status is Status.SLEEPING
    assert seen == [None, "set"]


@pytest.mark.parametrize("value", [True, False, 0, -1.5, 10**15, "", "text", "ü"])
def test_the_value_of_a_switch_comes_through_as_it_is(datp: Kit, value: Any) -> None:
    declare(datp)
    tx_id = datp.submit("gate", {})
    output = datp.set_switch(tx_id, "go", value).output
    assert output is not None
    assert output["go"] == value
    assert type(output["go"]) is type(value)


def test_none_removes_a_switch(datp: Kit) -> None:
    seen = declare(datp)
    datp.lose_bells()
    tx_id = datp.submit("gate", {})
    datp.client.set_switch(tx_id, "go", True)
    datp.client.set_switch(tx_id, "go", None)
    datp.lose_bells(False)
    datp.recover()
    assert datp.status(tx_id).status is Status.SLEEPING
    assert seen == [None]


@pytest.mark.parametrize(
    ("name", "value"),
    [("", 1), ("a b", 1), ("x" * 33, 1), ("go", "x" * 33), ("go", [1]), ("go", float("nan"))],
)
def test_a_switch_that_is_not_allowed_changes_nothing(datp: Kit, name: str, value: Any) -> None:
    seen = declare(datp)
    tx_id = datp.submit("gate", {})
    with pytest.raises(SwitchInvalid):
        datp.client.set_switch(tx_id, name, value)
    assert seen == [None]


def test_a_transaction_has_only_so_many_switches(datp: Kit) -> None:
    declare(datp)
    tx_id = datp.submit("gate", {})
    limit = store.SWITCHES_MAX
    for number in range(limit):
        datp.client.set_switch(tx_id, f"s{number}", number)
    with pytest.raises(SwitchInvalid, match=f"{limit} switches already"):
        datp.client.set_switch(tx_id, "go", True)
    # Those that are there can still be changed.
    datp.client.set_switch(tx_id, "s0", "changed")


def test_a_switch_of_an_ended_or_unknown_transaction_cannot_be_set(datp: Kit) -> None:
    declare(datp)
    tx_id = datp.submit("gate", {})
    datp.set_switch(tx_id, "go", True)
    with pytest.raises(TransactionFinal, match="has ended: success"):
        datp.client.set_switch(tx_id, "go", False)
    for unknown in ("nonsense", "t00-" + "0" * 32):
        with pytest.raises(TransactionUnknown):
            datp.client.set_switch(unknown, "go", True)


def test_wake_ends_a_sleep_early(datp: Kit) -> None:
    seen = declare(datp)
    tx_id = datp.submit("gate", {})
    assert datp.client.wake(tx_id) is True
    assert seen == [None, None]
    datp.set_switch(tx_id, "go", True)
    with pytest.raises(TransactionFinal):
        datp.client.wake(tx_id)


def test_wake_does_nothing_to_what_does_not_sleep(datp: Kit) -> None:
    seen = declare(datp)
    datp.lose_bells()
    tx_id = datp.submit("gate", {})
    assert datp.client.wake(tx_id) is False
    assert seen == []


def test_the_sleeper_wakes_all_that_are_due_also_when_they_share_a_shard(
    datp_servers: Servers,
) -> None:
    kit = Kit(datp_servers, shards=4, sleeper_batch_max=8)
    kit.use(Pipeline("p").step("util/delay", params={"seconds": 60}).build())
    accepted = kit.client.submit_many([Request(pipeline="p", input={})] * 15)
    txs = [each.tx_id for each in accepted if isinstance(each, Submitted)]
    assert len({tx_id[1:3] for tx_id in txs}) == 1
    kit.advance(seconds=60)
    assert [kit.status(tx).status for tx in txs] == [Status.SUCCESS] * 15
    kit.close()
