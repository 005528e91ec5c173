"""Servers and houses of the acceptance ring."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from datp_tasks.local.redis_server import RedisServer
from datp_tasks.record.database import migrate
from datp_tasks.testing.servers import Servers
from tests.support.house import House

PAYMENT = """
CREATE TABLE payment (tx_id text NOT NULL, step_key text NOT NULL, slow boolean NOT NULL)
"""
TEMPLATE = "acceptance_template"

NewHouse = Callable[..., House]


@pytest.fixture(scope="session")
def acceptance_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One server; each house has a database of its own, because queues have no prefix."""
    server = RedisServer(tmp_path_factory.mktemp("acceptance") / "redis")
    server.start()
    yield server
    server.destroy()


@pytest.fixture(scope="session")
def template_url(datp_servers: Servers) -> str:
    """A migrated database to copy from; made once, also if two folders of tests need it."""
    url = _with_database(datp_servers.database_url, TEMPLATE)
    if not _is_there(url, TEMPLATE):
        _administer(url, f"CREATE DATABASE {TEMPLATE}")
        migrate(url)
        prepare_payments(url)
    return url


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture(scope="module")
def new_house(
    acceptance_redis: RedisServer,
    template_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    _numbers: Iterator[int],
) -> Iterator[NewHouse]:
    """Makes houses that last as long as the module."""
    with ExitStack() as stack:

        def make(**changes: Any) -> House:
            number = next(_numbers)
            name = f"acceptance_{secrets.token_hex(4)}"
            _administer(template_url, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
            stack.callback(_administer, template_url, f"DROP DATABASE {name} WITH (FORCE)")
            house = House(
                changes.pop("redis_url", acceptance_redis.url_of(number)),
                _with_database(template_url, name),
                tmp_path_factory.mktemp("house"),
                **changes,
            )
            stack.callback(house.close)
            return house

        yield make


@pytest.fixture
def house(new_house: NewHouse) -> Iterator[House]:
    """A house for one test; nothing runs in it yet."""
    made = new_house()
    yield made
    made.kill_processes()


def prepare_payments(database_url: str) -> None:
    """The table that steps pay into."""
    engine = create_engine(make_url(database_url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        connection.execute(text(PAYMENT))
    engine.dispose()


def _administer(url: str, statement: str) -> None:
    # Not connected to the template: nobody may be while it is copied.
    engine = create_engine(_with_database(url, "postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


def _is_there(url: str, name: str) -> bool:
    engine = create_engine(_with_database(url, "postgres"))
    with engine.connect() as connection:
        query = text("SELECT 1 FROM pg_database WHERE datname = :name")
        found = connection.execute(query, {"name": name}).first()
    engine.dispose()
    return found is not None


def _with_database(url: str, name: str) -> str:
    made = make_url(url).set(drivername="postgresql+psycopg2", database=name)
    return made.render_as_string(hide_password=False)
