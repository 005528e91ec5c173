"""Search attributes, written by the commit that accepts or ends their transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datp_tasks.record.queries import Queries
from datp_tasks.record.record_types import Acceptance, Final


class Query(Queries, topic="attributes"):
    set: str


def set_attributes(
    connection: Any, rows: Sequence[Acceptance] | Sequence[Final], decided: set[str]
) -> None:
    """Of those transactions that the statement before has accepted or ended."""
    found = [
        (each.tx_id, name, text)
        for each in rows
        if each.tx_id in decided
        for name, text in each.attributes
    ]
    if found:
        tx_ids, names, texts = (list(column) for column in zip(*found, strict=True))
        values = {"tx_id": tx_ids, "name": names, "value": texts}
        connection.exec_driver_sql(Query.set, values)
