"""The actors of Dramatiq's side: pipelines of three, of which no record is kept.

Acknowledged when done, results in no backend; only what pipelines need of its middleware. The last
actor of a pipeline tells that it has ended by one RPUSH.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import dramatiq  # type: ignore[import-not-found]
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]
from dramatiq.middleware import Pipelines, Retries  # type: ignore[import-not-found]
from redis import Redis
from sqlalchemy import Engine, create_engine

from benchmarks import books
from benchmarks.peers.orders import BROKER, DATABASE

DONE = "bench:pipelines-done"

broker = RedisBroker(url=os.environ[BROKER], middleware=[Retries(), Pipelines()])
dramatiq.set_broker(broker)

Pair = tuple[str, dict[str, Any]]


@cache
def redis() -> Redis:
    return Redis.from_url(os.environ[BROKER])


@cache
def engine() -> Engine:
    return create_engine(os.environ[DATABASE])


@dramatiq.actor  # type: ignore[untyped-decorator]
def pass_on(data: dict[str, Any]) -> dict[str, Any]:
    return data


@dramatiq.actor  # type: ignore[untyped-decorator]
def last(data: dict[str, Any]) -> None:
    redis().rpush(DONE, "1")


@dramatiq.actor  # type: ignore[untyped-decorator]
def validate(given: Pair) -> Pair:
    books.validate(given[1])
    return given


@dramatiq.actor  # type: ignore[untyped-decorator]
def reserve(given: Pair) -> Pair:
    tx_id, data = given
    with engine().begin() as connection:
        books.reserve(connection, tx_id, data)
    return tx_id, {**data, "reserved": True}


@dramatiq.actor  # type: ignore[untyped-decorator]
def commit(given: Pair) -> None:
    tx_id, data = given
    with engine().begin() as connection:
        books.commit(connection, tx_id, data)
    redis().rpush(DONE, "1")
