"""The HTTP API of one process: its services, made of a container, and the application."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI

from datp_tasks.api.accepting import accept
from datp_tasks.api.access import Gate
from datp_tasks.api.app import create_app
from datp_tasks.api.batcher import Batcher
from datp_tasks.api.limits import Limits
from datp_tasks.api.metrics import Meter
from datp_tasks.api.services import Services, mark_seen
from datp_tasks.api.threads import Threads
from datp_tasks.api.waiting import Waiters
from datp_tasks.live.metrics import Metrics
from datp_tasks.live.notifications import Notifications
from datp_tasks.live.rates import Rates
from datp_tasks.observe import logs
from datp_tasks.pipelines.store import PipelineStore
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.api_keys import ApiKeys
from datp_tasks.record.events import Events
from datp_tasks.record.listing import Listing
from datp_tasks.record.states import States
from datp_tasks.runtime.clients import make_client, make_operator
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings

#: A second lane for accepts would only make the batches smaller.
ACCEPT_LANES = 1
LOOK_LANES = 2


def from_environment() -> FastAPI:
    """For uvicorn, which makes one per process."""
    settings = Settings.from_env()
    logs.set_up_api(settings)
    return create_app(lambda: open_services(Container.open(settings)), settings)


def open_services(container: Container) -> Services:
    """Within the event loop; nothing is connected yet. Closing them closes the container."""
    settings, engine, clock = container.settings, container.engine, container.clock
    live, redis = container.live, container.redis
    threads = Threads(settings.api_threads_max)
    client = make_client(container, opens=False)
    keys = ApiKeys(engine, clock, settings.key_pepper, settings.key_pepper_previous)
    listing = Listing(engine)
    events = Events(engine, clock)
    notifications = Notifications(redis, live.keys.notify)
    waiters = Waiters(notifications, listing.sequences, settings, threads)
    queues = {"batch_max": settings.submit_batch_max, "waiting_max": settings.accept_queue_max}
    return Services(
        settings=settings,
        client=client,
        operator=make_operator(container),
        live=live,
        record=container.record,
        states=States(engine, clock),
        alerts=Alerts(engine, clock),
        metrics=Metrics(redis, live.keys),
        pipelines=container.pipelines,
        pipelines_as=partial(_pipelines_as, container),
        webhooks=container.webhooks,
        vault=container.vault,
        keys=keys,
        threads=threads,
        gate=Gate(keys, settings, threads),
        limits=Limits(keys, Rates(redis, live.keys, clock), settings, threads),
        accepts=Batcher(partial(accept, client), threads, lanes=ACCEPT_LANES, **queues),
        looks=Batcher(client.status_many, threads, lanes=LOOK_LANES, **queues),
        seen=Batcher(partial(mark_seen, events), threads, **queues),
        waiters=waiters,
        listing=listing,
        events=events,
        meter=Meter(lambda: len(waiters)),
    )


def _pipelines_as(container: Container, actor: str) -> PipelineStore:
    return PipelineStore(
        container.engine,
        container.redis,
        container.live.keys,
        steps_max=container.settings.pipeline_steps_max,
        actor=actor,
    )
