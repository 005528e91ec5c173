"""A step that sets a switch while PostgreSQL is unavailable: what it did is not forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg2
import pytest
from sqlalchemy.exc import OperationalError

from datp_tasks import Batch, Pipeline, Sleep
from datp_tasks.model.status import Status
from datp_tasks.record.effects import Effects, EffectStore, WantedEffect
from datp_tasks.record.signals import Signal, Signals
from datp_tasks.testing.kit import Kit

Data = dict[str, Any]

ALL_IN_USE = (
    "all connections to PostgreSQL of this process are in use; "
    "raise DATP_SQL__POOL_SIZE or use fewer threads"
)


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


@contextmanager
def all_in_use(datp: Kit) -> Iterator[None]:
    """The process has no free connection to PostgreSQL."""
    with ExitStack() as held:
        for _ in range(datp.settings.sql_pool_size):
            held.enter_context(datp.connections.engine.connect())
        yield


@pytest.fixture
def impatient(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A free connection is waited for as briefly as can be, and the pool does not grow."""
    monkeypatch.setattr(datp.connections.engine.pool, "_timeout", 0.001)
    monkeypatch.setattr(datp.connections.engine.pool, "_max_overflow", 0)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("55P03", "another transaction is in the way in PostgreSQL"),
        ("40P01", "another transaction is in the way in PostgreSQL"),
        ("57014", "PostgreSQL took too long"),
    ],
    ids=["locked", "deadlock", "too-long"],
)
def test_what_passes_costs_no_attempt_and_is_called_by_its_name(
    datp: Kit,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: str,
    said: str,
) -> None:
    replace, tries = Signals.replace, [0]

    def once(self: Signals, signal: Signal) -> None:
        tries[0] += 1
        if tries[0] == 1:
            refused(datp, code)
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


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("on_crash", "vector"),
    [("rerun", False), ("review", False), ("rerun", True)],
    ids=["alone", "review", "vector"],
)
def test_without_a_free_connection_a_try_has_failed(
    datp: Kit, caplog: pytest.LogCaptureFixture, on_crash: str, vector: bool
) -> None:
    """A pool that is too small stays too small: the step must not run again without end."""
    tries = [0]

    def pay(it: Any) -> Sleep | None:
        if not it.switch("go"):
            return Sleep(switch="go", seconds=86_400)
        tries[0] += 1
        with all_in_use(datp):
            it.set_switch("go", None)
        return None

    if vector:

        @datp.step("t/pay", vector=True, on_crash=on_crash)
        def pay_all(batch: Batch) -> None:
            for item in batch:
                if pay(item):
                    item.sleep(switch="go", seconds=86_400)
                else:
                    item.done()

    else:

        @datp.step("t/pay", on_crash=on_crash)
        def pay_one(ctx: Any, data: Data) -> Sleep | None:
            return pay(ctx)

    datp.use(Pipeline("paying").step("t/pay", retry={"max_attempts": 2}).build())
    tx_id = datp.submit("paying", {})
    datp.client.set_switch(tx_id, "go", True)
    for _ in range(3):
        datp.advance(seconds=600)
        datp.recover()
    shown = datp.status(tx_id)
    assert (shown.status, tries) == (Status.INTERNAL_ERROR, [2])
    assert f"{ALL_IN_USE}; switch 'go' was not set" in (shown.note or "")
    assert "QueuePool" not in (shown.note or "") + caplog.text


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("vector", [False, True], ids=["alone", "vector"])
def test_without_a_free_connection_a_transactional_step_says_so_as_well(
    datp: Kit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, vector: bool
) -> None:
    opened, tries = EffectStore.open, [0]

    @contextmanager
    def full(
        self: EffectStore, wanted: Sequence[WantedEffect], *, idle_s: float, lock_ms: int
    ) -> Iterator[Effects]:
        tries[0] += 1
        with all_in_use(datp), opened(self, wanted, idle_s=idle_s, lock_ms=lock_ms) as effects:
            yield effects

    monkeypatch.setattr(EffectStore, "open", full)

    @datp.step("t/pay", transactional=True, vector=vector)
    def pay(*given: Any) -> None:
        raise AssertionError("it has no transaction to run in")

    datp.use(Pipeline("paying").step("t/pay", retry={"max_attempts": 2}).build())
    tx_id = datp.submit("paying", {})
    for _ in range(3):
        datp.advance(seconds=600)
        datp.recover()
    shown = datp.status(tx_id)
    assert (shown.status, tries) == (Status.INTERNAL_ERROR, [2])
    assert ALL_IN_USE in (shown.note or "")
    assert "QueuePool" not in (shown.note or "") + caplog.text
