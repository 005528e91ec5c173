"""Choosing transactions by what they are. It reads only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from datp_tasks.errors import FilterInvalid
from datp_tasks.live.store import LiveStore
from datp_tasks.model.search_attributes import NAME, SearchCondition, parts_of
from datp_tasks.model.status import FINAL, GOING_ON, Status, recorded_as
from datp_tasks.record.database import Engine, translate_outage
from datp_tasks.record.listing import Listing, ListingFilter
from datp_tasks.record.record_types import Summary
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.locate import Locator

#: Rows of one statement.
PAGE = 500
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
        given: set[str] = set()
        for text in texts:
            if text.startswith(ATTRIBUTE):
                name, operator, value = parts_of(text.removeprefix(ATTRIBUTE))
                _refuse_twice(given, f"{ATTRIBUTE}{name}[{operator}]")
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
            _refuse_twice(given, name)
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
class TransfersOfBulk:
    """The transfers of a bulk, in place of a filter; an action names them beside it."""

    bulk_id: str
    pipeline: None = None

    def to_json(self) -> dict[str, Any]:
        return {"bulkTransfer": self.bulk_id}


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which transactions a filter means now."""

    engine: Engine
    record: Record
    live: LiveStore
    locator: Locator

    def choose(
        self,
        where: Where,
        *,
        rows_max: int | None = None,
        order: str | None = None,
        open_only: bool = False,
    ) -> Iterator[Summary]:
        """Transactions as of now, the newest first; or by a search attribute, with `-` before it
        the largest first. What lacks that attribute is left out. With `open_only` what has ended
        is not looked at, however long the history is."""
        name = checked_order(order)
        if open_only and where.status in FINAL:
            return
        with translate_outage():
            now = self.record.server_now()
        wanted = ListingFilter(
            owner=where.owner,
            statuses=_recorded(where.status, open_only=open_only),
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
                if open_only and each.is_final:
                    continue
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


def checked_order(order: str | None) -> str | None:
    """The search attribute to sort by."""
    if order is None:
        return None
    name = order.removeprefix("-")
    if not NAME.fullmatch(name):
        raise FilterInvalid(f"sort by a search attribute, as amount or -amount; was {order!r:.60}")
    return name


def _refuse_twice(given: set[str], name: str) -> None:
    """The last one alone would choose what the first one leaves out, before a bulk cancel."""
    if name in given:
        raise FilterInvalid(f"the filter {name} is given twice; write one of them")
    given.add(name)


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


def _recorded(status: Status | None, *, open_only: bool) -> tuple[str, ...]:
    if status is None:
        return recorded_as(GOING_ON) if open_only else ()
    return recorded_as((status,))


def _before(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now - timedelta(seconds=seconds)
