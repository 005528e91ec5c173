"""A client with an engine of a hundred lines: it runs pipelines in this process, one by one.

It loses everything when it stops, and that is the difference. It is here to test the demo, which
must say no when an engine is wrong; so it can be told to be wrong.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks import Call, Fail, Sleep
from datp_tasks.client.requests import Request, Submitted
from datp_tasks.engine.registry import registry
from datp_tasks.errors import ExternalIdConflict
from datp_tasks.model.pipeline import PipelineDefinition, StepDefinition
from datp_tasks.model.status import Status
from tests.examples.hand_made import HandMadeBatch

Data = dict[str, Any]


@dataclass(kw_only=True)
class Transaction:
    tx_id: str
    owner: str
    request: Data
    status: Status = Status.QUEUED
    note: str | None = None
    switches: Data = field(default_factory=dict)
    done: list[tuple[StepDefinition, Data, Data]] = field(default_factory=list)
    work: Generator[Sleep, None, Data] | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    completed_at: datetime | None = None


@dataclass(kw_only=True)
class Context:
    transaction: Transaction
    params: Mapping[str, Any]
    sleeps: int
    sql: Connection

    @property
    def tx_id(self) -> str:
        return self.transaction.tx_id

    @property
    def owner(self) -> str:
        return self.transaction.owner

    def switch(self, name: str) -> Any:
        return self.transaction.switches.get(name)

    def progress(self, report: Any) -> None:
        """Nobody looks at it here."""


@dataclass(kw_only=True)
class InlineClient:
    engine: Engine
    definitions: Mapping[str, PipelineDefinition]
    forgets_rollbacks: bool = False
    forgets_commits: bool = False
    forgets_to_wake: bool = False
    accepts_everything: bool = False
    transactions: dict[str, Transaction] = field(default_factory=dict)
    external_ids: dict[str, Transaction] = field(default_factory=dict)

    def submit_many(self, requests: Sequence[Request]) -> list[Submitted | ExternalIdConflict]:
        return [self._submitted(each) for each in requests]

    def _submitted(self, request: Request) -> Submitted | ExternalIdConflict:
        try:
            return self.submit(
                request.pipeline,
                dict(request.input),
                owner=request.owner,
                external_id=request.external_id,
            )
        except ExternalIdConflict as conflict:
            return conflict

    def submit(
        self, pipeline: str, data: Data, *, owner: str = "local", external_id: str | None
    ) -> Submitted:
        known = self.external_ids.get(external_id or "")
        if known is not None and not self.accepts_everything:
            if known.request != data:
                raise ExternalIdConflict
            return Submitted(known.tx_id, known.status, duplicate=True)
        tx_id = f"{external_id}-{len(self.transactions)}"
        new = Transaction(tx_id=tx_id, owner=owner, request=data)
        self.transactions[new.tx_id] = self.external_ids[external_id or ""] = new
        new.work = self._run(new, self.definitions[pipeline], data)
        self._go_on(new)
        return Submitted(new.tx_id, new.status)

    def status(self, tx_id: str) -> Transaction:
        found = self.transactions[tx_id]
        if found.status == Status.SLEEPING and not self.forgets_to_wake:
            self._go_on(found)
        return found

    def status_many(self, tx_ids: Sequence[str]) -> list[Transaction]:
        return [self.status(tx_id) for tx_id in tx_ids]

    def set_switch(self, tx_id: str, name: str, value: Any) -> None:
        self.transactions[tx_id].switches[name] = value

    def cancel(self, tx_id: str, reason: str) -> None:
        self._end(self.transactions[tx_id], Status.CANCELLED, reason)

    def _go_on(self, tx: Transaction) -> None:
        assert tx.work is not None
        try:
            next(tx.work)
        except StopIteration:
            self._end(tx, Status.SUCCESS, None)
        except Fail as failure:
            self._end(tx, Status.FAILED, failure.note)
        else:
            tx.status = Status.SLEEPING

    def _run(
        self, tx: Transaction, definition: PipelineDefinition, data: Data
    ) -> Generator[Sleep, None, Data]:
        for step in definition.steps:
            sleeps = 0
            while isinstance(outcome := self._perform(tx, step, data, sleeps), Sleep):
                sleeps += 1
                yield outcome
            if isinstance(outcome, Call):
                data = yield from self._run(tx, self.definitions[outcome.pipeline], data)
            else:
                output = data if outcome is None else outcome
                tx.done.append((step, data, output))
                data = output
        return data

    def _perform(self, tx: Transaction, step: StepDefinition, data: Data, sleeps: int) -> Any:
        with self.engine.connect() as connection:
            ctx = Context(transaction=tx, params=step.params, sleeps=sleeps, sql=connection)
            outcome = _outcome(step.type, ctx, data)
            if not (self.forgets_commits and step.type == "payments/commit"):
                connection.commit()
        return outcome

    def _end(self, tx: Transaction, status: Status, note: str | None) -> None:
        if status != Status.SUCCESS and not self.forgets_rollbacks:
            for step, data, output in reversed(tx.done):
                with self.engine.begin() as connection:
                    ctx = Context(transaction=tx, params={}, sleeps=0, sql=connection)
                    _undo(step.type, ctx, data, output)
        tx.status, tx.note, tx.completed_at = status, note, datetime.now(UTC)


def _outcome(name: str, ctx: Context, data: Data) -> Any:
    step_type = registry.get(name)
    if not step_type.vector:
        return step_type(ctx, dict(data))
    batch = HandMadeBatch(ctx.sql, {ctx.tx_id: data})
    step_type(batch)
    said, value = batch.said[ctx.tx_id]
    if said == "fail":
        raise Fail(value)
    assert said == "done", value
    return value


def _undo(name: str, ctx: Context, data: Data, output: Data) -> None:
    step_type = registry.get(name)
    if step_type.rollback_function is None:
        return
    if not step_type.vector:
        step_type.rollback_function(ctx, data, output)
        return
    batch = HandMadeBatch(ctx.sql, {ctx.tx_id: data})
    step_type.rollback_function(batch)
    said, value = batch.said[ctx.tx_id]
    assert said == "done", value
