"""A real PostgreSQL and a real Valkey for this folder; every test finds them empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import Engine, text

from datp_tasks.live.keys import Keys
from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.model.actor import Actor
from datp_tasks.model.pipeline import Pipeline, PipelineDefinition
from datp_tasks.pipelines.version_store import PipelineStore
from datp_tasks.record.database import make_engine, migrate
from datp_tasks.record.tables import metadata
from datp_tasks.settings import Settings
from tests.support.pipeline_store import make_store

Define = Callable[..., PipelineDefinition]


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder: Path = tmp_path_factory.mktemp("servers")
    postgres = PostgresServer(folder / "postgres", durable=False)
    redis_server = RedisServer(folder / "redis", appendfsync="no")
    try:
        postgres.start()
        redis_server.start()
        migrate(postgres.url)
        yield Settings(database_url=postgres.url, redis_url=redis_server.url)
    finally:
        postgres.destroy()
        redis_server.destroy()


@pytest.fixture(scope="session")
def session_engine(settings: Settings) -> Iterator[Engine]:
    engine = make_engine(settings)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(session_engine: Engine) -> Engine:
    tables = ", ".join(table.name for table in metadata.sorted_tables)
    with session_engine.begin() as connection:
        connection.execute(text(f"TRUNCATE {tables}"))
    return session_engine


@pytest.fixture(params=[False, True], ids=["bytes", "decoded"])
def redis(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Redis]:
    """Both kinds of client: one that answers bytes, one that answers text."""
    client = Redis.from_url(settings.redis_url, decode_responses=request.param)
    client.flushdb()
    yield client
    client.close()


@pytest.fixture
def keys() -> Keys:
    return Keys("datp")


@pytest.fixture
def pipeline_store(engine: Engine, redis: Redis, keys: Keys) -> PipelineStore:
    return make_store(engine, redis, keys, actor=Actor(name="tester"))


@pytest.fixture
def define() -> Define:
    """Makes a small definition; the description makes it another version."""

    def make(name: str = "transfer", *, description: str = "") -> PipelineDefinition:
        return (
            Pipeline(name, description=description)
            .step("bank/reserve", params={"limit": 100})
            .step("bank/settle", group="ledger")
            .build()
        )

    return make
