"""Pages of transactions: what may be asked for, and where the next page begins."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from datp_tasks.api.access import Caller
from datp_tasks.api.lists import (
    CURSOR_CHARS_MAX,
    LIMIT,
    LIMIT_MAX,
    make_cursor,
    read_cursor,
    strange_cursor,
)
from datp_tasks.api.models import Status
from datp_tasks.api.problems import forbidden, invalid
from datp_tasks.api.services import Services
from datp_tasks.errors import FilterInvalid
from datp_tasks.model.rights import sees_payloads
from datp_tasks.model.search_attributes import SearchCondition
from datp_tasks.model.status import recorded_as
from datp_tasks.record.database import translate_outage
from datp_tasks.record.listing import ListingFilter, Place
from datp_tasks.record.record_types import Summary

ANY_STATUS = "|".join(get_args(Status))
STATUSES = f"^({ANY_STATUS})(,({ANY_STATUS}))*$"
NAMES = r"^[a-z0-9][a-z0-9_.-]*(,[a-z0-9][a-z0-9_.-]*)*$"
ORDER = r"^-?[a-z][A-Za-z0-9_]{0,39}$"
CREATED = "createdAt"
#: Fields of the metadata, and search attributes with an operator.
METADATA = re.compile(r"metadata\.([^\x00]{1,100})")
ATTRIBUTE = re.compile(r"attr\.([A-Za-z0-9_]{1,40})(?:\[([a-z]+)\])?")
MORE_MAX = 10


def _in_utc(moment: datetime) -> datetime:
    """PostgreSQL knows fewer time zones than Python."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is out of range") from None


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]


class Filter(BaseModel):
    """Beside these: `metadata.<field>=text` and `attr.<name>[eq|gt|gte|lt|lte|prefix]=value`."""

    model_config = ConfigDict(extra="allow")

    external_id: str | None = Field(None, alias="externalId", max_length=255)
    status: str | None = Field(
        None, max_length=200, pattern=STATUSES, description="One, or several with commas."
    )
    pipeline: str | None = Field(
        None, max_length=1_000, pattern=NAMES, description="One, or several with commas."
    )
    owner: str | None = Field(None, max_length=64, description="For operators: of whom.")
    created_from: Moment | None = Field(
        None, alias="createdAt[gte]", description="Accepted then or later."
    )
    created_to: Moment | None = Field(None, alias="createdAt[lt]", description="Accepted before.")
    completed_from: Moment | None = Field(
        None, alias="completedAt[gte]", description="Ended then or later."
    )
    completed_to: Moment | None = Field(None, alias="completedAt[lt]", description="Ended before.")
    text: str | None = Field(
        None,
        alias="q",
        min_length=1,
        max_length=255,
        pattern=r"^[^\x00]*$",
        description="A part of the txId or of the externalId.",
    )
    order: str = Field(
        f"-{CREATED}",
        pattern=ORDER,
        description="createdAt or a search attribute; with - the newest or largest first.",
    )
    limit: int = Field(LIMIT, ge=1, le=LIMIT_MAX)
    cursor: str | None = Field(None, max_length=CURSOR_CHARS_MAX)

    @model_validator(mode="after")
    def _knows_its_names(self) -> Filter:
        more = self.model_extra or {}
        unknown = [n for n in more if not METADATA.fullmatch(n) and not ATTRIBUTE.fullmatch(n)]
        if unknown:
            raise ValueError(f"there is no such filter: {unknown[0]:.60}")
        if len(more) > MORE_MAX or any("\0" in str(value) for value in more.values()):
            raise ValueError(f"at most {MORE_MAX} of metadata and attr, without U+0000")
        return self

    @property
    def statuses(self) -> set[str]:
        return set(self.status.split(",")) if self.status else set()

    @property
    def metadata(self) -> dict[str, str]:
        more = self.model_extra or {}
        found = ((METADATA.fullmatch(name), value) for name, value in more.items())
        return {match[1]: str(value) for match, value in found if match}

    @property
    def attributes(self) -> list[SearchCondition]:
        found = []
        for name, value in (self.model_extra or {}).items():
            match = ATTRIBUTE.fullmatch(name)
            if match:
                try:
                    found.append(SearchCondition.of(match[1], match[2] or "eq", str(value)))
                except FilterInvalid as error:
                    raise invalid([{"loc": ("query", name), "msg": str(error)}]) from None
        return found


def page_of(services: Services, caller: Caller, wanted: Filter) -> tuple[list[Summary], str | None]:
    """Transactions that the caller may see, and where to go on. In a thread."""
    owner = wanted.owner if caller.is_operator else caller.owner
    if wanted.owner is not None and not caller.may_see(wanted.owner):
        return [], None
    metadata, attributes = wanted.metadata, wanted.attributes
    name = wanted.order.removeprefix("-")
    if (metadata or attributes or name != CREATED) and not sees_payloads(caller.actor):
        raise forbidden("This key does not see payloads, so it cannot look for what is in them.")
    with translate_outage():
        page = services.transactions.listing.page(
            ListingFilter(
                owner=owner,
                external_id=wanted.external_id,
                statuses=recorded_as(wanted.statuses),
                pipelines=wanted.pipeline.split(",") if wanted.pipeline else (),
                since=wanted.created_from,
                until=wanted.created_to,
                completed_since=wanted.completed_from,
                completed_until=wanted.completed_to,
                metadata=metadata,
                text=wanted.text,
                attributes=attributes,
                order=None if name == CREATED else name,
                descending=wanted.order.startswith("-"),
                after=_place(wanted),
                rows_max=wanted.limit,
            )
        )
    shown = services.client.overlay_many(page.rows)
    statuses = wanted.statuses
    found = [each for each in shown if not statuses or str(each.status) in statuses]
    return found, _cursor(wanted, page.next)


def _cursor(wanted: Filter, place: Place | None) -> str | None:
    if place is None:
        return None
    value, tx_id = place
    # With the value: what the page ended with may be erased before the next one is asked for.
    text = value.isoformat() if isinstance(value, datetime) else value
    return make_cursor(wanted.order, text, tx_id)


def _place(wanted: Filter) -> Place | None:
    parts = read_cursor(wanted.cursor, str, str, str)
    if parts is None:
        return None
    order, value, tx_id = parts
    if order != wanted.order:
        raise strange_cursor()
    if order.removeprefix("-") != CREATED:
        return value, tx_id
    try:
        moment: Any = datetime.fromisoformat(value)
        if moment.utcoffset() is None:
            raise ValueError
        return _in_utc(moment), tx_id
    except ValueError:
        raise strange_cursor() from None
