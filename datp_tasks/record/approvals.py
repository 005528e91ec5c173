"""Requests for a second person's consent, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from datp_tasks.clock import Clock
from datp_tasks.errors import ApprovalUnknown, SubjectMoved
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.approval import PERMITS, Approval, ApprovalState, Ask, Need, Vote
from datp_tasks.model.notes import clean_note
from datp_tasks.model.payload import encode
from datp_tasks.record.queries import Queries

#: Ids are handed out upwards; what a page begins before, if nothing is named.
NEWEST = 2**62


class Query(Queries, topic="approvals"):
    ask: str
    same_asked: str
    of_step: str
    add_items: str
    expire_one: str
    expire_same: str
    expire_due: str
    expire_permits: str
    lock: str
    give: str
    decide: str
    break_glass: str
    carry_out: str
    end: str
    set_aside: str
    close_glass: str
    undone: str
    approved_for: str
    by_ids: str
    page: str
    given: str
    items: str
    all_items: str
    take_item: str
    end_item: str
    ended_items: str
    item_counts: str


@dataclass(frozen=True, slots=True)
class BulkItem:
    """One transaction of a bulk action."""

    tx_id: str
    #: It was taken before, when it stood at `sequence`; whether it was acted on is not known.
    is_taken: bool
    sequence: str | None


@dataclass(frozen=True, slots=True)
class HeldApproval:
    """An approval that this process carries out."""

    id: int
    #: What the first half of the execution left for the second.
    token: str | None
    connection: Connection


class ApprovalStore:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Everything that is written inside is one commit."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError as error:
            if "approval_one_at_a_time" not in str(error.orig):
                raise
            raise SubjectMoved(
                "another request about the same subject was approved and is being carried out"
            ) from None

    # Asking.

    def ask(
        self,
        connection: Connection,
        actor: Actor,
        ask: Ask,
        need: Need,
        step_key: str | None = None,
    ) -> tuple[int, bool]:
        """The id of the request, and whether it is a new one."""
        values = {
            "action": ask.action,
            "subject": ask.subject,
            "params": encode(ask.params),
            "params_hash": ask.params_hash,
            "asked_hash": ask.asked_hash(need),
            "version": ask.version,
            "requested_by": actor.person,
            "requester": clean_note(actor.name),
            "reason": clean_note(ask.reason),
            "pipeline": ask.pipeline,
            "size": ask.size,
            "needed": need.approvals,
            "role": str(need.role),
            "persons": encode(list(need.persons)),
            "expires_s": need.expires_s,
            "step_key": step_key,
        }
        self._run(connection, Query.expire_same, values)
        # One that was not used in time must not stand in the way of what is approved now.
        self._expire_permits(connection, ask.subject, 1)
        made = self._run(connection, Query.ask, values)
        if made:
            if ask.items:
                items = {"id": made[0].id, "tx_id": list(ask.items)}
                self._run(connection, Query.add_items, items)
            return int(made[0].id), True
        again = Query.same_asked if step_key is None else Query.of_step
        found = self._run(connection, again, values)
        if not found:
            raise SubjectMoved("the same request was decided at this moment; look again")
        return int(found[0].id), False

    # Deciding.

    def expire_if_due(self, approval_id: int) -> bool:
        """Also at the moment: a person must not decide what the job would have ended."""
        with self._engine.begin() as connection:
            return bool(self._run(connection, Query.expire_one, {"id": approval_id}))

    def locked(self, connection: Connection, approval_id: int) -> Approval:
        self._run(connection, Query.lock, {"id": approval_id})
        return self._one(connection, approval_id)

    def is_as_asked(self, connection: Connection, approval: Approval) -> bool:
        """Whether nothing of what was asked for has changed since."""
        rows = self._run(connection, Query.all_items, {"id": approval.id})
        return approval.is_as_asked([row.tx_id for row in rows])

    def give(
        self, connection: Connection, approval: Approval, actor: Actor, decision: str, note: str
    ) -> bool:
        """False if this person has spoken before; that word stands."""
        values = {
            "id": approval.id,
            "decided_by": actor.person,
            "actor": clean_note(actor.name),
            "role": str(actor.role or ""),
            "decision": decision,
            "note": clean_note(note),
        }
        return bool(self._run(connection, Query.give, values))

    def decide(
        self,
        connection: Connection,
        approval_id: int,
        state: ApprovalState,
        *,
        note: str | None = None,
        token: str | None = None,
    ) -> None:
        values = {"id": approval_id, "state": str(state), "note": note, "token": token}
        self._run(connection, Query.decide, values)

    def break_glass(self, connection: Connection, approval_id: int) -> None:
        self._run(connection, Query.break_glass, {"id": approval_id})

    @contextmanager
    def carrying_out(self, approval_id: int) -> Iterator[HeldApproval | None]:
        """None: another process is at it, or it is done. A process that dies lets go of it."""
        with self._engine.begin() as connection:
            found = self._run(connection, Query.carry_out, {"id": approval_id})
            yield HeldApproval(approval_id, found[0].token, connection) if found else None

    def end(
        self, connection: Connection, approval_id: int, state: ApprovalState, note: str
    ) -> None:
        values = {"id": approval_id, "state": str(state), "note": clean_note(note)}
        self._run(connection, Query.end, values)

    def set_aside(self, approval_id: int, why: str) -> None:
        with self._engine.begin() as connection:
            self._run(connection, Query.set_aside, {"id": approval_id, "note": clean_note(why)})

    def close_glass(self, connection: Connection, approval_id: int, actor: Actor) -> bool:
        values = {"id": approval_id, "closed_by": actor.person}
        return bool(self._run(connection, Query.close_glass, values))

    def approved_for(self, connection: Connection, ask: Ask) -> int | None:
        values = {
            "action": ask.action,
            "subject": ask.subject,
            "params_hash": ask.params_hash,
            "version": ask.version,
        }
        found = self._run(connection, Query.approved_for, values)
        return int(found[0].id) if found else None

    # Looking.

    def one(self, approval_id: int) -> Approval:
        with self._engine.connect() as connection:
            return self._one(connection, approval_id)

    def page(
        self,
        *,
        state: ApprovalState | None = None,
        subject: str | None = None,
        before: int | None = None,
        rows_max: int = 100,
    ) -> list[Approval]:
        """The newest first."""
        values = {
            "state": state and str(state),
            "subject": subject,
            "before": before or NEWEST,
            "limit": rows_max,
        }
        with self._engine.connect() as connection:
            ids = [row.id for row in self._run(connection, Query.page, values)]
            return self._many(connection, ids)

    def undone(self, actions: Sequence[str], rows_max: int) -> list[Approval]:
        values = {"actions": list(actions), "limit": rows_max}
        with self._engine.connect() as connection:
            ids = [row.id for row in self._run(connection, Query.undone, values)]
            found = {each.id: each for each in self._many(connection, ids)}
            return [found[each] for each in ids]

    def expire_due(self, rows_max: int) -> list[int]:
        """Requests that were not decided in time, and permits that were not used in time."""
        with self._engine.begin() as connection:
            rows = self._run(connection, Query.expire_due, {"limit": rows_max})
            rows += self._expire_permits(connection, None, rows_max)
            return [int(row.id) for row in rows]

    def _expire_permits(
        self, connection: Connection, subject: str | None, rows_max: int
    ) -> list[Any]:
        values = {"permits": list(PERMITS), "subject": subject, "limit": rows_max}
        return self._run(connection, Query.expire_permits, values)

    # The transactions of a bulk action.

    def items(self, approval_id: int, rows_max: int) -> list[BulkItem]:
        with self._engine.connect() as connection:
            rows = self._run(connection, Query.items, {"id": approval_id, "limit": rows_max})
            return [BulkItem(row.tx_id, row.state == "taken", row.sequence) for row in rows]

    def take_item(self, approval_id: int, tx_id: str, sequence: str) -> bool:
        values = {"id": approval_id, "tx_id": tx_id, "sequence": sequence}
        with self._engine.begin() as connection:
            return bool(self._run(connection, Query.take_item, values))

    def end_item(self, approval_id: int, tx_id: str, *, ok: bool, note: str) -> None:
        state = "done" if ok else "failed"
        values = {"id": approval_id, "tx_id": tx_id, "state": state, "note": clean_note(note)}
        with self._engine.begin() as connection:
            self._run(connection, Query.end_item, values)

    def ended_items(self, approval_id: int) -> list[tuple[str, str, bool]]:
        """Transactions that were acted on: what became of each, and whether that was done."""
        with self._engine.connect() as connection:
            rows = self._run(connection, Query.ended_items, {"id": approval_id})
            return [(row.tx_id, row.note or "", row.state == "done") for row in rows]

    def item_counts(self, approval_id: int) -> dict[str, int]:
        with self._engine.connect() as connection:
            rows = self._run(connection, Query.item_counts, {"id": approval_id})
            return {row.state: row.number for row in rows}

    def _one(self, connection: Connection, approval_id: int) -> Approval:
        found = self._many(connection, [approval_id])
        if not found:
            raise ApprovalUnknown(f"there is no approval {approval_id}")
        return found[0]

    def _many(self, connection: Connection, ids: Sequence[int]) -> list[Approval]:
        given: dict[int, list[Vote]] = {}
        for row in self._run(connection, Query.given, {"id": list(ids)}):
            said = {name: value for name, value in row._mapping.items() if name != "approval_id"}
            given.setdefault(row.approval_id, []).append(Vote(**said))
        rows = self._run(connection, Query.by_ids, {"id": list(ids)})
        return [_approval(row, tuple(given.get(row.id, ()))) for row in rows]

    def _run(self, connection: Connection, sql: str, values: Mapping[str, Any]) -> list[Any]:
        result = connection.exec_driver_sql(sql, {"now": self._clock.now(), **values})
        return list(result) if result.returns_rows else []


def _approval(row: Any, given: tuple[Vote, ...]) -> Approval:
    return Approval(
        **{
            **row._mapping,
            "params": json.loads(row.params),
            "persons": tuple(json.loads(row.persons)),
            "state": ApprovalState(row.state),
            "role": Role(row.role),
            "given": given,
        }
    )
