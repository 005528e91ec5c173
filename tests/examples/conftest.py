"""A PostgreSQL for the tests of the examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from datp_tasks.local.postgres import PostgresServer


@pytest.fixture(scope="session")
def payments_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = PostgresServer(Path(tmp_path_factory.mktemp("payments-pg")), durable=False)
    server.start()
    yield server.url
    server.destroy()


@pytest.fixture
def payments_engine(payments_database: str) -> Iterator[Engine]:
    """Each test finds no books, whatever the one before left."""
    engine = create_engine(payments_database, pool_size=16, max_overflow=16)
    yield engine
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA IF EXISTS payments CASCADE"))
    engine.dispose()
