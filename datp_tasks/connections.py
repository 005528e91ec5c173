"""What every process of the system holds: its connections and the stores built on them."""

from __future__ import annotations

from dataclasses import dataclass

from celery import Celery
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import Engine

from datp_tasks.archive.engine import make_engine
from datp_tasks.archive.record import Record
from datp_tasks.bells.broker import CelerySend, make_celery
from datp_tasks.bells.costs import CostBook
from datp_tasks.bells.ringer import Ringer, Send
from datp_tasks.clock import Clock, ServerClock
from datp_tasks.live.store import LiveStore
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.pipelines.store import PipelineStore
from datp_tasks.settings import Settings


def make_redis(settings: Settings) -> Redis:
    """No retries of our own: a script that was sent twice would be counted twice."""
    redis: Redis = Redis.from_url(
        settings.redis_url,
        decode_responses=True,
        socket_timeout=settings.redis_timeout_s,
        socket_connect_timeout=settings.redis_timeout_s,
        socket_keepalive=True,
        health_check_interval=15,
        retry=Retry(NoBackoff(), 0),
    )
    return redis


@dataclass(frozen=True, kw_only=True)
class Connections:
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

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        clock: Clock | None = None,
        celery: Celery | None = None,
        send: Send | None = None,
    ) -> Connections:
        """Nothing is connected before it is used."""
        clock = clock or ServerClock()
        redis = make_redis(settings)
        engine = make_engine(settings)
        live = LiveStore(redis, settings, clock)
        costs = CostBook(redis, live.keys.outside("stepCostH"), settings)
        pipelines = PipelineStore(engine, redis, live.keys)
        return cls(
            settings=settings,
            clock=clock,
            redis=redis,
            engine=engine,
            live=live,
            record=Record(engine, clock),
            costs=costs,
            ringer=Ringer(send or CelerySend(celery or make_celery(settings)), costs),
            pipelines=pipelines,
            catalogue=Catalogue(redis, pipelines, settings.pipeline_reload_s),
        )

    def close(self) -> None:
        self.costs.publish()
        self.redis.close()
        self.engine.dispose()
