"""`redo` of a step whose effect was committed: the effect counts, whatever comes next."""

from __future__ import annotations

from typing import Any

from datp_tasks import Pipeline
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.books import Books

Data = dict[str, Any]


def test_an_effect_from_before_a_loss_is_undone_when_the_cancelled_one_is_redone(
    datp: Kit,
) -> None:
    books = Books(datp.connections.engine)

    @datp.step("t/book", transactional=True)
    def book(ctx: Any, data: Data) -> Data:
        books.write(ctx.sql, ctx.tx_id, "book")
        return data

    @book.rollback
    def unbook(ctx: Any, data: Data, output: Data) -> None:
        books.write(ctx.sql, ctx.tx_id, "unbook")

    @datp.step("t/pass")
    def go_on(ctx: Any, data: Data) -> Data:
        return data

    datp.use(Pipeline("book").step("t/book").step("t/pass").build())
    datp.crash_at("effect.after_commit")
    tx_id = datp.submit("book", {})
    datp.connections.redis.flushdb()
    datp.lose_bells()
    datp.recover()
    datp.client.cancel(tx_id)
    assert datp.status(tx_id).status is Status.IN_DOUBT
    datp.lose_bells(False)
    datp.operator.resolve(tx_id, "redo", reason="it is transactional")
    for _ in range(3):
        datp.advance(seconds=20)
        datp.run_jobs()
    assert datp.status(tx_id).status is Status.CANCELLED
    assert books.lines(tx_id) == ["book", "unbook"]
