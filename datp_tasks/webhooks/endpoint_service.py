"""Webhook endpoints, put together: made and changed, tested, replayed, and fed from the feed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import uuid_utils

from datp_tasks.errors import CursorTooOld, WebhookInvalid
from datp_tasks.failpoints import reach
from datp_tasks.model.actor import Actor
from datp_tasks.model.payload import encode
from datp_tasks.outbound.addresses import check_url
from datp_tasks.record.event_feed import TYPES, EventFeed, FeedPage, TransactionEvent
from datp_tasks.record.webhook_endpoints import (
    Endpoint,
    EndpointReplay,
    Endpoints,
    Feeding,
    new_endpoint_id,
    signer_of,
)
from datp_tasks.record.webhook_queue import Member
from datp_tasks.record.webhooks import SECRET_OVERLAP_S, Webhooks
from datp_tasks.settings import Settings

log = logging.getLogger("datp.webhooks")

#: Of an owner: as many as a person can still keep apart.
ENDPOINTS_MAX = 20
DESCRIPTION_CHARS_MAX = 500
TEST = "endpoint.test"
#: The shard of what belongs to no transaction; there is always one of this name.
SHARD = "00"


@dataclass(frozen=True, slots=True)
class Fed:
    endpoints: int
    deliveries: int


class EndpointService:
    def __init__(
        self,
        settings: Settings,
        store: Endpoints,
        feed: EventFeed,
        secrets: Webhooks,
        *,
        tell_due: Callable[[Sequence[Member]], None],
    ) -> None:
        self._settings = settings
        self.store = store
        self._feed = feed
        self._secrets = secrets
        self._tell_due = tell_due

    # For those who own them.

    def add(
        self,
        owner: str,
        url: str,
        *,
        types: Sequence[str] = (),
        description: str = "",
        actor: Actor | None = None,
        reason: str | None = None,
    ) -> tuple[Endpoint, str]:
        """A new endpoint and the secret that signs for it, which is shown only now."""
        check_url(url, self._settings, owner)
        _check(types, description)
        id = new_endpoint_id()
        # First, so that no crash leaves an endpoint whose secret was shown to no one; without a key
        # ring there is no secret, and so no endpoint.
        secret = self._secrets.rotate(signer_of(id), overlap_s=0)
        try:
            made = self.store.add(
                owner,
                url,
                id=id,
                types=types,
                description=description,
                endpoints_max=ENDPOINTS_MAX,
                actor=actor,
                reason=reason,
            )
        except Exception:
            # Also if PostgreSQL has committed, and only its answer was lost.
            self._take_back(owner, id, actor)
            raise
        return made, secret

    def _take_back(self, owner: str, id: str, actor: Actor | None) -> None:
        try:
            self.store.take_back(owner, id, actor=actor)
        except Exception as error:
            log.warning("whether endpoint %s of %s was added is not known: %s", id, owner, error)

    def change(
        self,
        id: str,
        *,
        owner: str | None = None,
        url: str | None = None,
        types: Sequence[str] | None = None,
        description: str | None = None,
        enabled: bool | None = None,
        actor: Actor | None = None,
        reason: str | None = None,
    ) -> Endpoint:
        found = self.store.find(id, owner=owner)
        if url is not None:
            check_url(url, self._settings, found.owner)
        _check(types or (), description or "")
        return self.store.change(
            id,
            url=url,
            types=types,
            description=description,
            enabled=enabled,
            actor=actor,
            reason=reason,
        )

    def delete(
        self,
        id: str,
        *,
        owner: str | None = None,
        actor: Actor | None = None,
        reason: str | None = None,
    ) -> None:
        self.store.find(id, owner=owner)
        self.store.delete(id, actor=actor, reason=reason)

    def rotate(
        self,
        id: str,
        *,
        owner: str | None = None,
        overlap_s: float | None = None,
        actor: Actor | None = None,
        reason: str | None = None,
    ) -> str:
        """A new secret; the old one signs beside it for a while."""
        found = self.store.find(id, owner=owner)
        wanted_s = SECRET_OVERLAP_S if overlap_s is None else overlap_s
        return self._secrets.rotate(found.signer, overlap_s=wanted_s, actor=actor, reason=reason)

    def test(self, id: str, *, owner: str | None = None, actor: Actor | None = None) -> str:
        """Send an event that is about nothing; the id of its delivery."""
        found = self.store.find(id, owner=owner)
        if not found.enabled:
            raise WebhookInvalid(f"{id} is disabled; enable it first")
        now = self._feed.head().cursor.at.isoformat()
        body = {"type": TEST, "timestamp": now, "data": {"endpointId": id}}
        tx_id = f"t{SHARD}-{uuid_utils.uuid7().hex}"
        member = self.store.add_test(found, tx_id, encode(body), actor=actor)
        self._tell_due([member])
        return f"msg_{member[0]}_{member[1]}"

    def replay(
        self,
        id: str,
        since: datetime,
        until: datetime,
        *,
        owner: str | None = None,
        actor: Actor | None = None,
        reason: str | None = None,
    ) -> None:
        """Tell again of what happened in that time; also what was not told then."""
        if until <= since:
            raise WebhookInvalid("a replay ends after it begins")
        found = self.store.find(id, owner=owner)
        place = self._feed.place_at(found.owner, since)
        again = EndpointReplay(place, since, until)
        self.store.begin_replay(id, again, actor=actor, reason=reason)

    # For the job.

    def feed(self, *, endpoints_max: int, rows_max: int) -> Fed:
        """Make deliveries of what is new for endpoints, and go on with replays."""
        if renumbered := self._feed.renumber(rows_max):
            log.warning("%d events come from another server; they are told now", renumbered)
        due = self.store.due(endpoints_max)
        deliveries = 0
        for id in due:
            members: list[Member] = []
            with self.store.feeding(id) as feeding:
                if feeding is not None:
                    members = self._feed_one(feeding, rows_max)
                reach("endpoints.before_commit")
            reach("endpoints.after_commit")
            if members:
                self._tell_due(members)
            deliveries += len(members)
        return Fed(len(due), deliveries)

    def _feed_one(self, feeding: Feeding, rows_max: int) -> list[Member]:
        endpoint = feeding.endpoint
        try:
            page = self._feed.page(endpoint.owner, endpoint.place, rows_max)
        except CursorTooOld:
            # A backup was restored into another server: what it counts is not what we counted.
            log.warning("endpoint %s goes on with what happens from now on", endpoint.id)
            feeding.advance(self._feed.head().cursor.place)
            return []
        wanted = [each for each in page.events if endpoint.wants(each.type)]
        members = feeding.add([_told(each) for each in wanted])
        feeding.advance(page.next.place)
        if endpoint.replay is not None:
            members += self._replay_one(feeding, endpoint.replay, rows_max)
        return members

    def _replay_one(self, feeding: Feeding, replay: EndpointReplay, rows_max: int) -> list[Member]:
        endpoint = feeding.endpoint
        try:
            page: FeedPage = self._feed.page(endpoint.owner, replay.place, rows_max)
        except CursorTooOld:
            log.warning("the replay of endpoint %s ends: it began on another server", endpoint.id)
            feeding.end_replay()
            return []
        wanted = [
            each
            for each in page.events
            if endpoint.wants(each.type) and replay.since <= each.at < replay.until
        ]
        members = feeding.add([_told(each) for each in wanted], again=True)
        is_past = bool(page.events) and self._feed.is_long_after(page.events[-1].at, replay.until)
        if page.is_full and not is_past:
            feeding.advance_replay(page.next.place)
        else:
            feeding.end_replay()
        return members


def _told(event: TransactionEvent) -> tuple[str, str, str]:
    """The transaction, the event, and what a webhook says of it; what is sealed is sealed."""
    body = {
        "type": event.type,
        "timestamp": event.at.isoformat(),
        "id": event.id,
        "data": event.data,
    }
    return event.tx_id, event.row_name, encode(body)


def _check(types: Sequence[str], description: str) -> None:
    for each in types:
        if each not in TYPES:
            raise WebhookInvalid(f"{each!r:.50} is none of {', '.join(TYPES)}")
    if len(set(types)) != len(types):
        raise WebhookInvalid("a type of events was given twice")
    if len(description) > DESCRIPTION_CHARS_MAX or "\0" in description:
        raise WebhookInvalid(f"a description has at most {DESCRIPTION_CHARS_MAX} characters")
