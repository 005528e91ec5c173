"""A step that sets a switch while PostgreSQL is unavailable: what it did is not forgotten."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg2
import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from datp_tasks import Batch, Pipeline, Sleep
from datp_tasks.model.status import Status
from datp_tasks.record.signals import Signal, Signals
from datp_tasks.testing.kit import Kit

Data = dict[str, Any]


@pytest.fixture
def outages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often PostgreSQL is unavailable from now on when a switch is replaced."""
    left = [1]
    replace = Signals.replace

    def perhaps(self: Signals, signal: Signal) -> None:
        if left[0]:
            left[0] -= 1
            raise OperationalError("connect", {}, psycopg2.OperationalError("refused"))
        replace(self, signal)

    monkeypatch.setattr(Signals, "replace", perhaps)
    return left


def refused(datp: Kit, code: str) -> None:
    """PostgreSQL refuses a statement with this code."""
    with datp.connections.engine.connect() as connection:
        connection.exec_driver_sql(f"DO $$ BEGIN RAISE SQLSTATE '{code}'; END $$")


def all_in_use(datp: Kit) -> None:
    """A process that has one connection wants a second one."""
    engine = create_engine(
        datp.settings.database_url, pool_size=1, max_overflow=0, pool_timeout=0.01
    )
    try:
        with engine.connect(), engine.connect():
            pass
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (partial(refused, code="55P03"), "another transaction is in the way in PostgreSQL"),
        (partial(refused, code="40P01"), "another transaction is in the way in PostgreSQL"),
        (partial(refused, code="57014"), "PostgreSQL took too long"),
        (all_in_use, "all connections of this process to PostgreSQL are in use"),
    ],
    ids=["locked", "deadlock", "too-long", "pool"],
)
def test_what_passes_costs_no_attempt_and_is_called_by_its_name(
    datp: Kit,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: Callable[[Kit], None],
    said: str,
) -> None:
    replace, tries = Signals.replace, [0]

    def once(self: Signals, signal: Signal) -> None:
        tries[0] += 1
        if tries[0] == 1:
            fails(datp)
        replace(self, signal)

    monkeypatch.setattr(Signals, "replace", once)
    tx_id, done = booked(datp, retry={"max_attempts": 1})
    assert (datp.status(tx_id).status, done) == (Status.SLEEPING, ["book"])
    assert f"{tx_id} waits in step 0: {said}; switch 'go' was not set" in caplog.messages
    datp.recover()
    assert (datp.status(tx_id).status, done) == (Status.SUCCESS, ["book", "book"])


def booked(datp: Kit, **options: Any) -> tuple[str, list[str]]:
    """A transaction whose step books, and then cannot say that it has used its switch up."""
    done: list[str] = []

    @datp.step("t/book", **options)
    def book(ctx: Any, data: Data) -> Sleep | None:
        if not ctx.switch("go"):
            return Sleep(switch="go", seconds=86_400)
        done.append("book")
        ctx.set_switch("go", None)
        return None

    @book.rollback
    def unbook(ctx: Any, data: Data, output: Data | None) -> None:
        done.append("unbook")

    @datp.step("t/after")
    def after(ctx: Any, data: Data) -> None: ...

    datp.use(Pipeline("booking").step("t/book").step("t/after").build())
    tx_id = datp.submit("booking", {})
    datp.client.set_switch(tx_id, "go", True)
    return tx_id, done


@pytest.mark.usefixtures("outages")
def test_a_cancel_waits_until_the_step_has_run_again(datp: Kit) -> None:
    """Else its booking would stay behind a transaction that ended as cancelled."""
    tx_id, done = booked(datp)
    assert (datp.status(tx_id).status, done) == (Status.SLEEPING, ["book"])
    datp.client.cancel(tx_id, "changed my mind")
    datp.recover()
    assert (datp.status(tx_id).status, done) == (Status.CANCELLED, ["book", "book", "unbook"])


@pytest.mark.usefixtures("outages")
def test_a_step_that_is_not_safe_to_run_again_is_parked(datp: Kit) -> None:
    tx_id, done = booked(datp, on_crash="review")
    datp.recover()
    assert (datp.status(tx_id).status, done) == (Status.IN_DOUBT, ["book"])


def test_items_of_a_vector_step_wait_at_no_attempt(datp: Kit, outages: list[int]) -> None:
    outages[0] = 5

    @datp.step("t/books", vector=True)
    def books(batch: Batch) -> None:
        for item in batch:
            if not item.switch("go"):
                item.sleep(switch="go", seconds=86_400)
                continue
            item.set_switch("go", False)
            item.done()

    datp.use(Pipeline("bookings").step("t/books", retry={"max_attempts": 1}).build())
    tx_id = datp.submit("bookings", {})
    datp.client.set_switch(tx_id, "go", True)
    for _ in range(6):
        datp.advance(seconds=10)
        datp.recover()
    assert datp.status(tx_id).status == Status.SUCCESS
