"""Acting on many transactions at once: choose them by what they are, then cancel, wake or retry.

Choosing reads only; each action is one row in the audit table,
with what was chosen and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from datp_tasks.bells.ringer import Ringer
from datp_tasks.errors import (
    ApprovalNeeded,
    DatpError,
    FilterInvalid,
    TransactionHeld,
    TransactionMoved,
)
from datp_tasks.failpoints import reach
from datp_tasks.live.live_types import Bell
from datp_tasks.live.store import LiveStore
from datp_tasks.model.actor import LOCAL, Actor
from datp_tasks.model.approval import Approval, Ask, Order, short_hash
from datp_tasks.model.search_attributes import NAME, SearchCondition, parts_of
from datp_tasks.model.status import FINAL, Status
from datp_tasks.operator.approvals import Approvals
from datp_tasks.operator.resolve import Resolver
from datp_tasks.record.database import Connection, Engine, translate_outage
from datp_tasks.record.listing import Listing, ListingFilter
from datp_tasks.record.operator_actions import note_action, record_action
from datp_tasks.record.record_types import Precondition, Summary
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.locate import Locator
from datp_tasks.transactions.send_signals import SignalSender

Action = Literal["cancel", "wake", "retry"]

PAGE = 500
#: An approver waits for so many; the job does the rest.
ITEMS_MAX = 500
FILTERS = ("status", "pipeline", "owner", "group", "older-than", "newer-than")
#: Before a condition on a search attribute, as in attr.amount>=100.
ATTRIBUTE = "attr."
CONDITION = re.compile(r"([A-Za-z0-9_]{1,40})(?:\[([a-z]+)\])?")
UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which transactions; None means any."""

    status: Status | None = None
    pipeline: str | None = None
    owner: str | None = None
    group: str | None = None
    older_s: float | None = None
    newer_s: float | None = None
    #: Conditions on search attributes: name[operator] and value, all of which must hold.
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def conditions(self) -> list[SearchCondition]:
        """Raises FilterInvalid if one is none."""
        found = []
        for name, value in self.attributes.items():
            match = CONDITION.fullmatch(name)
            if match is None:
                raise FilterInvalid(f"a search attribute is name[operator]; was {name!r:.60}")
            found.append(SearchCondition.of(match[1], match[2] or "eq", value))
        return found

    @property
    def reads_payloads(self) -> bool:
        """Whether the answer tells what is in inputs or outputs."""
        return bool(self.attributes)

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> Where:
        """From `name=value`, as a command line has them."""
        where = cls()
        for text in texts:
            if text.startswith(ATTRIBUTE):
                name, operator, value = parts_of(text.removeprefix(ATTRIBUTE))
                more = {**where.attributes, f"{name}[{operator}]": value}
                where = replace(where, attributes=more)
                # Refused here, before anything is asked.
                _ = where.conditions
                continue
            name, equals, value = text.partition("=")
            if not equals or name not in FILTERS or not value:
                allowed = ", ".join(FILTERS)
                raise FilterInvalid(
                    f"a filter is name=value with a name of {allowed}, or a search attribute as "
                    f"attr.amount>=100; was {text!r}"
                )
            where = replace(where, **_parsed(name, value))
        return where

    def to_json(self) -> dict[str, Any]:
        found = {
            "status": self.status and str(self.status),
            "pipeline": self.pipeline,
            "owner": self.owner,
            "group": self.group,
            "olderS": self.older_s,
            "newerS": self.newer_s,
            "attributes": dict(self.attributes) or None,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class OfBulkTransfer:
    """The transfers of a bulk, in place of a filter; an action names them beside it."""

    bulk_id: str
    pipeline: None = None

    def to_json(self) -> dict[str, Any]:
        return {"bulkTransfer": self.bulk_id}


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What became of one transaction."""

    tx_id: str
    #: What was done, or why nothing was.
    what: str
    ok: bool


@dataclass(frozen=True, kw_only=True)
class Bulk:
    engine: Engine
    record: Record
    live: LiveStore
    ringer: Ringer
    locator: Locator
    signals: SignalSender
    resolver: Resolver
    approvals: Approvals

    def choose(
        self, where: Where, *, rows_max: int | None = None, order: str | None = None
    ) -> Iterator[Summary]:
        """Transactions as of now, the newest first; or by a search attribute, with `-` before it
        the largest first. What lacks that attribute is left out."""
        name = checked_order(order)
        with translate_outage():
            now = self.record.server_now()
        wanted = ListingFilter(
            owner=where.owner,
            statuses=_recorded(where.status),
            pipelines=(where.pipeline,) if where.pipeline else (),
            since=_before(now, where.newer_s),
            until=_before(now, where.older_s),
            attributes=where.conditions,
            order=name,
            descending=order is None or order.startswith("-"),
            rows_max=PAGE,
        )
        given = 0
        while True:
            with translate_outage():
                page = Listing(self.engine).page(wanted)
            for each in self._matching(page.rows, where):
                yield each
                given += 1
                if rows_max is not None and given >= rows_max:
                    return
            if page.next is None:
                return
            wanted = replace(wanted, after=page.next)

    def _matching(self, page: Sequence[Summary], where: Where) -> Iterator[Summary]:
        groups: Mapping[str, str] = {}
        if where.group:
            ids = [each.tx_id for each in page]
            fields = self.live.named_many(ids, ("group",))
            groups = {tx: found.get("group", "") for tx, found in zip(ids, fields, strict=True)}
        for each in self.locator.overlay_many(page):
            if where.status is not None and each.status is not where.status:
                continue
            if where.group and groups.get(each.tx_id) != where.group:
                continue
            yield each

    def act_on_many(
        self,
        action: Action,
        where: Where | OfBulkTransfer,
        tx_ids: Sequence[str],
        *,
        reason: str,
        actor: Actor = LOCAL,
        break_glass: bool = False,
    ) -> Iterator[ActionResult]:
        """One action on each; the audit table tells before what is meant to happen.

        ApprovalNeeded is raised if the policy finds that too many for one person. What was
        approved is done to exactly these, by the process that takes the last approval and by the
        job; so is what one person does alone with `break_glass`.
        """
        with translate_outage():
            pipelines = Listing(self.engine).pipelines_of(tx_ids)
        ask = Ask(
            action=f"bulk.{action}",
            # Apart from other bulk actions: several may be under way.
            subject=f"{len(tx_ids)} transactions {short_hash(tx_ids)}",
            params={"action": action, "where": where.to_json(), "count": len(tx_ids)},
            version="",
            reason=reason,
            pipeline=where.pipeline,
            pipelines=pipelines,
            size=len(tx_ids),
            items=tx_ids,
        )
        if not self.approvals.allows(ask):
            self.approvals.perform(actor, ask, break_glass=break_glass)
            return iter(())
        order = Order(
            action=ask.action,
            subject=ask.subject,
            params=ask.params,
            version="",
            reason=reason,
            actor=actor,
        )
        with translate_outage(), self.engine.begin() as connection:
            self.decide(connection, order)
        return (self._acted(action, tx_id, reason, actor) for tx_id in tx_ids)

    # As an action of the approvals.

    def decide(self, connection: Connection, order: Order) -> None:
        note_action(
            connection,
            actor=order.actor,
            action=f"bulk-{order.params['action']}",
            subject="transactions",
            reason=order.reason,
            details={
                "where": order.params["where"],
                "count": order.params["count"],
                **order.audit_details,
            },
        )

    def carry_out(self, order: Order, _: str | None) -> str | None:
        """Some of them; None as long as there are more. Each is acted on once."""
        assert order.approval is not None
        number, store = order.approval.id, self.approvals.store
        for item in store.items(number, ITEMS_MAX):
            sequence = self.live.named_many([item.tx_id], ("sequence",))[0].get("sequence", "")
            if not item.is_taken:
                store.take_item(number, item.tx_id, sequence)
                reach("bulk.after_take")
            elif sequence != item.sequence:
                # The process that took it died; it was acted on, because it has moved since.
                store.end_item(number, item.tx_id, ok=True, note="has moved")
                continue
            kind: Action = order.params["action"]
            done = self._acted(kind, item.tx_id, order.reason, order.actor, order.approval)
            reach("bulk.after_act")
            store.end_item(number, item.tx_id, ok=done.ok, note=done.what)
        counts = store.item_counts(number)
        if counts.get("open", 0) + counts.get("taken", 0):
            return None
        return f"{counts.get('done', 0)} of {sum(counts.values())} done"

    def retry(
        self,
        tx_id: str,
        *,
        reason: str,
        actor: Actor = LOCAL,
        only_if: Precondition | None = None,
    ) -> ActionResult:
        """Make one transaction go on; what is impossible is told, not raised.

        ApprovalNeeded is raised if the policy wants another person to agree, TransactionMoved if
        it is not as `only_if` says.
        """
        try:
            what = self._retry(tx_id, reason, actor, None, only_if=only_if)
            return ActionResult(tx_id, what, True)
        except (ApprovalNeeded, TransactionMoved):
            raise
        except DatpError as error:
            if only_if and isinstance(error, TransactionHeld):
                raise
            return ActionResult(tx_id, str(error), False)

    def _acted(
        self,
        action: Action,
        tx_id: str,
        reason: str,
        actor: Actor,
        approval: Approval | None = None,
    ) -> ActionResult:
        """One of many; with the approval that all of it has."""
        try:
            return ActionResult(tx_id, self._act(action, tx_id, reason, actor, approval), True)
        except DatpError as error:
            return ActionResult(tx_id, str(error), False)

    def _act(
        self, action: Action, tx_id: str, reason: str, actor: Actor, approval: Approval | None
    ) -> str:
        if action == "cancel":
            self.signals.cancel(tx_id, reason, by=actor)
            return f"cancel asked for; it is {self.locator.status(tx_id).status}"
        if action == "wake":
            return "woken" if self.signals.wake(tx_id, by=actor) else "did not sleep"
        return self._retry(tx_id, reason, actor, approval)

    def _retry(
        self,
        tx_id: str,
        reason: str,
        actor: Actor,
        approval: Approval | None,
        *,
        only_if: Precondition | None = None,
    ) -> str:
        """Whatever makes it go on now: wake it, run its step again, or ring again."""
        found = self.locator.status(tx_id)
        status = found.status
        if status is Status.IN_DOUBT:
            if approval is not None:
                self.resolver.redo(tx_id, reason=reason, actor=actor, approval=approval)
            else:
                self.resolver.resolve(tx_id, "redo", reason=reason, actor=actor, only_if=only_if)
            return "its step is run again"
        if status is Status.SLEEPING:
            woken = self.signals.wake(tx_id, by=actor, only_if=only_if)
            return "woken" if woken else "did not sleep any more"
        # To ring again changes nothing of the transaction, so there is nothing to hold it by.
        if only_if and not only_if(found):
            raise TransactionMoved(f"{tx_id} is not as it was seen any more: {status}")
        with translate_outage():
            record_action(
                self.engine,
                actor=actor,
                action="transaction.retry",
                subject=tx_id,
                reason=reason,
            )
        bell = self.live.ring_again_many([tx_id])[0]
        self.ringer.ring([bell if isinstance(bell, Bell) else None])
        return "rung again" if isinstance(bell, Bell) else f"nothing to do; it is {status}"


def checked_order(order: str | None) -> str | None:
    """The search attribute to sort by."""
    if order is None:
        return None
    name = order.removeprefix("-")
    if not NAME.fullmatch(name):
        raise FilterInvalid(f"sort by a search attribute, as amount or -amount; was {order!r:.60}")
    return name


def _parsed(name: str, value: str) -> dict[str, Any]:
    if name == "status":
        try:
            return {"status": Status(value)}
        except ValueError:
            allowed = ", ".join(sorted(Status))
            raise FilterInvalid(f"status is one of {allowed}; was {value!r}") from None
    if name in ("older-than", "newer-than"):
        number, unit = value[:-1], value[-1]
        if unit not in UNITS_S or not number.isdecimal():
            raise FilterInvalid(f"{name} is a number and s, m, h or d, as in 15m; was {value!r}")
        return {f"{name.partition('-')[0]}_s": float(number) * UNITS_S[unit]}
    return {name: value}


def _recorded(status: Status | None) -> tuple[str, ...]:
    """What the record calls it: all that goes on is queued there, or in doubt."""
    if status is None:
        return ()
    return (str(status),) if status in FINAL or status is Status.IN_DOUBT else (str(Status.QUEUED),)


def _before(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now - timedelta(seconds=seconds)
