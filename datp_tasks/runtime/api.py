"""The HTTP API of one process: its services, made of a container, and the application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fastapi import FastAPI

from datp_tasks.api import waiting
from datp_tasks.api.accepting import accept
from datp_tasks.api.access import Gate
from datp_tasks.api.application import create_app
from datp_tasks.api.batcher import Batcher
from datp_tasks.api.event_streams import EventStreams
from datp_tasks.api.health import look_at_servers
from datp_tasks.api.limits import RequestLimits
from datp_tasks.api.process_metrics import Meter
from datp_tasks.api.recent import Recent
from datp_tasks.api.series import scrape
from datp_tasks.api.services import (
    Admission,
    Callers,
    HealthParts,
    NodeGroups,
    OpenRequests,
    Services,
    SharedTrips,
    TransactionStores,
    mark_seen,
)
from datp_tasks.api.shares import Shares
from datp_tasks.api.threads import Threads
from datp_tasks.api.waiting import Waiters
from datp_tasks.bells.broker import make_celery
from datp_tasks.bells.group_queues import GroupQueues
from datp_tasks.client import submit
from datp_tasks.live.metrics import Metrics
from datp_tasks.live.nodes import Node, NodeRegister
from datp_tasks.live.notifications import Notifications
from datp_tasks.live.rates import Rates
from datp_tasks.observe import logs
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.api_keys import ApiKeys
from datp_tasks.record.database import Engine, make_engine
from datp_tasks.record.event_feed import EventFeed
from datp_tasks.record.events import EventStore
from datp_tasks.record.idempotency_keys import IdempotencyKeys
from datp_tasks.record.listing import Listing
from datp_tasks.record.saved_views import SavedViews
from datp_tasks.record.search import Search
from datp_tasks.record.states import States
from datp_tasks.record.timeouts import Timeouts
from datp_tasks.runtime.clients import make_client, make_operator
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings

#: A second lane for accepts would only make the batches smaller.
ACCEPT_LANES = 1
LOOK_LANES = 2
#: Requests that wait for their commit in one process: a few seconds of them, then 503.
ACCEPT_QUEUE_MAX = 10_000
#: More threads than this only wait for the interpreter's lock.
THREADS_MAX = 6
#: Threads and connections to PostgreSQL for keys, limits and health, and the time for a statement.
GATE_THREADS = 4
GATE_STATEMENT_S = 5.0


def from_environment() -> FastAPI:
    """For uvicorn, which makes one per process."""
    settings = Settings.from_env()
    logs.set_up_api(settings)
    return create_app(lambda: open_services(Container.open(settings)), settings)


def open_services(container: Container) -> Services:
    """Within the event loop; nothing is connected yet. Closing them closes the container."""
    settings, engine = container.settings, container.engine
    threads, admission_threads = Threads(THREADS_MAX), Threads(GATE_THREADS)
    gate_engine = _gate_engine(settings)
    client = make_client(container, opens=False)
    stores = _transaction_stores(container)
    callers = _callers(container, gate_engine)
    notifications = Notifications(container.redis, container.live.keys.notify)
    polls = Waiters(notifications, stores.listing.sequences, threads)
    queues = {"batch_max": submit.BATCH_MAX, "waiting_max": ACCEPT_QUEUE_MAX}
    return Services(
        settings=settings,
        client=client,
        operator=make_operator(container),
        webhooks=container.webhooks,
        ledger=container.ledger,
        pipelines=container.pipelines,
        catalogue=container.catalogue,
        live=container.live,
        transactions=stores,
        callers=callers,
        node_groups=NodeGroups(
            store=container.groups,
            nodes=_nodes(container),
            queues=GroupQueues(make_celery(settings)),
        ),
        health=_health(
            container,
            Meter(lambda: len(polls)),
            Recent(partial(look_at_servers, gate_engine, container.live), admission_threads),
            threads,
        ),
        admission=_admission(container, callers.keys, admission_threads, gate_engine.dispose),
        shared=SharedTrips(
            accepts=Batcher(partial(accept, client), threads, lanes=ACCEPT_LANES, **queues),
            looks=Batcher(client.status_many, threads, lanes=LOOK_LANES, **queues),
            seen=Batcher(partial(mark_seen, stores.events), threads, **queues),
        ),
        waits=OpenRequests(polls=polls, streams=EventStreams(EventFeed(engine), threads)),
        threads=threads,
    )


def _gate_engine(settings: Settings) -> Engine:
    return make_engine(
        replace(
            settings,
            # As many may be opened beyond the pool as are in it.
            sql_pool_size=GATE_THREADS // 2,
            sql_statement_timeout_s=min(GATE_STATEMENT_S, settings.sql_statement_timeout_s),
        )
    )


def _transaction_stores(container: Container) -> TransactionStores:
    engine, clock = container.engine, container.clock
    return TransactionStores(
        record=container.record,
        states=States(engine, clock),
        listing=Listing(engine),
        search=Search(engine),
        events=EventStore(engine, clock),
        timeouts=Timeouts(engine, clock),
        vault=container.seals.vault,
    )


def _callers(container: Container, gate_engine: Engine) -> Callers:
    settings, engine, clock = container.settings, container.engine, container.clock
    return Callers(
        keys=ApiKeys(gate_engine, clock, settings.key_pepper, settings.key_pepper_previous),
        idempotency=IdempotencyKeys(engine, clock),
        saved_views=SavedViews(engine),
        secrets=container.seals.secrets,
    )


def _health(
    container: Container, meter: Meter, servers: Recent[tuple[bool, bool]], threads: Threads
) -> HealthParts:
    metrics = Metrics(container.redis, container.live.keys)
    alerts = Alerts(container.engine, container.clock)
    return HealthParts(
        alerts=alerts,
        metrics=metrics,
        meter=meter,
        servers=servers,
        scraped=Recent(partial(scrape, metrics, alerts, meter), threads, keep_s=0),
    )


def _admission(
    container: Container, keys: ApiKeys, threads: Threads, close: Callable[[], None]
) -> Admission:
    settings = container.settings
    rates = Rates(container.redis, container.live.keys, container.clock)
    requests_max = ACCEPT_QUEUE_MAX + waiting.WAITERS_MAX
    return Admission(
        gate=Gate(keys, settings, threads),
        limits=RequestLimits(keys, rates, settings, threads),
        body_bytes=Shares(settings.bodies_bytes_max, what="bytes of bodies"),
        requests=Shares(requests_max, what="requests at a time"),
        threads=threads,
        close=close,
    )


def _nodes(container: Container) -> Callable[[], list[Node]]:
    settings = container.settings
    stale_ms, grace_ms = settings.node_stale_ms, settings.node_grace_ms
    return NodeRegister(container.live, stale_ms=stale_ms, grace_ms=grace_ms).nodes
