"""Vectors of an ordinary transactional step, one of which does something special."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import text

from datp_tasks import Pipeline, StepContext, failpoints
from datp_tasks.engine.sql_steps import SqlSteps
from datp_tasks.testing import Kit
from tests.support.books import Books

Data = dict[str, Any]
#: What a step does beside writing its line.
OddStep = Callable[[StepContext], Any]

SIZE = 5
#: The number of the special one.
ODD = 2


def numbers(count: int = SIZE) -> list[Data]:
    return [{"n": n} for n in range(count)]


def lines(*left_out: int) -> list[str]:
    return [f"pay {n}" for n in range(SIZE) if n not in left_out]


class Pay:
    """A step that writes a line; the one with the odd number does something beside it."""

    def __init__(
        self, kit: Kit, books: Books, odd: OddStep = lambda ctx: None, **options: Any
    ) -> None:
        self.calls: list[int] = []
        self._books = books
        self._odd = odd
        declared = kit.step(
            "t/pay", transactional=True, **{"retry": {"max_attempts": 1}, **options}
        )
        self.declared = declared(self.step)
        kit.use(Pipeline("p").step("t/pay").build())

    def step(self, ctx: StepContext, data: Data) -> Any:
        self.calls.append(data["n"])
        self._books.write(ctx.sql, ctx.tx_id, f"pay {data['n']}")
        said = self._odd(ctx) if data["n"] == ODD else None
        return {"paid": data["n"]} if said is None else said


class Commits:
    """Counts the commits of steps while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Commits:
        failpoints.watch(self._passed)
        return self

    def __exit__(self, *_: object) -> None:
        failpoints.disarm_all()

    def _passed(self, name: str) -> None:
        self.count += name == "effect.after_commit"


def raise_serialization_failure(ctx: StepContext) -> None:
    ctx.sql.execute(text("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$"))


def share_max(kit: Kit) -> float | None:
    sql_steps: SqlSteps = vars(vars(kit.process.worker)["_executor"])["_sql_steps"]
    found: dict[str, float] = vars(sql_steps)["_share_max"]
    return found.get("t/pay")
