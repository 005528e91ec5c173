"""Webhooks, put together: what every process of the system holds, and what the job runs."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from urllib.parse import urlsplit

from datp_tasks.clock import Clock
from datp_tasks.errors import NoKeyRing, SealError
from datp_tasks.failpoints import reach
from datp_tasks.live.job_notes import TurnGate
from datp_tasks.live.store import LiveStore
from datp_tasks.live.webhook_failures import WebhookFailures
from datp_tasks.live.webhook_schedule import WebhookSchedule
from datp_tasks.model.actor import Actor
from datp_tasks.model.payload import SEALED, encode
from datp_tasks.outbound.address_guard import WebhookGuard
from datp_tasks.outbound.addresses import owners_named, settings_of
from datp_tasks.outbound.http_client import HttpClient, Manners, Network
from datp_tasks.outbound.messages import Exchange, HttpRequest, Response
from datp_tasks.outbound.resolver import SystemResolver
from datp_tasks.outbound.response_reader import BodyLimits
from datp_tasks.process_name import unique_name
from datp_tasks.record.alerts import Alert, Alerts
from datp_tasks.record.database import Engine
from datp_tasks.record.event_feed import EventFeed
from datp_tasks.record.vault import Vault
from datp_tasks.record.webhook_endpoints import Endpoints, signer_of
from datp_tasks.record.webhook_queue import ClaimedDelivery, DeliveryOutcome, Member, WebhookQueue
from datp_tasks.record.webhooks import Webhooks
from datp_tasks.settings import Settings
from datp_tasks.webhooks.alert_teller import AlertTeller
from datp_tasks.webhooks.breaker import Breaker
from datp_tasks.webhooks.endpoint_service import EndpointService
from datp_tasks.webhooks.picker import Capacity, Picked, Picker
from datp_tasks.webhooks.sender import Pace, Sender, SenderPorts, SendResult
from datp_tasks.webhooks.signing import signed_headers
from datp_tasks.webhooks.verdict import GONE

log = logging.getLogger("datp.webhooks")

#: A host that takes longer to accept a connection is down.
CONNECT_S = 5.0
#: Whose secret signs what the operator is told. No owner can have this name.
OPERATOR = ":operator"
#: A message to the senders that was lost does not keep others from being sent for longer.
RUNG_MS = 1_000
#: Enough to tell a person what the receiver said.
ANSWER_BYTES_MAX = 65_536
#: So much of an answer is kept for people.
EXCERPT_BYTES_MAX = 1_024


class WebhookService:
    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        live: LiveStore,
        clock: Clock,
        *,
        ring: Callable[[], None],
        vault: Vault,
    ) -> None:
        self._settings = settings
        self._live = live
        self._ring = ring
        name = unique_name()
        queue = WebhookQueue(engine, clock, name)
        rng = random.Random()
        #: For people: deliveries, dead letters, secrets.
        self.store = Webhooks(engine, clock, vault.ring)
        #: Where owners are told of the events of all their transactions.
        self.endpoints = EndpointService(
            settings,
            Endpoints(engine, clock),
            EventFeed(engine),
            self.store,
            tell_due=self.tell_due,
        )
        self._vault = vault
        self.schedule = WebhookSchedule(live, clock)
        self._queue = queue
        self._rung = TurnGate(live, "webhooksRung")
        self._picker = Picker(settings, queue, self.schedule, rng)
        self._breaker = Breaker(settings, WebhookFailures(live.redis, live.keys), queue)
        self._names = SystemResolver(settings.webhook_workers)
        network = Network(resolve=self._names)
        self._operator_client = HttpClient(
            WebhookGuard(_trusting(settings)), _manners(idle_max=0), network
        )
        ports = SenderPorts(self._pick, self._settle, self._headers)
        self._teller = AlertTeller(Alerts(engine, clock), live, self._tell_operator)
        self._sender = Sender(settings, ports, OwnerClients(settings, network), rng)
        self._secrets: dict[str, list[str]] = {}

    # For those who make events.

    def tell_due(self, due: Sequence[Member]) -> None:
        """SQL has these from now on. What fails here is only late: it is found overdue."""
        reach("webhooks.before_place")
        try:
            self.schedule.place([(member, 0.0) for member in due])
            # One message is enough until a sender looks.
            if self._rung.passes(RUNG_MS):
                self._ring()
        except Exception as error:
            log.warning("%d webhooks are sent a little later: %s", len(due), error)

    def redeliver(
        self, id: str, *, owner: str | None = None, actor: Actor | None = None, reason: str = ""
    ) -> None:
        """Send one again, with its id and its body."""
        self.tell_due([self.store.redeliver(id, owner=owner, actor=actor, reason=reason)])

    def redeliver_dead(self, *, owner: str | None = None, actor: Actor | None = None) -> int:
        """Send dead letters again, as many as fit into a batch; how many."""
        members = self.store.redeliver_dead(owner=owner, actor=actor)
        self.tell_due(members)
        return len(members)

    # For those who send.

    def repair(self) -> int:
        """Look in SQL for what Redis does not know."""
        return self._picker.repair()

    def run(self, pace: Pace) -> SendResult | None:
        """Send what is due; None if that goes on in the background."""
        self._rung.open()
        return self._sender.run(pace)

    def close(self) -> None:
        self._sender.close()
        self._teller.close()
        self._names.close()

    def _pick(self, load: Capacity) -> Picked:
        picked = self._picker.pick(load)
        if picked.claimed:
            signers = {_signer(each) for each in picked.claimed}
            self._secrets |= self.store.signing_secrets(signers)
            picked = replace(picked, claimed=[self._opened(each) for each in picked.claimed])
        return picked

    def _opened(self, claimed: ClaimedDelivery) -> ClaimedDelivery:
        """The body as its receiver gets it: it rests sealed if its transaction is."""
        if SEALED not in claimed.payload:
            return claimed
        try:
            body = self._vault.opened_webhook(claimed.member[0], json.loads(claimed.payload))
        except SealError as error:
            log.error("%s cannot be opened, so it is not sent: %s", claimed.id, error)
            return replace(claimed, payload="")
        return replace(claimed, payload=encode(body))

    def _settle(self, outcomes: Sequence[DeliveryOutcome]) -> None:
        reach("webhooks.before_settle")
        settled = self._queue.settle(outcomes)
        reach("webhooks.after_settle")
        self.schedule.place(
            [
                (each.claimed.member, each.wait_s if each.state == "pending" else None)
                for each in outcomes
                if each.claimed.id in settled
            ]
        )
        for each in outcomes:
            # Only one that was told so by its endpoint: the URL of a transaction has one delivery.
            if each.status == GONE and each.claimed.endpoint_id:
                self._end_endpoint(each.claimed.endpoint_id, each)
        released = self._breaker.learn(outcomes)
        if released:
            self.schedule.place([(member, 0.0) for member in released])

    def _end_endpoint(self, endpoint_id: str, outcome: DeliveryOutcome) -> None:
        reason = f"{outcome.claimed.target} answered 410 Gone; nothing is sent there any more"
        if self.endpoints.store.disable(endpoint_id, reason, target=outcome.claimed.target):
            log.error("endpoint %s of %s: %s", endpoint_id, outcome.claimed.owner, reason)

    def _headers(self, claimed: ClaimedDelivery) -> dict[str, str]:
        body = claimed.payload.encode()
        timestamp_s = int(claimed.at.timestamp())
        keys = self._secrets.get(_signer(claimed))
        if not body or not keys:
            raise NoKeyRing("its body or its signing secret needs a key ring that is not here")
        return _common_headers() | signed_headers(claimed.id, timestamp_s, body, keys)

    # For the operator.

    def tell_alerts(self) -> None:
        """Tell the operator's URL of alerts that are new or over, without waiting for it."""
        if self._settings.alert_webhook_url:
            self._teller.start()

    def _tell_operator(self, alert: Alert, event: str) -> bool:
        about = {"kind": alert.kind, "subject": alert.subject, "summary": alert.summary}
        body = encode({"type": f"alert.{event}", "data": about}).encode()
        now_s = self._live.server_now_ms() // 1_000
        keys = self.store.signing_secrets({OPERATOR}).get(OPERATOR)
        if not keys:
            log.error("the operator is not told of %s: there is no key ring", alert.subject)
            return False
        # The same in every attempt, so that a receiver knows one that came twice.
        headers = signed_headers(f"alert_{alert.id}_{event}", now_s, body, keys)
        headers |= _common_headers()
        url = self._settings.alert_webhook_url
        request = HttpRequest(method="POST", url=url, headers=headers, content=body)
        sent = asyncio.run(self._operator_client.send(request, self._settings.webhook_timeout_s))
        if not isinstance(sent, Response):
            log.error("the operator could not be told of %s: %s", alert.subject, sent.reason)
        elif not 200 <= sent.status < 300:
            log.error("the operator's webhook answered %d", sent.status)
        else:
            return True
        return False


class OwnerClients:
    """What sends webhooks. An owner with private hosts of its own has a client of its own.

    Connections are not shared with it: one that was opened for that owner, to a host that others
    may not reach, would let them in.
    """

    def __init__(self, settings: Settings, network: Network) -> None:
        self._common = webhook_client(settings_of(settings, ""), network)
        self._own = {
            owner: webhook_client(settings_of(settings, owner), network)
            for owner in owners_named(settings)
        }

    async def send(self, owner: str, request: HttpRequest, within_s: float) -> Exchange:
        return await self._own.get(owner, self._common).send(request, within_s)

    def close(self) -> None:
        for client in (self._common, *self._own.values()):
            client.close()


def webhook_client(settings: Settings, network: Network) -> HttpClient:
    """What sends webhooks: only to where they may go, over connections that are kept a while."""
    manners = _manners(idle_max=settings.webhook_workers)
    return HttpClient(WebhookGuard(settings), manners, network)


def _manners(*, idle_max: int) -> Manners:
    body = BodyLimits(bytes_max=ANSWER_BYTES_MAX, excerpt_bytes_max=EXCERPT_BYTES_MAX)
    # Receivers know a webhook by its id, so one that a kept connection has lost is sent again.
    return Manners(connect_s=CONNECT_S, body=body, idle_max=idle_max, repeats=True)


def _signer(claimed: ClaimedDelivery) -> str:
    """Whose secrets sign it: an endpoint has its own."""
    return signer_of(claimed.endpoint_id) if claimed.endpoint_id else claimed.owner


def _common_headers() -> dict[str, str]:
    return {"content-type": "application/json", "user-agent": _user_agent()}


@cache
def _user_agent() -> str:
    return f"datp-tasks/{version('datp-tasks')}"


def _trusting(settings: Settings) -> Settings:
    """The operator's own URL may lead anywhere, but for cloud metadata."""
    host = urlsplit(settings.alert_webhook_url).hostname
    if not host:
        return settings
    return replace(settings, webhook_private_hosts=(*settings.webhook_private_hosts, host))
