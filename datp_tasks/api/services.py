"""What the routes of one API process share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastapi import Request

from datp_tasks.api.accepting import Accepted
from datp_tasks.api.access import Caller, Gate
from datp_tasks.api.batcher import Batcher
from datp_tasks.api.event_streams import EventStreams
from datp_tasks.api.limits import RequestLimits
from datp_tasks.api.problems import not_found
from datp_tasks.api.process_metrics import Meter
from datp_tasks.api.recent import Recent
from datp_tasks.api.shares import Shares
from datp_tasks.api.threads import Threads
from datp_tasks.api.waiting import Waiters
from datp_tasks.bells.group_queues import GroupQueues
from datp_tasks.client.client import Client
from datp_tasks.client.requests import Request as Wanted
from datp_tasks.ledger.ledger_service import Ledger
from datp_tasks.live.metrics import Metrics
from datp_tasks.live.nodes import Node
from datp_tasks.live.store import LiveStore
from datp_tasks.operator.operator import Operator
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.pipelines.mapping_store import MappingStore
from datp_tasks.pipelines.version_store import PipelineStore
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.api_keys import ApiKeys
from datp_tasks.record.events import EventStore
from datp_tasks.record.groups import GroupStore
from datp_tasks.record.idempotency_keys import IdempotencyKeys
from datp_tasks.record.listing import Listing
from datp_tasks.record.record_types import Summary
from datp_tasks.record.saved_views import SavedViews
from datp_tasks.record.sealed_secrets import SealedSecrets
from datp_tasks.record.search import Search
from datp_tasks.record.states import States
from datp_tasks.record.timeouts import Timeouts
from datp_tasks.record.transactions import Record
from datp_tasks.record.vault import Vault
from datp_tasks.settings import Settings
from datp_tasks.webhooks.webhook_service import WebhookService

log = logging.getLogger("datp.api")


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What a request passes before its route: its key, its owner's rate and its share of memory."""

    gate: Gate
    limits: RequestLimits
    #: Bytes of bodies that are being read or worked on, and requests, by owner.
    body_bytes: Shares
    requests: Shares
    #: For keys, limits and health only: these never wait for a slow query.
    threads: Threads
    close: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class SharedTrips:
    """Requests that arrive together, and share a statement or a round trip."""

    accepts: Batcher[Wanted, Accepted]
    looks: Batcher[str, Summary | None]
    seen: Batcher[Summary, None]


@dataclass(frozen=True, kw_only=True)
class OpenRequests:
    """Requests that stay open until there is news."""

    polls: Waiters
    streams: EventStreams

    async def close(self) -> None:
        await self.polls.close()
        await self.streams.close()


@dataclass(frozen=True, kw_only=True)
class TransactionStores:
    """What PostgreSQL keeps of transactions."""

    record: Record
    states: States
    listing: Listing
    search: Search
    events: EventStore
    timeouts: Timeouts
    vault: Vault


@dataclass(frozen=True, kw_only=True)
class Callers:
    """What PostgreSQL keeps of those who call, and the secrets that they give to pipelines."""

    keys: ApiKeys
    idempotency: IdempotencyKeys
    saved_views: SavedViews
    secrets: SealedSecrets


@dataclass(frozen=True, kw_only=True)
class HealthParts:
    """How the installation and this process are."""

    alerts: Alerts
    metrics: Metrics
    meter: Meter
    #: Whether PostgreSQL and Redis answer.
    servers: Recent[tuple[bool, bool]]
    #: What Prometheus reads.
    scraped: Recent[bytes]


@dataclass(frozen=True, kw_only=True)
class NodeGroups:
    """What operators decided about node groups, their live workers, and their queues."""

    store: GroupStore
    nodes: Callable[[], list[Node]]
    queues: GroupQueues


@dataclass(frozen=True, kw_only=True)
class Services:
    """Each room that routes ask, and the parts of this process by topic."""

    settings: Settings
    client: Client
    operator: Operator
    webhooks: WebhookService
    ledger: Ledger
    pipelines: PipelineStore
    mappings: MappingStore
    catalogue: Catalogue
    live: LiveStore
    transactions: TransactionStores
    callers: Callers
    node_groups: NodeGroups
    health: HealthParts
    admission: Admission
    shared: SharedTrips
    waits: OpenRequests
    threads: Threads

    async def close(self) -> None:
        await self.waits.close()
        await self.threads.run(self.client.close)
        self.threads.close()
        self.admission.threads.close()
        self.node_groups.queues.close()
        self.admission.close()

    def end_waits(self) -> None:
        """The process ends: those who wait get what there is, and streams end."""
        self.waits.polls.answer_all()
        self.waits.streams.end_all()

    async def note_seen(self, summary: Summary) -> None:
        """Its client knows what it shows; if that cannot be written down, the webhook tells."""
        try:
            await self.shared.seen.do(summary)
        except Exception as error:
            log.warning("that %s was seen is not written down: %s", summary.tx_id, error)

    async def look(self, caller: Caller, tx_id: str) -> Summary:
        """A transaction that the caller may see, or a problem that tells nothing else."""
        found = await self.shared.looks.do(tx_id)
        if found is None or not caller.may_see(found.owner):
            raise not_found("such transaction")
        return found

    async def shown(self, caller: Caller, summary: Summary) -> Summary:
        """With what is sealed opened for its owner, and masked for everyone else."""
        if summary.is_sealed and caller.owner == summary.owner:
            return await self.threads.run(self.transactions.vault.opened, summary)
        return summary.masked()

    async def shown_many(self, caller: Caller, found: Sequence[Summary]) -> list[Summary]:
        return [await self.shown(caller, each) for each in found]


def services_of(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def caller_of(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


def mark_seen(events: EventStore, shown: Sequence[Summary]) -> Sequence[None]:
    """Their clients know these events now."""
    for each in shown:
        events.mark_notified(each.tx_id, each.sequence, each.cancel_webhook_on_poll)
    return [None] * len(shown)
