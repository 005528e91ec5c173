"""What a client sends, checked before anything is stored."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import uuid_utils

from datp_tasks.errors import ExternalIdInvalid, InputInvalid, PipelineNotStartable, RequestError
from datp_tasks.live.live_types import NewTransaction
from datp_tasks.model.actor import Actor
from datp_tasks.model.input_schema import check_input
from datp_tasks.model.payee import PayeeInvalid, shown_nothing
from datp_tasks.model.payload import DEPTH_MAX, NotJson, canonical, checked, encode
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.model.rights import check_submit
from datp_tasks.model.search_attributes import attributes_of
from datp_tasks.model.state import first_state_json
from datp_tasks.model.status import Status
from datp_tasks.model.texts_by_language import language_wanted
from datp_tasks.outbound.addresses import check_url
from datp_tasks.record.record_types import Acceptance
from datp_tasks.seals.data_key import DataKey
from datp_tasks.settings import Settings
from datp_tasks.timeouts.expiry import ExpiryPast, Now, checked_expiry, moment_of

#: Two UUIDs with a separator do not fit, one with a prefix does; it is part of an index.
EXTERNAL_ID_CHARS_MAX = 64
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
METADATA_BYTES_MAX = 16_384
#: Under any limit that there may have been when it was accepted.
ACCEPTED_EXTERNAL_ID = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One transaction that a client wants."""

    pipeline: str
    input: Mapping[str, Any]
    owner: str = "local"
    #: The client's own name for it; the same id with the same request is the same transaction.
    external_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    #: When it must be over: a time with a zone (or its ISO text), or seconds from now.
    expires_at: datetime | str | None = None
    expires_in_s: float | None = None
    #: Where to tell of its end, and of its progress if that is asked for.
    webhook: str | None = None
    progress_reports: bool = False
    #: Who has seen the news by asking need not be told by the webhook.
    cancel_webhook_on_poll: bool = False
    #: `original`: webhooks with the body that clients of the original look for.
    webhook_style: Literal["original"] | None = None
    #: For the texts of a pipeline that has some, if the metadata name no `lang`.
    language: str | None = None
    #: Who hands it in. None: a program of this installation, which may start anything.
    by: Actor | None = None
    #: Where its submitter is in a trace, as a W3C `traceparent`; None: as the thread is.
    trace_parent: str | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """The transaction is accepted: it will not be lost."""

    tx_id: str
    status: Status
    #: It had been accepted before, under the same external id.
    duplicate: bool = False


@dataclass(slots=True)
class Prepared:
    """A request in the two shapes in which it is stored: `acceptance` in SQL, `new` in Redis. Not
    frozen, as these are not."""

    acceptance: Acceptance
    new: NewTransaction
    #: Its expiry has passed: good only if it was accepted before, under the same external id.
    overdue: ExpiryPast | None = None
    #: What the client asked for, as one text: the fingerprint is a hash of it. Empty without an
    #: external id, under which alone it could come a second time.
    asked: str = ""

    def sealed(self, key: DataKey) -> Prepared:
        """With an input that rests sealed, and a fingerprint that cannot be guessed from.

        Nothing of the input rests beside it: it is found by no attribute, and a payee is only told.
        """
        given = self.acceptance
        input_json = encode(key.seal_text(given.tx_id, given.input_json))
        state_json = first_state_json(given.pipeline, given.version, input_json)
        fingerprint = key.fingerprint(self.asked) if self.asked else ""
        acceptance = replace(
            given,
            input_json=input_json,
            fingerprint=fingerprint,
            data_key=key.id,
            attributes=(),
            payee_json=given.payee_json and shown_nothing(given.payee_json),
        )
        return replace(self, acceptance=acceptance, new=replace(self.new, state_json=state_json))

    def traced(self, text: str) -> Prepared:
        """With its place in the trace of the client that submits it; an empty text is none."""
        if not text:
            return self
        acceptance = replace(self.acceptance, trace=text)
        return replace(self, acceptance=acceptance, new=replace(self.new, trace=text))


def prepare(
    request: Request, definition: PipelineDefinition, settings: Settings, now: Now, shard: str
) -> Prepared:
    """Check a request, or raise a RequestError or PipelineError that says what is wrong."""
    if not definition.startable:
        raise PipelineNotStartable(
            f"Clients cannot start {definition.name}; only other pipelines may call it."
        )
    owner = _checked_owner(request.owner)
    by = request.by
    if by is not None:
        check_submit(by, definition.name, definition.access, owner)
    external_id = _checked_external_id(request.external_id)
    given, input_json = _checked_json(request.input, "input", settings.input_bytes_max)
    if definition.input_schema is not None:
        check_input(definition.input_schema, given)
    metadata, metadata_json = _checked_metadata(request)
    # Not a part of what was asked for: the same request may come by way of another browser.
    kept_json = _in_language(request, definition, metadata) or metadata_json
    _check_webhook(request, settings)
    expires_at, overdue = None, None
    try:
        expires_at = checked_expiry(request.expires_at, request.expires_in_s, definition, now)
    except ExpiryPast as error:
        overdue = error
    tx_id = new_tx_id(shard)
    whole = ""
    if external_id is not None:
        asked = [*_asked_expiry(request), *_asked_webhook(request)]
        whole = canonical([definition.name, given, metadata, *asked])
    first = definition.steps[0]
    return Prepared(
        Acceptance(
            tx_id=tx_id,
            owner=owner,
            external_id=external_id,
            fingerprint=fingerprint_of(whole) if whole else "",
            pipeline=definition.name,
            version=definition.version,
            input_json=input_json,
            metadata_json=kept_json,
            expires_at=expires_at,
            webhook=request.webhook,
            progress_reports=request.progress_reports,
            cancel_webhook_on_poll=request.cancel_webhook_on_poll,
            submitted_by=by.name if by else None,
            origin=by.origin if by else None,
            webhook_style=request.webhook_style,
            attributes=_attributes(definition, given),
            payee_json=_payee_json(definition, given),
        ),
        NewTransaction(
            tx_id=tx_id,
            owner=owner,
            external_id=external_id,
            pipeline=definition.name,
            group=definition.group_of(0),
            step_type=first.type,
            place=f"{definition.name}/0",
            state_json=first_state_json(definition.name, definition.version, input_json),
            metadata_json=kept_json,
            expires_at_ms=ms_of(expires_at),
        ),
        overdue,
        whole,
    )


def _checked_metadata(request: Request) -> tuple[dict[str, Any], str] | tuple[None, None]:
    if request.metadata is None or request.metadata == {}:
        return None, None
    return _checked_json(request.metadata, "metadata", METADATA_BYTES_MAX)


def _in_language(
    request: Request, definition: PipelineDefinition, metadata: Mapping[str, Any] | None
) -> str | None:
    """The metadata with the language of the request, where its pipeline has texts by language."""
    wanted = language_wanted(request.language) if definition.messages else None
    if wanted is None or "lang" in (metadata or {}):
        return None
    return encode({**(metadata or {}), "lang": wanted})


def _attributes(
    definition: PipelineDefinition, given: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    search = definition.search
    return attributes_of(search, "input", given) if search else ()


def _payee_json(definition: PipelineDefinition, given: Mapping[str, Any]) -> str | None:
    try:
        found = None if definition.payee is None else definition.payee.of(given)
    except PayeeInvalid as error:
        raise InputInvalid(str(error)) from None
    return None if found is None else encode(found)


def raw_asked(request: Request) -> str | None:
    """The text of a request that was not checked, as `Prepared.asked`: what was accepted before
    must be found whatever would refuse it now. None if it cannot be that of an accepted one."""
    try:
        given = dict(request.input)
        metadata = dict(request.metadata) if request.metadata else None
        asked = [*_asked_expiry(request), *_asked_webhook(request)]
        text = canonical([request.pipeline, given, metadata, *asked])
        text.encode()
        return text
    except (RequestError, TypeError, ValueError, RecursionError):
        return None


def accepted_name(request: Request) -> tuple[str, str] | None:
    """Owner and external id, if a transaction can have been accepted under them."""
    owner, external_id = request.owner, request.external_id
    if not isinstance(external_id, str) or not ACCEPTED_EXTERNAL_ID.fullmatch(external_id):
        return None
    if not isinstance(owner, str) or not OWNER.fullmatch(owner):
        return None
    return owner, external_id


def fingerprint_of(asked: str) -> str:
    return hashlib.sha256(asked.encode()).hexdigest()


def ms_of(moment: datetime | None) -> int | None:
    """Milliseconds since 1970, as Redis has it."""
    return None if moment is None else round(moment.timestamp() * 1_000)


def _asked_expiry(request: Request) -> list[str | float]:
    """What the client said of it: the same again is the same request, whenever it comes."""
    if request.expires_at is not None:
        return [moment_of(request.expires_at).isoformat()]
    return [] if request.expires_in_s is None else [float(request.expires_in_s)]


def _asked_webhook(request: Request) -> list[dict[str, object]]:
    """Told elsewhere is another request; without a webhook there is nothing to compare."""
    if request.webhook is None:
        return []
    asked = {
        "webhook": request.webhook,
        "progressReports": request.progress_reports,
        "cancelWebhookOnPoll": request.cancel_webhook_on_poll,
    }
    return [asked]


def new_tx_id(shard: str) -> str:
    """Ids grow with time, so that new rows lie together; the shard is part of the id."""
    return f"t{shard}-{uuid_utils.uuid7().hex}"


def _checked_owner(owner: str) -> str:
    if not isinstance(owner, str) or not OWNER.fullmatch(owner):
        raise RequestError(
            f"an owner is 1 to 64 letters, digits, '_', '.', '@' or '-', was {owner!r}"
        )
    return owner


def _checked_external_id(external_id: str | None) -> str | None:
    if external_id is None:
        return None
    limit = EXTERNAL_ID_CHARS_MAX
    if not isinstance(external_id, str) or not re.fullmatch(
        rf"[\x21-\x7e]{{1,{limit}}}", external_id
    ):
        raise ExternalIdInvalid(
            f"an external id is 1 to {limit} printable ASCII characters without spaces, "
            f"was {external_id!r:.100}"
        )
    return external_id


def _check_webhook(request: Request, settings: Settings) -> None:
    for name in ("progress_reports", "cancel_webhook_on_poll"):
        if not isinstance(getattr(request, name), bool):
            raise RequestError(f"{name} must be true or false")
    if request.webhook is not None:
        check_url(request.webhook, settings, request.owner)


def _checked_json(value: object, what: str, bytes_max: int) -> tuple[dict[str, Any], str]:
    given = dict(value) if isinstance(value, Mapping) else value
    try:
        return checked(given, what=what, bytes_max=bytes_max, depth_max=DEPTH_MAX)
    except NotJson as error:
        raise InputInvalid(str(error), error.pointer) from None
