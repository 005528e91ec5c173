"""What a request becomes when it is accepted: the columns of its row, and what may refuse it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from datp_tasks.errors import DataKeyGone
from datp_tasks.model.status import Status
from datp_tasks.record.array_text import if_any
from datp_tasks.record.queries import Queries
from datp_tasks.record.record_types import Acceptance, Existing


class Query(Queries, topic="acceptance"):
    hold_keys: str
    accept: str
    existing: str


def hold_keys(connection: Any, key_ids: Sequence[str]) -> None:
    """None of these data keys is deleted before the commit; a process may have kept one longer."""
    rows = connection.exec_driver_sql(Query.hold_keys, {"ids": list(key_ids)})
    gone = sorted(set(key_ids) - {row.id for row in rows})
    if gone:
        raise DataKeyGone("data keys were erased with their owners", gone)


def accept_statement(
    wanted: Sequence[Acceptance], now: datetime | None
) -> tuple[str, dict[str, Any]]:
    """The statement that accepts these requests, and its parameters."""
    return Query.accept, {
        "tx_id": [each.tx_id for each in wanted],
        "owner": [each.owner for each in wanted],
        "external_id": if_any([each.external_id for each in wanted]),
        "fingerprint": [each.fingerprint for each in wanted],
        "pipeline": [each.pipeline for each in wanted],
        "version": [each.version for each in wanted],
        "input": [each.input_json for each in wanted],
        "metadata": if_any([each.metadata_json for each in wanted]),
        "expires_at": if_any([each.expires_at for each in wanted]),
        "webhook": if_any([each.webhook for each in wanted]),
        "progress_reports": [each.progress_reports for each in wanted],
        "cancel_webhook_on_poll": [each.cancel_webhook_on_poll for each in wanted],
        "trace": if_any([each.trace for each in wanted]),
        "submitted_by": if_any([each.submitted_by for each in wanted]),
        "origin": if_any([each.origin for each in wanted]),
        "webhook_style": if_any([each.webhook_style for each in wanted]),
        "payee": if_any([each.payee_json for each in wanted]),
        "now": now,
    }


def existing_of(
    connection: Any, names: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], Existing]:
    """The transactions that have these external ids, by owner and external id."""
    columns = {
        "owner": [owner for owner, _ in names],
        "external_id": [external_id for _, external_id in names],
    }
    return {
        (row.owner, row.external_id): Existing(row.tx_id, Status(row.status), row.fingerprint)
        for row in connection.exec_driver_sql(Query.existing, columns)
    }
