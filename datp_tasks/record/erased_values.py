"""Values that are erased, where they are not a part of one transaction: filters of bulk actions in
the audit and in approvals, saved views; and, if a person was named, what others wrote about it.

A value of a search attribute goes from filters with the last transaction of its owner that has it:
as long as others have it, it tells nothing of the one that is erased.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from sqlalchemy import Connection

from datp_tasks.errors import FilterInvalid
from datp_tasks.model.search_attributes import CHARS_MAX, parts_of
from datp_tasks.record.queries import Queries

#: A shorter beginning of a value tells nothing of it.
PREFIX_CHARS_MIN = 4
#: A shorter text occurs in sentences that are about something else.
SAID_CHARS_MIN = 4


class Query(Queries, topic="erased_values"):
    values_gone: str
    bulk_actions: str
    bulk_approvals: str
    erase_actions: str
    views: str
    drop_views: str
    reasons: str
    words: str
    summaries: str
    erase_alerts: str
    answers: str
    drop_answers: str


@dataclass(frozen=True, slots=True)
class ErasedValue:
    """A text by which transactions can be found; None: of any owner, or of any attribute."""

    owner: str | None
    name: str | None
    value: str

    def is_named_by(self, name: str, operator: str, value: str) -> bool:
        """Whether a condition of a filter tells it."""
        if self.name is not None and self.name != name:
            return False
        is_beginning = operator == "prefix" and len(value) >= PREFIX_CHARS_MIN
        return value[:CHARS_MAX] == self.value or (is_beginning and self.value.startswith(value))


def values_gone(connection: Connection, tx_ids: Sequence[str]) -> list[ErasedValue]:
    """Ask before their search attributes are deleted."""
    rows = connection.exec_driver_sql(Query.values_gone, {"tx_id": list(tx_ids)})
    return [ErasedValue(*row) for row in rows]


def actions_by(connection: Connection, values: Sequence[ErasedValue]) -> list[int]:
    return _ids(connection, Query.bulk_actions, _columns(values)) if values else []


def approvals_by(connection: Connection, values: Sequence[ErasedValue]) -> list[int]:
    return _ids(connection, Query.bulk_approvals, _columns(values)) if values else []


def erase_actions(connection: Connection, ids: Sequence[int]) -> list[int]:
    """Take the texts out of these rows of the audit; those that had some."""
    return _ids(connection, Query.erase_actions, {"id": list(ids)}) if ids else []


def drop_views(connection: Connection, values: Sequence[ErasedValue]) -> int:
    """Views that people saved, if their filters name one of the values."""
    if not values:
        return 0
    rows = [
        row
        for row in connection.exec_driver_sql(Query.views)
        if any(each.is_named_by(*part) for part in _conditions(row.query) for each in values)
    ]
    columns = {"person": [row.person for row in rows], "name": [row.name for row in rows]}
    return connection.exec_driver_sql(Query.drop_views, columns).rowcount if rows else 0


# What was said about a person who is named.


def actions_that_say(connection: Connection, text: str) -> list[int]:
    return [row.id for row in _saying(connection, Query.reasons, text)]


def approvals_that_say(connection: Connection, text: str) -> list[int]:
    return sorted({row.id for row in _saying(connection, Query.words, text)})


def erase_alerts_that_say(connection: Connection, text: str) -> int:
    ids = [row.id for row in _saying(connection, Query.summaries, text)]
    return connection.exec_driver_sql(Query.erase_alerts, {"id": ids}).rowcount if ids else 0


def drop_answers_that_say(connection: Connection, text: str) -> int:
    """Answers that are kept under idempotency keys."""
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    rows = _saying(connection, Query.answers, written)
    columns = {"owner": [row.owner for row in rows], "key": [row.key for row in rows]}
    return connection.exec_driver_sql(Query.drop_answers, columns).rowcount if rows else 0


def _saying(connection: Connection, query: str, text: str) -> list[Any]:
    if len(text) < SAID_CHARS_MIN:
        return []
    # As a word: of "annex", "anne" says nothing.
    whole = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)", re.IGNORECASE)
    rows = connection.exec_driver_sql(query, {"text": text})
    return [row for row in rows if whole.search(row.said)]


def _conditions(query: str) -> list[tuple[str, str, str]]:
    """Of a saved view: attribute, operator and value; other filters count as equal to theirs."""
    found = []
    for name, text in parse_qsl(query):
        try:
            parts = [parts_of(each.strip()) for each in text.split(",")] if name == "attr" else []
        except FilterInvalid:
            parts = []
        found += parts or [(name, "eq", text)]
    return found


def _ids(connection: Connection, query: str, values: dict[str, Any]) -> list[int]:
    return sorted(row.id for row in connection.exec_driver_sql(query, values))


def _columns(values: Sequence[ErasedValue]) -> dict[str, Any]:
    return {
        "owner": [each.owner for each in values],
        "name": [each.name for each in values],
        "value": [each.value for each in values],
        "chars": CHARS_MAX,
        "prefix": PREFIX_CHARS_MIN,
    }
