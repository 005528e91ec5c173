"""What every process of the system holds: its connections and the stores built on them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from celery import Celery
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from sqlalchemy import Engine

from datp_tasks.archive.engine import make_engine
from datp_tasks.archive.record import Record
from datp_tasks.bells.broker import CelerySend, make_celery
from datp_tasks.bells.costs import CostBook
from datp_tasks.bells.ringer import Ringer, Send
from datp_tasks.clock import Clock, ServerClock
from datp_tasks.ledger.bell import CeleryRing
from datp_tasks.ledger.desk import Ledger
from datp_tasks.ledger.words import Finished, Ring
from datp_tasks.live.store import LiveStore
from datp_tasks.live.words import Bell
from datp_tasks.model.switch import switch_json
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.pipelines.store import PipelineStore
from datp_tasks.settings import Settings

log = logging.getLogger("datp.ledger")


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
    ledger: Ledger

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        clock: Clock | None = None,
        celery: Celery | None = None,
        send: Send | None = None,
        ring_ledger: Ring | None = None,
    ) -> Connections:
        """Nothing is connected before it is used."""
        clock = clock or ServerClock()
        celery = celery or make_celery(settings)
        redis = make_redis(settings)
        engine = make_engine(settings)
        live = LiveStore(redis, settings, clock)
        costs = CostBook(redis, live.keys.outside("stepCostH"), settings)
        pipelines = PipelineStore(engine, redis, live.keys)
        ringer = Ringer(send or CelerySend(celery), costs)
        return cls(
            settings=settings,
            clock=clock,
            redis=redis,
            engine=engine,
            live=live,
            record=Record(engine, clock),
            costs=costs,
            ringer=ringer,
            pipelines=pipelines,
            catalogue=Catalogue(redis, pipelines, settings.pipeline_reload_s),
            ledger=Ledger.open(
                settings,
                engine,
                clock,
                ring=ring_ledger or CeleryRing(celery, settings.ledger_group),
                tell=partial(_wake_waiting, live, ringer),
            ),
        )

    def close(self) -> None:
        self.ledger.close()
        self.costs.publish()
        self.redis.close()
        self.engine.dispose()


def _wake_waiting(live: LiveStore, ringer: Ringer, final: Sequence[Finished]) -> None:
    """Set the switches of transactions that wait for batches. One that is missed wakes by time."""
    for batch in final:
        if batch.tx_id and batch.switch:
            try:
                value = switch_json(batch.switch, str(batch.state))
                answer = live.set_switch(batch.tx_id, batch.switch, value)
            except RedisError as error:
                log.warning("%s is not told of its batch: %s", batch.tx_id, error)
            else:
                ringer.ring([answer if isinstance(answer, Bell) else None])
