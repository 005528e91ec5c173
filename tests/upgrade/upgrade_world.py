"""Steps and pipelines that exist before an upgrade and after it.

Both versions import this, so it uses only what both offer to users. Every effect is a line in one
table without a unique key: whatever happens twice across the upgrade is seen.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, text

from datp_tasks import Call, Done, Fail, Pipeline, Sleep
from datp_tasks.testing import Kit

Data = dict[str, Any]

CREATE = """
CREATE TABLE IF NOT EXISTS upgrade_books
(id bigint GENERATED ALWAYS AS IDENTITY, tx_id text, line text)
"""
WRITE = "INSERT INTO upgrade_books (tx_id, line) VALUES (:tx_id, :line)"
READ = "SELECT line FROM upgrade_books WHERE tx_id = :tx_id ORDER BY id"
HOUR_S = 3_600.0
#: Where webhooks go before the upgrade: nothing listens there.
HOOK = "http://127.0.0.1:9/"


class Books:
    """The table of effects."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self) -> None:
        with self._engine.begin() as sql:
            sql.execute(text(CREATE))

    def write(self, tx_id: str, line: str) -> None:
        """What happens outside: at once, and never undone."""
        with self._engine.begin() as sql:
            self.write_in(sql, tx_id, line)

    def write_in(self, sql: Connection, tx_id: str, line: str) -> None:
        sql.execute(text(WRITE), {"tx_id": tx_id, "line": line})

    def lines(self, tx_id: str) -> list[str]:
        with self._engine.connect() as sql:
            return list(sql.execute(text(READ), {"tx_id": tx_id}).scalars())


def declare(system: Kit, books: Books) -> None:
    _declare_safe_steps(system, books)
    _declare_unsafe_steps(system, books)


def _declare_safe_steps(system: Kit, books: Books) -> None:
    @system.step("u/book", transactional=True)
    def book(ctx: Any, data: Data) -> Data:
        number = data.get("booked", 0) + 1
        books.write_in(ctx.sql, ctx.tx_id, f"book {number}")
        return {**data, "booked": number}

    @book.rollback
    def unbook(ctx: Any, data: Data, output: Data | None) -> None:
        books.write_in(ctx.sql, ctx.tx_id, f"unbook {(output or {}).get('booked')}")

    @system.step("u/rest")
    def rest(ctx: Any, data: Data) -> Any:
        ctx.progress({"rests": ctx.sleeps + 1})
        return Sleep(seconds=HOUR_S) if ctx.sleeps == 0 else None

    @system.step("u/wait")
    def wait(ctx: Any, data: Data) -> Any:
        go = ctx.switch("go")
        return Sleep(switch="go", seconds=86_400) if go is None else {**data, "go": go}

    @system.step("u/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no")

    @system.step("u/call")
    def call(ctx: Any, data: Data) -> Any:
        return Call("child", data)

    @system.step("u/flaky", retry={"max_attempts": 3, "first_s": 600, "factor": 1})
    def flaky(ctx: Any, data: Data) -> Data:
        if ctx.attempt < 3:
            raise RuntimeError(f"attempt {ctx.attempt}")
        return {**data, "attempts": ctx.attempt}


def _declare_unsafe_steps(system: Kit, books: Books) -> None:
    @system.step("u/pay", on_crash="review", timeout_s=30)
    def pay(ctx: Any, data: Data) -> Data:
        books.write(ctx.tx_id, "pay")
        return {**data, "paid": True}

    @pay.rollback
    def unpay(ctx: Any, data: Data, output: Data | None) -> None:
        books.write(ctx.tx_id, "unpay")

    @system.step("u/ask", on_crash="probe", timeout_s=30)
    def ask(ctx: Any, data: Data) -> Data:
        books.write(ctx.tx_id, "ask")
        return {**data, "asked": True}

    @ask.probe
    def probe(ctx: Any, data: Data) -> Done:
        return Done({**data, "probed": True})


def put_into_use(system: Kit) -> None:
    system.use(
        Pipeline("child", startable=False).step("u/book").step("u/rest").build(),
        Pipeline("quick").step("u/book").build(),
        Pipeline("hop").step("u/book").step("u/book", dispatch="queue").build(),
        Pipeline("rest").step("u/book").step("u/rest").step("u/book").build(),
        Pipeline("wait").step("u/book").step("u/wait").step("u/book").build(),
        Pipeline("pay").step("u/book").step("u/pay").step("u/book").build(),
        Pipeline("ask").step("u/book").step("u/ask").step("u/book").build(),
        Pipeline("undo").step("u/book").step("u/book").step("u/rest").step("u/fail").build(),
        Pipeline("family").step("u/call").step("u/book").build(),
        Pipeline("flaky").step("u/book").step("u/flaky").build(),
    )
