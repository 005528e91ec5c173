"""What a step is given, and what it can do to its transaction while it runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from datp_tasks import Client, Fail, Pipeline, Sleep
from datp_tasks.errors import StepError, SwitchInvalid
from datp_tasks.model.status import Status
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.testing import Kit

Data = dict[str, Any]


@pytest.fixture
def elsewhere(datp: Kit) -> Iterator[Client]:
    """A client with connections of its own, as another process would have."""
    with make_client(Container.open(datp.settings, clock=datp.clock, send=datp.send)) as client:
        yield client


def test_a_step_knows_its_transaction(datp: Kit) -> None:
    seen: list[Any] = []

    @datp.step("t/look")
    def look(ctx: Any, data: Data) -> None:
        seen.append(ctx)
        assert ctx.data is data

    datp.use(Pipeline("p").step("t/look", params={"a": [1]}).build())
    tx_id = datp.submit(
        "p", {"n": 1}, owner="acme", external_id="order-7", metadata={"trace": "abc"}
    )
    [ctx] = seen
    assert (ctx.tx_id, ctx.owner, ctx.external_id) == (tx_id, "acme", "order-7")
    assert (ctx.metadata, ctx.params, ctx.data) == ({"trace": "abc"}, {"a": [1]}, {"n": 1})
    assert (ctx.attempt, ctx.sleeps) == (1, 0)
    assert ctx.idempotency_key == f"{tx_id}:0"
    assert ctx.now_ms() == datp.clock.now_ms()
    assert ctx.deadline is None


def test_a_transaction_without_metadata_and_external_id_has_empty_ones(datp: Kit) -> None:
    seen: list[Any] = []

    @datp.step("t/look")
    def look(ctx: Any, data: Data) -> None:
        seen.append((ctx.owner, ctx.external_id, ctx.metadata, ctx.params))

    datp.use(Pipeline("p").step("t/look").build())
    datp.run("p", {})
    assert seen == [("local", None, {}, {})]


def test_the_idempotency_key_is_the_same_for_every_try_and_another_for_every_step(
    datp: Kit,
) -> None:
    keys: list[str] = []

    @datp.step("t/shaky", retry={"max_attempts": 5})
    def shaky(ctx: Any, data: Data) -> Sleep | None:
        keys.append(ctx.idempotency_key)
        if ctx.attempt < 3:
            raise OSError
        return Sleep(seconds=5) if ctx.sleeps == 0 else None

    datp.use(Pipeline("p").step("t/shaky").step("t/shaky").build())
    first, second = datp.run("p", {}).tx_id, datp.run("p", {}).tx_id
    assert keys == [f"{tx}:{step}" for tx in (first, second) for step in (0, 1) for _ in range(4)]


def test_the_log_of_a_step_names_the_transaction(
    datp: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    @datp.step("t/log")
    def say(ctx: Any, data: Data) -> None:
        ctx.log.warning("almost empty")

    datp.use(Pipeline("p").step("t/log").build())
    with caplog.at_level(logging.WARNING, "datp.step"):
        tx_id = datp.run("p", {}).tx_id
    [record] = [each for each in caplog.records if each.message == "almost empty"]
    assert (record.tx, record.fence > 0) == (tx_id, True)  # type: ignore[attr-defined]
    assert record.pathname == __file__


def test_progress_is_seen_by_others_while_the_step_runs(datp: Kit, elsewhere: Client) -> None:
    seen: list[Any] = []

    @datp.step("t/report")
    def report(ctx: Any, data: Data) -> None:
        for stage in ("reserving", "paying"):
            ctx.progress({"stage": stage})
            summary = elsewhere.status(ctx.tx_id)
            seen.append((summary.status, summary.progress))

    datp.use(Pipeline("p").step("t/report").build())
    summary = datp.run("p", {})
    assert seen == [
        (Status.RUNNING, {"stage": "reserving"}),
        (Status.RUNNING, {"stage": "paying"}),
    ]
    assert summary.progress == {"stage": "paying"}


@pytest.mark.parametrize("ends", ["success", "failed", "internal-error", "cancelled"])
def test_the_last_progress_stays_in_the_summary_after_the_end(datp: Kit, ends: str) -> None:
    @datp.step("t/report")
    def report(ctx: Any, data: Data) -> None:
        ctx.progress({"stage": 1})

    @datp.step("t/end", retry={"max_attempts": 1})
    def end(ctx: Any, data: Data) -> Sleep | None:
        match ends:
            case "failed":
                raise Fail("no")
            case "internal-error":
                raise RuntimeError
            case "cancelled":
                datp.client.cancel(ctx.tx_id)
                return Sleep()
        return None

    datp.use(Pipeline("p").step("t/report").step("t/end", dispatch="queue").build())
    tx_id = datp.run("p", {}).tx_id
    stored = datp.connections.record.summaries([tx_id])[0]
    assert (stored.status, stored.progress) == (ends, {"stage": 1})


def test_progress_survives_a_sleep(datp: Kit) -> None:
    @datp.step("t/report")
    def report(ctx: Any, data: Data) -> Sleep | None:
        if ctx.sleeps == 0:
            ctx.progress({"stage": "waiting"})
            return Sleep(seconds=60)
        return None

    datp.use(Pipeline("p").step("t/report").build())
    tx_id = datp.submit("p", {})
    assert datp.status(tx_id).progress == {"stage": "waiting"}
    assert datp.finish(tx_id).progress == {"stage": "waiting"}


@pytest.mark.parametrize("report", [[1], "half", {"a": object()}, {"a": "x" * 20_000}])
def test_progress_that_cannot_be_shown_breaks_the_step(datp: Kit, report: Any) -> None:
    @datp.step("t/report", retry={"max_attempts": 1})
    def wrong(ctx: Any, data: Data) -> None:
        ctx.progress(report)

    datp.use(Pipeline("p").step("t/report").build())
    summary = datp.run("p", {})
    assert summary.status is Status.INTERNAL_ERROR
    assert "progress" in (summary.note or "")
    assert summary.progress is None


def test_a_switch_set_from_outside_is_seen_by_the_next_step(datp: Kit, elsewhere: Client) -> None:
    seen: list[Any] = []

    @datp.step("t/set")
    def set_from_outside(ctx: Any, data: Data) -> None:
        elsewhere.set_switch(ctx.tx_id, "kyc", "ok")
        # Within one step what it sees does not change under its hands.
        seen.append(ctx.switch("kyc"))

    @datp.step("t/read")
    def read(ctx: Any, data: Data) -> None:
        seen.append(ctx.switch("kyc"))
        seen.append(ctx.switch("other"))

    datp.use(Pipeline("p").step("t/set").step("t/read").build())
    datp.run("p", {})
    assert seen == [None, "ok", None]


def test_a_step_can_set_a_switch_for_later_steps(datp: Kit) -> None:
    seen: list[Any] = []

    @datp.step("t/set")
    def set_itself(ctx: Any, data: Data) -> None:
        ctx.set_switch("risk", 0.5)

    @datp.step("t/read")
    def read(ctx: Any, data: Data) -> None:
        seen.append(ctx.switch("risk"))

    datp.use(
        Pipeline("p")
        .step("t/set")
        .step("t/read")
        .step("t/read", dispatch="queue")
        .step("t/read", group="other")
        .build()
    )
    assert datp.run("p", {}).status is Status.SUCCESS
    assert seen == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(("name", "value"), [("bad name", 1), ("ok", [1]), ("ok", "x" * 33)])
def test_a_step_cannot_set_a_switch_that_is_not_allowed(datp: Kit, name: str, value: Any) -> None:
    @datp.step("t/set", retry={"max_attempts": 1})
    def wrong(ctx: Any, data: Data) -> None:
        with pytest.raises(SwitchInvalid):
            ctx.set_switch(name, value)
        ctx.set_switch(name, value)

    datp.use(Pipeline("p").step("t/set").build())
    assert "SwitchInvalid" in (datp.run("p", {}).note or "")


def test_sql_is_only_there_in_transactional_steps(datp: Kit) -> None:
    @datp.step("t/plain", retry={"max_attempts": 1})
    def plain(ctx: Any, data: Data) -> None:
        with pytest.raises(StepError, match="transactional=True"):
            _ = ctx.sql

    datp.use(Pipeline("p").step("t/plain").build())
    assert datp.run("p", {}).status is Status.SUCCESS
