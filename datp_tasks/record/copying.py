"""COPY: many rows as one stream, without a statement to parse and with less to log for each row.

It is all or nothing, and it has no ON CONFLICT.
"""

from __future__ import annotations

import io

import psycopg2
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError


def copy_in(connection: Connection, statement: str, text: str) -> None:
    """Rows in the text format of COPY; the statement must name UTF8. Errors are those that any
    statement would have raised."""
    # The raw cursor is the only way to COPY with this driver.
    driver = connection.connection.driver_connection
    assert driver is not None
    try:
        with driver.cursor() as cursor:
            cursor.copy_expert(statement, io.BytesIO(text.encode()))
    except psycopg2.Error as error:
        is_gone = bool(driver.closed)
        if is_gone:
            # SQLAlchemy sees only its own statements fail, and would roll back what is gone.
            connection.invalidate(error)
        raise DBAPIError.instance(
            statement,
            None,
            error,
            psycopg2.Error,
            hide_parameters=True,
            connection_invalidated=is_gone,
        ) from None


def escaped(value: str) -> str:
    """A text as the field of a row."""
    if "\\" in value:
        value = value.replace("\\", "\\\\")
    if "\n" in value:
        value = value.replace("\n", "\\n")
    if "\t" in value:
        value = value.replace("\t", "\\t")
    if "\r" in value:
        value = value.replace("\r", "\\r")
    return value
