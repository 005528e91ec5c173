"""PostgreSQL itself reads every query of the record: its tables, columns, types and parameters."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from psycopg2.extensions import cursor

from datp_tasks.record.queries import FOLDER, load
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

QUERIES = [
    pytest.param(text, id=f"{path.stem}.{name}")
    for path in sorted(FOLDER.glob("*.sql"))
    for name, text in load(path.stem).items()
]
PARAMETER = re.compile(r"%\((\w+)\)s")
#: What cannot be prepared is executed: it changes no row.
EXECUTED = re.compile(r"SET LOCAL|(?:RELEASE )?SAVEPOINT|ROLLBACK TO SAVEPOINT")


def numbered(statement: str) -> str:
    """With numbered parameters, as the server counts them."""
    names = list(dict.fromkeys(PARAMETER.findall(statement)))
    found = PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", statement)
    return found.replace("%%", "%")


def check(sql: cursor, statement: str) -> None:
    if statement.startswith("COPY"):
        sql.copy_expert(statement, io.StringIO(""))
    elif EXECUTED.match(statement):
        sql.execute(statement, dict.fromkeys(PARAMETER.findall(statement), "1000"))
    else:
        sql.execute(f"PREPARE this AS {numbered(statement)}")
        sql.execute("DEALLOCATE this")


@pytest.fixture(scope="module")
def kit(datp_servers: Servers) -> Iterator[Kit]:
    kit = Kit(datp_servers)
    yield kit
    kit.close()


@pytest.fixture
def sql(kit: Kit) -> Iterator[cursor]:
    with kit.connections.engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor() as found:
            found.execute("SAVEPOINT datp_call; SAVEPOINT datp_item")
            yield found
        driver.rollback()


@pytest.mark.parametrize("text", QUERIES)
def test_the_server_accepts_it(sql: cursor, text: str) -> None:
    for statement in text.split(";"):
        check(sql, statement.strip())
