"""Webhooks and webhook endpoints over HTTP, with the methods that commands call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from itertools import islice
from typing import Any, NoReturn

from datp_tasks.cli.remote_calls import (
    Json,
    RemoteCalls,
    known_moment,
    moment,
    refuse_over_http,
    stays_on_host,
)
from datp_tasks.errors import RequestError
from datp_tasks.http.api_error import ApiError
from datp_tasks.model.actor import Actor
from datp_tasks.record.feed_places import BEGINNING
from datp_tasks.record.webhook_endpoints import Endpoint, EndpointReplay
from datp_tasks.record.webhooks import Delivery, DeliveryAttempt

PAGE_MAX = 200
PLACE = "webhook-endpoints"


class RemoteWebhooks:
    """As `WebhookService`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls
        self.store = RemoteDeliveries(calls)
        self.endpoints = RemoteEndpoints(calls)

    def redeliver(self, id: str, *, owner: str | None = None, actor: Actor | None = None) -> None:
        if owner is not None and self.store.find(id).owner != owner:
            refuse_over_http(f"a webhook of {owner} under this id")
        self._calls.post("webhooks", id, "redeliver")

    def redeliver_dead(self, *, owner: str | None = None, actor: Actor | None = None) -> int:
        """All of them, the newest first; how many. What was erased has nothing to say."""
        return sum(
            self._is_redelivered(each.id) for each in self.store.each(state="dead", owner=owner)
        )

    def _is_redelivered(self, id: str) -> bool:
        try:
            self._calls.post("webhooks", id, "redeliver")
        except ApiError as error:
            if error.status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                return False
            raise
        return True


class RemoteDeliveries:
    """As `Webhooks`, as far as commands use it; secrets of owners are not given over HTTP."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def deliveries(
        self,
        *,
        state: str | None = None,
        owner: str | None = None,
        tx_id: str | None = None,
        rows_max: int,
    ) -> list[Delivery]:
        return list(islice(self.each(state=state, owner=owner, tx_id=tx_id), rows_max))

    def each(
        self, *, state: str | None = None, owner: str | None = None, tx_id: str | None = None
    ) -> Iterator[Delivery]:
        """Page by page, the newest first."""
        found = self._calls.pages("webhooks", state=state, txId=tx_id, limit=PAGE_MAX)
        return (each for each in map(_delivery, found) if owner in (None, each.owner))

    def of_endpoint(self, endpoint_id: str, *, rows_max: int) -> list[Delivery]:
        found = self._calls.pages(PLACE, endpoint_id, "deliveries", items="webhooks")
        return [_delivery(each) for each in islice(found, rows_max)]

    def find(self, id: str) -> Delivery:
        return _delivery(self._calls.get("webhooks", id))

    def payload(self, id: str) -> str:
        """What it says is not given over HTTP: it may hold what this key must not see."""
        return ""

    def attempts(self, id: str) -> list[DeliveryAttempt]:
        return [
            DeliveryAttempt(
                attempt=each["attempt"],
                sender="",
                begun_at=known_moment(each["begunAt"]),
                ended_at=moment(each["endedAt"]),
                http_status=each["httpStatus"],
                error=each["error"],
                took_ms=each["tookMs"],
            )
            for each in self._calls.get("webhooks", id)["attempts"]
        ]

    def rotate(self, owner: str, *, overlap_s: float, actor: Actor | None = None) -> str:
        """Of the owner of the key; an admin's key names another."""
        body = {"owner": owner, "overlapSeconds": overlap_s}
        made = self._calls.post("webhook-secret", "rotate", body=body)
        if made["owner"] != owner:
            # A server of an earlier release rotates the one of the key's own owner.
            raise RequestError(
                f"the server made a new secret for {made['owner']}, not for {owner}: use a key of "
                f"{owner}, or an admin's"
            )
        return str(made["secret"])

    def signing_secrets(self, owners: set[str]) -> NoReturn:
        stays_on_host(
            "datp webhooks secrets show",
            "a secret is shown once over HTTP, when it is made (`datp webhooks secrets rotate`)",
        )

    def __getattr__(self, name: str) -> Any:
        refuse_over_http(f"the webhooks' {name}")


class RemoteEndpoints:
    """As `EndpointService`, as far as commands use it."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls
        #: Reading is the same place here.
        self.store = self

    def find_all(self, *, owner: str | None = None) -> list[Endpoint]:
        return [
            _endpoint(each) for each in self._calls.pages(PLACE, items="endpoints", owner=owner)
        ]

    def find(self, id: str) -> Endpoint:
        return _endpoint(self._calls.get(PLACE, id))

    def add(
        self,
        owner: str,
        url: str,
        *,
        types: Sequence[str] = (),
        description: str = "",
        actor: Actor | None = None,
    ) -> tuple[Endpoint, str]:
        body = {"owner": owner, "url": url, "types": list(types), "description": description}
        made = self._calls.post(PLACE, body=body)
        return _endpoint(made), str(made["secret"])

    def change(
        self,
        id: str,
        *,
        url: str | None = None,
        types: Sequence[str] | None = None,
        description: str | None = None,
        enabled: bool | None = None,
        actor: Actor | None = None,
    ) -> Endpoint:
        wanted: Json = {
            "url": url,
            "types": None if types is None else list(types),
            "description": description,
            "enabled": enabled,
        }
        body = {name: value for name, value in wanted.items() if value is not None}
        return _endpoint(self._calls.send("PATCH", PLACE, id, body=body))

    def delete(self, id: str, *, actor: Actor | None = None) -> None:
        self._calls.send("DELETE", PLACE, id)

    def rotate(self, id: str, *, overlap_s: float | None = None, actor: Actor | None = None) -> str:
        body = {} if overlap_s is None else {"overlapSeconds": overlap_s}
        return str(self._calls.post(PLACE, id, "rotate-secret", body=body)["secret"])

    def test(self, id: str, *, actor: Actor | None = None) -> str:
        return str(self._calls.post(PLACE, id, "test")["delivery"])

    def replay(
        self, id: str, since: datetime, until: datetime, *, actor: Actor | None = None
    ) -> None:
        body = {"from": since.isoformat(), "to": until.isoformat()}
        self._calls.post(PLACE, id, "replay", body=body)


def _endpoint(found: Mapping[str, Any]) -> Endpoint:
    replay = found["replay"]
    return Endpoint(
        id=found["id"],
        owner=found["owner"],
        url=found["url"],
        types=tuple(found["types"]),
        description=found["description"],
        enabled=found["enabled"],
        disabled_reason=found["disabledReason"],
        created_at=known_moment(found["createdAt"]),
        updated_at=known_moment(found["updatedAt"]),
        # Where it stands in the feed is the feeder's own matter.
        place=BEGINNING,
        replay=replay
        and EndpointReplay(BEGINNING, known_moment(replay["from"]), known_moment(replay["to"])),
    )


def _delivery(found: Mapping[str, Any]) -> Delivery:
    created_at = known_moment(found["createdAt"])
    return Delivery(
        id=found["id"],
        tx_id=found["txId"],
        sequence=found["sequence"] or 0,
        kind=found["kind"],
        owner=found["owner"],
        url=found["url"],
        state=found["state"],
        attempts=found["attemptCount"],
        next_at=moment(found["nextAt"]) or created_at,
        held=found["held"],
        created_at=created_at,
        first_attempt_at=moment(found["firstAttemptAt"]),
        finished_at=moment(found["finishedAt"]),
        last_status=found["lastStatus"],
        last_error=found["lastError"],
        endpoint_id=found["endpointId"],
    )
