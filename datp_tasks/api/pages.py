"""Pages of transactions: what may be asked for, and where the next page begins."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from datp_tasks.api.access import Caller
from datp_tasks.api.models import Status
from datp_tasks.api.problems import Problem
from datp_tasks.api.services import Services
from datp_tasks.live.keys import shard_of_tx
from datp_tasks.record.database import translate_outage
from datp_tasks.record.listing import ListingFilter
from datp_tasks.record.record_types import Summary

#: What the record calls `queued` is, as Redis knows, one of these.
GOING_ON = ("queued", "running", "sleeping")


def _in_utc(moment: datetime) -> datetime:
    """PostgreSQL knows fewer time zones than Python."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is out of range") from None


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]


class Filter(BaseModel):
    model_config = ConfigDict(extra="forbid")

    external_id: str | None = Field(None, alias="externalId", max_length=255)
    status: Status | None = None
    pipeline: str | None = Field(None, max_length=200)
    since: Moment | None = Field(None, alias="from", description="Accepted then or later.")
    until: Moment | None = Field(None, alias="to", description="Accepted before.")
    owner: str | None = Field(None, max_length=64, description="For operators: of whom.")
    limit: int = Field(50, ge=1, le=1_000)
    cursor: str | None = Field(None, max_length=300)


def page_of(services: Services, caller: Caller, wanted: Filter) -> tuple[list[Summary], str | None]:
    """Transactions that the caller may see, and where to go on. In a thread."""
    owner = wanted.owner if caller.is_operator else caller.owner
    if wanted.owner is not None and not caller.may_see(wanted.owner):
        return [], None
    if wanted.external_id is not None:
        return _by_external_id(services, owner or caller.owner, wanted), None
    rows_max = min(wanted.limit, services.settings.list_rows_max)
    with translate_outage():
        rows = services.listing.page(
            ListingFilter(
                owner=owner,
                statuses=_recorded(wanted.status),
                pipeline=wanted.pipeline,
                since=wanted.since,
                until=wanted.until,
                after=_read_cursor(wanted.cursor),
                rows_max=rows_max,
            )
        )
    shown = services.client.overlay_many(rows)
    cursor = _cursor(rows[-1]) if len(rows) == rows_max else None
    return [each for each in shown if wanted.status in (None, each.status)], cursor


def _by_external_id(services: Services, owner: str, wanted: Filter) -> list[Summary]:
    with translate_outage():
        found = services.record.by_external_id(owner, wanted.external_id or "")
    shown = services.client.overlay_many([found] if found else [])
    return [
        each
        for each in shown
        if wanted.status in (None, each.status)
        and wanted.pipeline in (None, each.pipeline)
        and (wanted.since is None or each.created_at >= wanted.since)
        and (wanted.until is None or each.created_at < wanted.until)
    ]


def _recorded(status: Status | None) -> tuple[str, ...]:
    if status is None:
        return ()
    # One that Redis says runs may be in doubt in the record, for an instant.
    return ("queued", "in-doubt") if status in GOING_ON else (status,)


def _cursor(last: Summary) -> str:
    text = json.dumps([last.created_at.isoformat(), last.tx_id])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(cursor: str | None) -> tuple[datetime, str] | None:
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        moment, tx_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        created_at = datetime.fromisoformat(moment)
        if created_at.utcoffset() is None or not shard_of_tx(tx_id):
            raise ValueError
        return _in_utc(created_at), tx_id
    except (ValueError, TypeError):
        raise Problem(
            422, "request-invalid", "The cursor is not one that was given as nextCursor."
        ) from None
