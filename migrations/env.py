"""Alembic's entry: one connection, one lock, one transaction for all upgrades."""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import create_engine, pool, text
from sqlalchemy.engine import make_url

from datp_tasks.record.tables import metadata
from datp_tasks.settings import Settings

#: Any number will do, as long as all upgraders use the same one.
UPGRADE_LOCK = 7_305_510_822


def run() -> None:
    given = context.config.attributes.get("database_url")
    address = given or Settings.from_env(os.environ).database_url
    url = make_url(address).set(drivername="postgresql+psycopg2")
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": UPGRADE_LOCK})
        context.configure(connection=connection, target_metadata=metadata)
        context.run_migrations()


run()
