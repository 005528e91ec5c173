"""Values that are erased, where they are not a part of one transaction: filters of bulk actions in
the audit and in approvals, what was said beside them, and saved views.

A value of a search attribute goes from filters with the last transaction of its owner that has it:
as long as others have it, it tells nothing of the one that is erased. A filter for every owner
keeps it as long as any owner has it.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from sqlalchemy import Connection

from datp_tasks.errors import FilterInvalid
from datp_tasks.model.payload import encode
from datp_tasks.model.search_attributes import CHARS_MAX, parts_of
from datp_tasks.record.queries import Queries

#: A shorter beginning of a value tells nothing of it.
PREFIX_CHARS_MIN = 4
#: A shorter text occurs in sentences that are about something else.
SAID_CHARS_MIN = 4


class Query(Queries, topic="erased_values"):
    values_gone: str
    named_for_all: str
    values_of_none: str
    bulk_actions: str
    bulks_of: str
    actions_of_bulks: str
    actions_of_approvals: str
    actions_under: str
    bulk_approvals: str
    approvals_of_many: str
    actions: str
    write_actions: str
    approvals: str
    write_approvals: str
    views: str
    drop_views: str
    rename_views: str


@dataclass(frozen=True, slots=True)
class ErasedValue:
    """A text by which transactions could be found."""

    owner: str
    name: str
    value: str
    #: No transaction of any owner has it any more.
    is_last: bool

    def is_of(self, owner: str | None) -> bool:
        """Whether a filter for this owner, or for all, told it."""
        return self.is_last if owner is None else self.owner == owner

    def is_named_by(self, name: str, operator: str, value: str) -> bool:
        """Whether a condition of a filter tells it."""
        if self.name != name:
            return False
        cut = value[:CHARS_MAX]
        is_beginning = operator == "prefix" and len(cut) >= PREFIX_CHARS_MIN
        return cut == self.value or (is_beginning and self.value.startswith(cut))

    def is_said_by(self, text: str) -> bool:
        """As a word, in capitals or not: of "annex", "anne" says nothing."""
        if len(self.value) < SAID_CHARS_MIN:
            return False
        # A longer value was cut off in the middle of a word.
        end = r"(?!\w)" if len(self.value) < CHARS_MAX else ""
        return bool(re.search(rf"(?<!\w){re.escape(_folded(self.value))}{end}", _folded(text)))


def values_gone(connection: Connection, tx_ids: Sequence[str]) -> list[ErasedValue]:
    """Ask before their search attributes are deleted.

    Only a filter for every owner asks whether other owners have a value, which is a look at each
    of them: it is taken for what such a filter names.
    """
    rows = connection.exec_driver_sql(Query.values_gone, {"tx_id": list(tx_ids)})
    gone = [ErasedValue(row.owner, row.name, row.value, is_last=True) for row in rows]
    if not gone:
        return []
    conditions = [
        (*parts_of_condition(row.condition), row.value)
        for row in connection.exec_driver_sql(Query.named_for_all)
    ]
    names: list[str] = []
    for row in connection.exec_driver_sql(Query.views):
        owner, found = _conditions(row.query)
        if owner is None:
            conditions += found
            names.append(row.name)
    asked = {
        (each.name, each.value)
        for each in gone
        if any(each.is_named_by(*part) for part in conditions) or any(map(each.is_said_by, names))
    }
    last: set[tuple[str, str]] = set()
    if asked:
        columns = {
            "name": [name for name, _ in asked],
            "value": [value for _, value in asked],
            "tx_id": list(tx_ids),
        }
        last = {
            (row.name, row.value)
            for row in connection.exec_driver_sql(Query.values_of_none, columns)
        }
    return [replace(each, is_last=(each.name, each.value) in last) for each in gone]


def parts_of_condition(condition: str) -> tuple[str, str]:
    """Attribute and operator, of `customer[prefix]`; without brackets it is equal."""
    name, _, operator = condition.partition("[")
    return name, operator.removesuffix("]") or "eq"


def approvals_by(
    connection: Connection, values: Sequence[ErasedValue], tx_ids: Sequence[str]
) -> dict[int, bool]:
    """Requests about many that were chosen by these, or of which none is left; whether what was
    said goes in any case. Ask once the transactions are erased."""
    of_many = _ids(connection, Query.approvals_of_many, _bulks(connection, tx_ids))
    by_value = _ids(connection, Query.bulk_approvals, _columns(values)) if values else []
    return {each: each in of_many for each in sorted({*of_many, *by_value})}


def erase_bulk_approvals(
    connection: Connection, found: Mapping[int, bool], values: Sequence[ErasedValue]
) -> dict[int, bool]:
    """Take the values out of requests that are over; of which what was said went.

    What one person did alone stays as it was said.
    """
    rows = connection.exec_driver_sql(Query.approvals, {"id": list(found)}).all() if found else []
    changed = {}
    for row in rows:
        params = json.loads(row.params)
        where = _without(params["where"], values)
        is_said = any(each.is_said_by(row.said) for each in values)
        goes = not row.break_glass and (found[row.id] or is_said)
        if where is not None:
            params = {**params, "where": {**where, "erased": True}}
        if where is not None or goes:
            changed[row.id] = (encode(params), goes)
    if changed:
        columns = {
            "id": list(changed),
            "params": [params for params, _ in changed.values()],
            "goes": [goes for _, goes in changed.values()],
        }
        connection.exec_driver_sql(Query.write_approvals, columns)
    return {each: goes for each, (_, goes) in changed.items()}


def erase_actions(
    connection: Connection,
    values: Sequence[ErasedValue],
    tx_ids: Sequence[str],
    approvals: Mapping[int, bool],
) -> dict[str, str]:
    """Take the values out of rows of the audit about many; by id, the SHA-256 of what is left."""
    by_bulk = _ids(connection, Query.actions_of_bulks, _bulks(connection, tx_ids))
    by_value = _ids(connection, Query.bulk_actions, _columns(values)) if values else []
    gone = [each for each, goes in approvals.items() if goes]
    asked: list[int] = []
    if gone:
        names = [f"approval {each}" for each in gone]
        asked = _ids(connection, Query.actions_of_approvals, {"name": names})
        asked += _ids(connection, Query.actions_under, {"approval": list(map(str, gone))})
    ids = sorted({*by_bulk, *by_value, *asked})
    rows = connection.exec_driver_sql(Query.actions, {"id": ids}).all() if ids else []
    changed: list[tuple[int, str | None, str]] = []
    for row in rows:
        is_said = any(each.is_said_by(row.reason or "") for each in values)
        left = _left_of(row, values, goes=is_said or row.id in by_bulk or row.id in asked)
        if left is not None:
            changed.append((row.id, *left))
    if changed:
        names_of = ("id", "reason", "details")
        columns = dict(zip(names_of, map(list, zip(*changed, strict=True)), strict=True))
        connection.exec_driver_sql(Query.write_actions, columns)
    return {str(number): _sha256(details) for number, _, details in changed}


def _left_of(
    row: Any, values: Sequence[ErasedValue], *, goes: bool
) -> tuple[str | None, str] | None:
    """Reason and details without what is erased; None if nothing of it is there.

    The details keep the SHA-256 of what they were, and of the reason if that went, also of rows
    from which something was taken before.
    """
    details = json.loads(row.details) if row.details else {}
    found = {"erased": _sha256(row.details)}
    if "kept" in details:
        found = {name: text for name, text in details.items() if name != "kept"}
        details = details["kept"]
    where = _without(details.get("where") or {}, values)
    # The reason of what one person did alone is for the other person who looks into it.
    goes = goes and row.reason is not None and not details.get("breakGlass")
    if where is None and not goes:
        return None
    if where is not None:
        details = {**details, "where": where}
    if goes:
        found["erasedReason"] = _sha256(row.reason)
    return None if goes else row.reason, encode({**found, "kept": details})


def _without(where: Mapping[str, Any], values: Sequence[ErasedValue]) -> dict[str, Any] | None:
    """A filter without the conditions that tell one of the values; None if none of them does."""
    given = where.get("attributes") or {}
    told = [each for each in values if each.is_of(where.get("owner"))]
    left = {
        condition: value
        for condition, value in given.items()
        if not any(each.is_named_by(*parts_of_condition(condition), value) for each in told)
    }
    if len(left) == len(given):
        return None
    rest = {name: value for name, value in where.items() if name != "attributes"}
    return {**rest, "attributes": left} if left else rest


def drop_views(connection: Connection, values: Sequence[ErasedValue]) -> int:
    """Views that people saved, if their filters name one of the values; if only its name says
    one, the view gets another name."""
    if not values:
        return 0
    dropped, renamed = [], []
    for row in connection.exec_driver_sql(Query.views):
        owner, conditions = _conditions(row.query)
        told = [each for each in values if each.is_of(owner)]
        if any(each.is_named_by(*part) for part in conditions for each in told):
            dropped.append(row)
        elif any(each.is_said_by(row.name) for each in told):
            renamed.append(row)
    for query, rows in ((Query.drop_views, dropped), (Query.rename_views, renamed)):
        columns = {
            "person": [row.person for row in rows],
            "name": [row.name for row in rows],
            "new": [f"view {secrets.token_hex(4)}" for _ in rows],
        }
        if rows:
            connection.exec_driver_sql(query, columns)
    return len(dropped) + len(renamed)


def _conditions(query: str) -> tuple[str | None, list[tuple[str, str, str]]]:
    """Of a saved view: its owner, and the attribute, operator and value of each condition."""
    owner, found = None, []
    for name, text in parse_qsl(query):
        if name == "owner":
            owner = text
        try:
            found += [parts_of(each.strip()) for each in text.split(",")] if name == "attr" else []
        except FilterInvalid:
            continue
    return owner, found


def _folded(text: str) -> str:
    """For comparing: PostgreSQL folds ASCII only where its locale is C."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _bulks(connection: Connection, tx_ids: Sequence[str]) -> dict[str, Any]:
    """What was erased, and bulks of which each transfer was erased by now."""
    ids = {"tx_id": list(tx_ids)}
    bulks = [row.tx_id for row in connection.exec_driver_sql(Query.bulks_of, ids)]
    return {**ids, "bulk": [*tx_ids, *bulks]}


def _ids(connection: Connection, query: str, values: dict[str, Any]) -> list[int]:
    return sorted(row.id for row in connection.exec_driver_sql(query, values))


def _columns(values: Sequence[ErasedValue]) -> dict[str, Any]:
    return {
        "owner": [each.owner for each in values],
        "name": [each.name for each in values],
        "value": [each.value for each in values],
        "is_last": [each.is_last for each in values],
        "chars": CHARS_MAX,
        "prefix": PREFIX_CHARS_MIN,
    }


def _sha256(text: str | None) -> str:
    return hashlib.sha256((text or "").encode()).hexdigest()
