"""The answer to a commit is lost: what it did is found out before the transaction turns around."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from datp_tasks import Batch, Pipeline
from datp_tasks.model.status import Status
from datp_tasks.record.effects import EffectStore
from datp_tasks.testing import Kit
from tests.support.books import Books

Data = dict[str, Any]


def declare(kit: Kit, books: Books) -> None:
    @kit.step("t/book", transactional=True)
    def book(ctx: Any, data: Data) -> Data:
        books.write(ctx.sql, ctx.tx_id, "book")
        return data

    @book.rollback
    def unbook(ctx: Any, data: Data, output: Data) -> None:
        books.write(ctx.sql, ctx.tx_id, "unbook")

    @kit.step("t/book-all", transactional=True, vector=True)
    def book_all(batch: Batch) -> None:
        for item in batch:
            books.write(batch.sql, item.tx_id, "book")
            item.done(item.data)

    @book_all.rollback
    def unbook_all(batch: Batch) -> None:
        for item in batch:
            books.write(batch.sql, item.tx_id, "unbook")
            item.done()

    for name in ("book", "book-all"):
        kit.use(Pipeline(name).step(f"t/{name}").step(f"t/{name}").build())


def lose_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit is made and its answer lost; then PostgreSQL is unavailable for a while."""
    opened, tries = EffectStore.open, 0

    def gone() -> OperationalError:
        error = Exception("server closed the connection unexpectedly")
        return OperationalError("COMMIT", {}, error, connection_invalidated=True)

    @contextmanager
    def cut(self: EffectStore, *arguments: Any, **options: Any) -> Iterator[Any]:
        nonlocal tries
        tries += 1
        if tries in (2, 3):
            raise gone()
        first = tries == 1
        with opened(self, *arguments, **options) as effects:
            yield effects
        if first:
            raise gone()

    monkeypatch.setattr(EffectStore, "open", cut)


@pytest.mark.parametrize("pipeline", ["book", "book-all"])
def test_what_was_committed_is_undone_when_the_client_cancels_meanwhile(
    datp: Kit, books: Books, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(datp, books)
    lose_the_answer(monkeypatch)
    tx_id = datp.submit(pipeline, {})
    assert books.lines(tx_id) == ["book"]
    datp.client.cancel(tx_id)
    for _ in range(3):
        datp.advance(seconds=10)
        datp.run_jobs()
    assert datp.status(tx_id).status is Status.CANCELLED
    assert books.lines(tx_id) == ["book", "unbook"]


@pytest.mark.parametrize("pipeline", ["book", "book-all"])
def test_what_was_committed_is_undone_when_it_expires_meanwhile(
    datp: Kit, books: Books, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(datp, books)
    lose_the_answer(monkeypatch)
    tx_id = datp.submit(pipeline, {}, expires_in_s=5)
    for _ in range(6):
        datp.advance(seconds=60)
        datp.run_jobs()
    assert datp.status(tx_id).status is Status.EXPIRED
    assert books.lines(tx_id) == ["book", "unbook"]


@pytest.mark.parametrize("pipeline", ["book", "book-all"])
def test_what_was_committed_counts_when_nothing_else_happens(
    datp: Kit, books: Books, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(datp, books)
    lose_the_answer(monkeypatch)
    tx_id = datp.submit(pipeline, {})
    assert datp.finish(tx_id).status is Status.SUCCESS
    assert books.lines(tx_id) == ["book", "book"]


@pytest.mark.parametrize("pipeline", ["book", "book-all"])
def test_what_was_committed_is_undone_although_sql_refused_the_next_try(
    datp: Kit, books: Books, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the commit was lost, and SQL was raised above the claim meanwhile."""
    declare(datp, books)
    opened, tries = EffectStore.open, 0

    @contextmanager
    def cut(self: EffectStore, *arguments: Any, **options: Any) -> Iterator[Any]:
        nonlocal tries
        tries += 1
        first = tries == 1
        with opened(self, *arguments, **options) as effects:
            yield effects
        if first:
            (wanted,) = arguments[0]
            datp.connections.record.raise_fences([(wanted.tx_id, wanted.fence + 5)])
            error = Exception("server closed the connection unexpectedly")
            raise OperationalError("COMMIT", {}, error, connection_invalidated=True)

    monkeypatch.setattr(EffectStore, "open", cut)
    tx_id = datp.submit(pipeline, {})
    assert books.lines(tx_id) == ["book"]
    datp.client.cancel(tx_id)
    for _ in range(3):
        datp.advance(seconds=20)
        datp.run_jobs()
    assert datp.status(tx_id).status is Status.CANCELLED
    assert books.lines(tx_id) == ["book", "unbook"]
