"""The HTTP API of one process: its services, made of a container, and the application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fastapi import FastAPI

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
from datp_tasks.live.metrics import Metrics
from datp_tasks.live.nodes import Node, NodeRegister
from datp_tasks.live.notifications import Notifications
from datp_tasks.live.rates import Rates
from datp_tasks.observe import logs
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.api_keys import ApiKeys
from datp_tasks.record.database import make_engine
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
    settings, engine, clock = container.settings, container.engine, container.clock
    live, redis = container.live, container.redis
    threads, gate_threads = Threads(settings.api_threads_max), Threads(GATE_THREADS)
    gate_engine = make_engine(
        replace(
            settings,
            # As many may be opened beyond the pool as are in it.
            sql_pool_size=GATE_THREADS // 2,
            sql_statement_timeout_s=min(GATE_STATEMENT_S, settings.sql_statement_timeout_s),
        )
    )
    client = make_client(container, opens=False)
    keys = ApiKeys(gate_engine, clock, settings.key_pepper, settings.key_pepper_previous)
    listing = Listing(engine)
    events = EventStore(engine, clock)
    notifications = Notifications(redis, live.keys.notify)
    polls = Waiters(notifications, listing.sequences, settings, threads)
    metrics, alerts = Metrics(redis, live.keys), Alerts(engine, clock)
    meter = Meter(lambda: len(polls))
    requests_max = ACCEPT_QUEUE_MAX + settings.long_poll_waiters_max
    queues = {"batch_max": settings.submit_batch_max, "waiting_max": ACCEPT_QUEUE_MAX}
    return Services(
        settings=settings,
        client=client,
        operator=make_operator(container),
        webhooks=container.webhooks,
        ledger=container.ledger,
        pipelines=container.pipelines,
        catalogue=container.catalogue,
        live=live,
        transactions=TransactionStores(
            record=container.record,
            states=States(engine, clock),
            listing=listing,
            search=Search(engine),
            events=events,
            timeouts=Timeouts(engine, clock),
            vault=container.vault,
        ),
        callers=Callers(
            keys=keys,
            idempotency=IdempotencyKeys(engine, clock),
            saved_views=SavedViews(engine),
        ),
        node_groups=NodeGroups(
            store=container.groups,
            nodes=_nodes(container),
            queues=GroupQueues(make_celery(settings)),
        ),
        health=HealthParts(
            alerts=alerts,
            metrics=metrics,
            meter=meter,
            servers=Recent(partial(look_at_servers, gate_engine, live), gate_threads),
            scraped=Recent(partial(scrape, metrics, alerts, meter), threads, keep_s=0),
        ),
        admission=Admission(
            gate=Gate(keys, settings, gate_threads),
            limits=RequestLimits(keys, Rates(redis, live.keys, clock), settings, gate_threads),
            body_bytes=Shares(settings.bodies_bytes_max, what="bytes of bodies"),
            requests=Shares(requests_max, what="requests at a time"),
            threads=gate_threads,
            close=gate_engine.dispose,
        ),
        shared=SharedTrips(
            accepts=Batcher(partial(accept, client), threads, lanes=ACCEPT_LANES, **queues),
            looks=Batcher(client.status_many, threads, lanes=LOOK_LANES, **queues),
            seen=Batcher(partial(mark_seen, events), threads, **queues),
        ),
        waits=OpenRequests(polls=polls, streams=EventStreams(EventFeed(engine), settings, threads)),
        threads=threads,
    )


def _nodes(container: Container) -> Callable[[], list[Node]]:
    settings = container.settings
    stale_ms, grace_ms = settings.node_stale_ms, settings.node_grace_ms
    return NodeRegister(container.live, stale_ms=stale_ms, grace_ms=grace_ms).nodes
