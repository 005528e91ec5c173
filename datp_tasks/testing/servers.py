"""Real servers for tests: yours if the environment names them, else embedded ones.

`DATP_TEST_REDIS_URL` and `DATP_TEST_DATABASE_URL` name existing servers. On those the tests use
keys with a prefix of their own and a database of their own, and remove both afterwards. With
`DATP_TEST_REDIS_CLUSTER=1` the state is kept in an embedded Redis Cluster of three masters.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from redis import Redis
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url

from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.redis_cluster import RedisCluster
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.record.database import migrate
from datp_tasks.record.tables import metadata
from datp_tasks.seals.keyring import new_ring


@dataclass(frozen=True, slots=True)
class Servers:
    redis_url: str
    database_url: str
    #: Starts every key that the tests make.
    prefix: str
    #: Whether the Redis URL names a server of a Redis Cluster.
    redis_cluster: bool = False
    #: A key ring of their own.
    keyring: str = field(default_factory=lambda: new_ring().to_json(), repr=False)

    def places(self) -> dict[str, Any]:
        """The settings that say where things are."""
        found: dict[str, Any] = {
            "redis_url": self.redis_url,
            "database_url": self.database_url,
            "keyring": self.keyring,
        }
        if self.redis_cluster:
            # Who needs a broker must bring one: a cluster is none.
            found |= {"redis_cluster": "on", "broker_url": "memory://"}
        return found

    def empty_tables(self) -> None:
        """Leave no row behind. Only tables that were written to cost anything.

        Deleting a few rows takes a tenth of the time of TRUNCATE, which makes new files for a
        table and each of its indexes; what has grown or was analysed starts from nothing.
        """
        with _keeper(_psycopg2(self.database_url)).begin() as connection:
            names = [each for each in metadata.tables if each not in MIGRATED]
            written = connection.execute(WRITTEN, {"names": names}).all()
            grown = {row.relname for row in written if row.is_grown}
            if grown:
                connection.execute(text(f"TRUNCATE {', '.join(_with_references(grown))}"))
            few = {row.relname for row in written} - grown
            # Those that refer to others first.
            for table in reversed(metadata.sorted_tables):
                if table.name in few:
                    connection.execute(table.delete())


#: Rows that a migration made, for as long as there is a database.
MIGRATED = {"feed_key"}

#: A file that holds nothing was not written to since the last TRUNCATE.
WRITTEN = text(
    "SELECT relname, pg_table_size(oid) > 131072 OR reltuples > 0 AS is_grown FROM pg_class"
    " WHERE relkind = 'r' AND relname = ANY(:names) AND pg_table_is_visible(oid)"
    " AND pg_relation_size(oid) > 0"
)


@cache
def _keeper(url: str) -> Engine:
    """One connection for all tests: a new one reads the catalogue of all tables anew."""
    return create_engine(url, pool_size=1, pool_pre_ping=True)


def _with_references(names: set[str]) -> set[str]:
    """And the tables that refer to them: TRUNCATE demands that they are named, too."""
    found = set(names)
    for table in metadata.sorted_tables:
        if {key.column.table.name for key in table.foreign_keys} & found:
            found.add(table.name)
    return found


@contextmanager
def test_servers(folder: Path) -> Iterator[Servers]:
    with ExitStack() as stack:
        prefix = f"test{secrets.token_hex(4)}"
        clustered = os.environ.get("DATP_TEST_REDIS_CLUSTER") == "1"
        redis = redis_cluster(folder / "cluster") if clustered else _redis(folder, prefix)
        redis_url = stack.enter_context(redis)
        database_url = stack.enter_context(_database(folder))
        migrate(database_url)
        stack.callback(_keeper(_psycopg2(database_url)).dispose)
        yield Servers(redis_url, database_url, prefix, clustered)


@contextmanager
def redis_cluster(folder: Path) -> Iterator[str]:
    """A Redis Cluster of three masters, for as long as this lasts."""
    cluster = RedisCluster(folder, appendfsync="no")
    try:
        cluster.start()
        yield cluster.url
    finally:
        cluster.destroy()


@contextmanager
def _redis(folder: Path, prefix: str) -> Iterator[str]:
    given = os.environ.get("DATP_TEST_REDIS_URL")
    if given:
        yield given
        with Redis.from_url(given) as client:
            for key in client.scan_iter(match=f"{prefix}*", count=1_000):
                client.delete(key)
        return
    server = RedisServer(folder / "redis", appendfsync="no")
    server.start()
    try:
        yield server.url
    finally:
        server.destroy()


@contextmanager
def _database(folder: Path) -> Iterator[str]:
    given = os.environ.get("DATP_TEST_DATABASE_URL")
    if given:
        with _own_database(given) as url:
            yield url
        return
    server = PostgresServer(folder / "postgres", durable=False)
    server.start()
    try:
        yield server.url
    finally:
        server.destroy()


@contextmanager
def _own_database(given: str) -> Iterator[str]:
    name = f"datp_test_{secrets.token_hex(4)}"
    engine = create_engine(_psycopg2(given), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield make_url(given).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        engine.dispose()


def _psycopg2(url: str) -> str:
    return make_url(url).set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)
