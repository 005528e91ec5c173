"""While it is lent, a connection refuses to end its transaction, however it is asked to."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg2 import sql

from datp_tasks.errors import StepError
from datp_tasks.record.lent_connection import (
    OWN_COMMIT,
    OWN_ROLLBACK,
    LentConnection,
    misuse_in,
)
from datp_tasks.testing import Kit


@pytest.fixture
def lent(datp: Kit) -> Iterator[LentConnection]:
    with datp.connections.engine.connect() as connection:
        dbapi: Any = connection.connection.dbapi_connection
        assert isinstance(dbapi, LentConnection)
        dbapi.cursor().execute("CREATE TEMP TABLE lent (n int)")
        dbapi.lend()
        yield dbapi
        dbapi.take_back()
        connection.rollback()


@pytest.mark.parametrize(
    "end",
    [
        lambda lent: lent.commit(),
        lambda lent: lent.rollback(),
        lambda lent: lent.__exit__(None, None, None),
        lambda lent: lent.cursor().execute("COMMIT"),
        lambda lent: lent.cursor().execute(b"rollback"),
        lambda lent: lent.cursor().execute(sql.SQL("COMMIT")),
        lambda lent: lent.cursor().execute("PREPARE TRANSACTION 'mine'"),
        lambda lent: lent.cursor().executemany("END", [()]),
        lambda lent: lent.cursor().copy_expert("COMMIT", io.StringIO()),
    ],
)
def test_it_refuses_and_remembers(
    lent: LentConnection, end: Callable[[LentConnection], object]
) -> None:
    with pytest.raises(StepError, match="do not"):
        end(lent)
    assert lent.misuse in (OWN_COMMIT, OWN_ROLLBACK)
    # The transaction goes on: what was done in it is there.
    cursor = lent.cursor()
    cursor.execute("SELECT count(*) FROM lent")
    assert cursor.fetchone() == (0,)


def test_when_it_is_taken_back_it_is_as_any_other(lent: LentConnection) -> None:
    lent.take_back()
    lent.cursor().execute("SAVEPOINT mine")
    lent.rollback()
    lent.commit()
    assert lent.misuse == ""


@pytest.mark.parametrize("length", [0, 100_000])
def test_texts_of_any_length_are_looked_at(length: int) -> None:
    filler = f"SELECT '{'x' * length};COMMIT'"
    assert misuse_in(filler) == ""
    assert misuse_in(f"{filler}; COMMIT") == OWN_COMMIT
    assert misuse_in(f"{filler}; ROLLBACK") == OWN_ROLLBACK
    assert misuse_in(f"{filler}; ROLLBACK TO mine") == ""
