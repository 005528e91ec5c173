"""The migrations make exactly the tables of `record/tables.py`, and can be run by many at once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from time import sleep
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.pool import NullPool, QueuePool

from datp_tasks import app as worker_app
from datp_tasks.api import server
from datp_tasks.bells.broker import make_celery
from datp_tasks.cli import _of_a_server as sentence_of
from datp_tasks.cli import api
from datp_tasks.cli.command_context import Context
from datp_tasks.errors import SettingsError
from datp_tasks.local.ports import HOST
from datp_tasks.local.postgres import PostgresServer
from datp_tasks.record.column_types import Xid8
from datp_tasks.record.database import MIGRATIONS, migrate
from datp_tasks.record.tables import EARLY, FILLFACTOR, VACUUMED_EARLY, metadata
from datp_tasks.runtime.main_process import MainProcess, WorkerInfo
from datp_tasks.settings import Settings

database_numbers = count(1)


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = PostgresServer(tmp_path_factory.mktemp("servers") / "postgres", durable=False)
    try:
        server.start()
        yield server.url
    finally:
        server.destroy()


@pytest.fixture
def new_database(server_url: str) -> str:
    """The URL of a database that is empty."""
    name = f"empty_{next(database_numbers)}"
    server = create_engine(server_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    return make_url(server_url).set(database=name).render_as_string(hide_password=False)


def engine_of(url: str) -> Engine:
    return create_engine(url, poolclass=NullPool)


def alembic_config(url: str) -> Config:
    config = Config()
    folder = next(path for path in MIGRATIONS if (path / "env.py").exists())
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    config.attributes["database_url"] = url
    return config


def rows(url: str, query: str) -> list[Any]:
    with engine_of(url).connect() as connection:
        return sorted(tuple(row) for row in connection.execute(text(query)))


def columns(url: str) -> list[Any]:
    return rows(
        url,
        "SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity,"
        " identity_generation FROM information_schema.columns"
        " WHERE table_schema = 'public' AND table_name <> 'alembic_version'",
    )


def constraints(url: str) -> list[Any]:
    """Names given by us; the rules of a CHECK compared as sets of their words."""
    found = rows(
        url,
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace AND contype <> 'n'"
        " AND conrelid IS DISTINCT FROM to_regclass('alembic_version')",
    )
    return [(table, name, sorted(re.findall(r"[\w-]+", rule))) for table, name, rule in found]


def indexes(url: str) -> list[Any]:
    return rows(
        url,
        "SELECT indexname, indexdef FROM pg_indexes"
        " WHERE schemaname = 'public' AND tablename <> 'alembic_version'",
    )


def tables(url: str) -> list[str]:
    query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    return [name for (name,) in rows(url, query)]


def test_an_upgraded_database_has_exactly_the_declared_tables(
    new_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SQLAlchemy does not know this type of PostgreSQL when it reads a database.
    monkeypatch.setitem(ischema_names, "xid8", Xid8)
    migrate(new_database)
    with engine_of(new_database).connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, metadata) == []


def test_migrations_and_declarations_make_the_same_database(
    new_database: str, server_url: str
) -> None:
    """Also what Alembic does not compare: checks, identities, conditions of indexes."""
    migrate(new_database)
    # The server's own database is used by nobody else in this module.
    metadata.create_all(engine_of(server_url))
    assert columns(new_database) == columns(server_url)
    assert constraints(new_database) == constraints(server_url)
    assert indexes(new_database) == indexes(server_url)


def test_tables_in_which_rows_die_all_the_time_are_vacuumed_early(new_database: str) -> None:
    """PostgreSQL's own limit is a fifth of the table: that many dead entries in its indexes."""
    migrate(new_database)
    found = {
        table: dict(option.split("=") for option in options)
        for table, options in rows(
            new_database,
            "SELECT relname, reloptions FROM pg_class"
            " WHERE reloptions IS NOT NULL AND relnamespace = 'public'::regnamespace",
        )
    }
    declared = {table: dict(EARLY) for table in VACUUMED_EARLY}
    for table, percent in FILLFACTOR.items():
        declared.setdefault(table, {})["fillfactor"] = percent
    assert found == declared
    assert float(found["tx_summary"]["autovacuum_vacuum_scale_factor"]) <= 0.01
    assert set(found) <= set(metadata.tables)


def test_without_tables_all_that_is_started_says_what_to_run(
    new_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(database_url=new_database, redis_url=f"redis://{HOST}:1/0")
    main = MainProcess(make_celery(settings), settings, WorkerInfo())
    monkeypatch.setattr(worker_app, "main_process", main)
    # Celery would only log another exception of this signal, and start.
    with pytest.raises(SystemExit, match=r"no tables yet.*`datp migrate`.*`datp db rights`"):
        worker_app._set_up("w@h")
    context = Context(replace(settings, key_pepper="a pepper that is long enough to be one"))
    monkeypatch.setattr(api, "connect", lambda: context)
    with pytest.raises(SettingsError, match="has no tables yet"):
        api.api(port=1)
    context.close()
    with pytest.raises(ProgrammingError) as missing, engine_of(new_database).connect() as sql:
        sql.execute(text("SELECT 1 FROM tx_summary"))
    said = sentence_of(missing.value) or ""
    assert "does not exist" in said and said.endswith("run `datp migrate`.")


def test_without_a_database_all_that_is_started_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(
        database_url=f"postgresql://{HOST}:1/none",
        redis_url=f"redis://{HOST}:1/0",
        key_pepper="a pepper that is long enough to be one",
    )
    info = WorkerInfo()
    monkeypatch.setattr(
        worker_app, "main_process", MainProcess(make_celery(settings), settings, info)
    )
    worker_app._set_up("w@h")
    assert (info.name, "PostgreSQL is unavailable" in caplog.text) == ("w@h", True)
    served: list[int] = []
    monkeypatch.setattr(api, "connect", lambda: Context(settings))
    monkeypatch.setattr(server, "serve", lambda *, port, **_: served.append(port))
    api.api(port=7)
    assert served == [7]


def test_an_api_that_serves_keeps_no_connection_of_its_first_look(
    new_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_of(new_database).begin() as connection:
        connection.execute(text("CREATE TABLE tx_summary ()"))
    pepper = "a pepper that is long enough to be one"
    context = Context(Settings(database_url=new_database, key_pepper=pepper))
    open_then: list[int] = []

    def look(**_: object) -> None:
        pool = context.engine.pool
        assert isinstance(pool, QueuePool)
        open_then.append(pool.checkedin())

    monkeypatch.setattr(api, "connect", lambda: context)
    monkeypatch.setattr(server, "serve", look)
    api.api(port=7)
    assert open_then == [0]


def test_upgrading_twice_is_harmless(new_database: str) -> None:
    command.upgrade(alembic_config(new_database), "0026")
    with engine_of(new_database).begin() as connection:
        connection.execute(text("INSERT INTO pipeline (name) VALUES ('kept')"))
        connection.execute(
            text(
                "INSERT INTO api_key (id, owner, scope, name, secret_hash, created_at) "
                "VALUES ('k', 'o', 'client', '', '', now())"
            )
        )
    for _ in range(2):
        migrate(new_database)
    assert rows(new_database, "SELECT name FROM pipeline") == [("kept",)]
    # Which keys had followed to another pepper was not noted before 0027: none is locked out.
    assert rows(new_database, "SELECT followed_at IS NOT NULL FROM api_key") == [(True,)]


def test_many_that_upgrade_at_once_do_not_disturb_each_other(new_database: str) -> None:
    """Processes, as in life: Alembic cannot run twice in one process at the same time."""
    program = "import sys; from datp_tasks.record.database import migrate; migrate(sys.argv[1])"
    upgrades = [subprocess.Popen([sys.executable, "-c", program, new_database]) for _ in range(4)]
    assert [upgrade.wait(60) for upgrade in upgrades] == [0, 0, 0, 0]
    assert len(rows(new_database, "SELECT version_num FROM alembic_version")) == 1


def test_an_upgrade_holds_no_signals_while_it_waits_for_an_approval(new_database: str) -> None:
    """What acts on an approval keeps its row locked, and sends signals by another connection."""
    config = alembic_config(new_database)
    command.upgrade(config, "0027")
    engine = engine_of(new_database)
    waits = text(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'approval'::regclass"
    )
    with engine.begin() as acting, engine.connect() as other, ThreadPoolExecutor(1) as pool:
        acting.execute(text("LOCK TABLE approval IN ROW EXCLUSIVE MODE"))
        upgraded = pool.submit(command.upgrade, config, "head")
        try:
            while not other.execute(waits).scalar_one():
                assert not upgraded.done()
                sleep(0.02)
            other.execute(text("SET lock_timeout = '500ms'"))
            assert other.execute(text("SELECT count(*) FROM tx_signal")).scalar_one() == 0
        finally:
            other.rollback()
            acting.rollback()
        upgraded.result()


def test_a_downgrade_to_the_beginning_leaves_nothing(new_database: str) -> None:
    migrate(new_database)
    assert set(tables(new_database)) >= set(metadata.tables)
    command.downgrade(alembic_config(new_database), "base")
    assert tables(new_database) == ["alembic_version"]
    assert rows(new_database, "SELECT version_num FROM alembic_version") == []
    migrate(new_database)
    assert set(tables(new_database)) >= set(metadata.tables)
