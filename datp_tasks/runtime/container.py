"""What every process of the system holds: its connections and the stores built on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery import Celery
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import Engine

from datp_tasks.bells.broker import CelerySend, make_celery
from datp_tasks.bells.costs import CostBook
from datp_tasks.bells.ringer import Ringer, Send
from datp_tasks.clock import Clock, ServerClock
from datp_tasks.ledger.bell import CeleryRing
from datp_tasks.ledger.service import Ledger
from datp_tasks.ledger.types import Ring
from datp_tasks.live.cluster import Cluster
from datp_tasks.live.cluster_redis import ClusterRedis
from datp_tasks.live.doorbells import Doorbells
from datp_tasks.live.store import LiveStore
from datp_tasks.observe.tracing import TracedRecord, Tracing, make_tracing
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.pipelines.store import PipelineStore
from datp_tasks.record.database import make_engine
from datp_tasks.record.groups import GroupStore
from datp_tasks.record.transactions import Record
from datp_tasks.settings import Settings
from datp_tasks.transactions.restore import Restorer
from datp_tasks.transactions.tell_waiting import tell_waiting
from datp_tasks.webhooks.bell import CeleryRing as WebhookRing
from datp_tasks.webhooks.service import WebhookService


def make_redis(settings: Settings) -> Redis:
    """No retries of our own: a script that was sent twice would be counted twice."""
    options: dict[str, Any] = {
        "decode_responses": True,
        "socket_timeout": settings.redis_timeout_s,
        "socket_connect_timeout": settings.redis_timeout_s,
        "socket_keepalive": True,
        "health_check_interval": 15,
        "retry": Retry(NoBackoff(), 0),
    }
    if settings.redis_cluster == "on":
        return ClusterRedis(Cluster(settings.redis_url, **options))
    redis: Redis = Redis.from_url(settings.redis_url, **options)
    return redis


@dataclass(frozen=True, kw_only=True)
class Container:
    settings: Settings
    clock: Clock
    redis: Redis
    engine: Engine
    live: LiveStore
    record: Record
    costs: CostBook
    ringer: Ringer
    pipelines: PipelineStore
    catalogue: Catalogue
    ledger: Ledger
    restorer: Restorer
    groups: GroupStore
    webhooks: WebhookService
    #: None: nothing is traced.
    tracing: Tracing | None

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        clock: Clock | None = None,
        celery: Celery | None = None,
        send: Send | None = None,
        ring_ledger: Ring | None = None,
        ring_webhooks: Callable[[], None] | None = None,
        tracing: Tracing | None = None,
    ) -> Container:
        """Nothing is connected before it is used."""
        clock = clock or ServerClock()
        celery = celery or make_celery(settings)
        redis = make_redis(settings)
        engine = make_engine(settings)
        live = LiveStore(redis, settings, clock)
        costs = CostBook(
            redis, live.keys.outside("stepCostH"), live.keys.outside("stepTimesH"), settings
        )
        pipelines = PipelineStore(engine, redis, live.keys)
        doorbells = Doorbells(live) if send is None else None
        ringer = Ringer(send or CelerySend(celery), costs, doorbells)
        tracing = tracing or make_tracing(settings)
        record = TracedRecord(engine, clock, tracing) if tracing else Record(engine, clock)
        webhooks = WebhookService(
            settings,
            engine,
            live,
            clock,
            ring=ring_webhooks or WebhookRing(celery, settings.maintenance_group),
        )
        record.tell_due = webhooks.tell_due
        catalogue = Catalogue(redis, pipelines, settings.pipeline_reload_s)
        restorer = Restorer(
            settings=settings,
            clock=clock,
            engine=engine,
            live=live,
            record=record,
            catalogue=catalogue,
            ringer=ringer,
        )
        return cls(
            settings=settings,
            clock=clock,
            redis=redis,
            engine=engine,
            live=live,
            record=record,
            costs=costs,
            ringer=ringer,
            pipelines=pipelines,
            catalogue=catalogue,
            restorer=restorer,
            ledger=Ledger.open(
                settings,
                engine,
                clock,
                ring=ring_ledger or CeleryRing(celery, settings.ledger_group),
                tell=partial(tell_waiting, live, ringer, restorer),
            ),
            groups=GroupStore(engine, redis, live.keys, clock),
            webhooks=webhooks,
            tracing=tracing,
        )

    def close(self) -> None:
        self.webhooks.close()
        self.ledger.close()
        self.costs.publish()
        self.redis.close()
        self.engine.dispose()
