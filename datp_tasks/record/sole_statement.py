"""One statement that is a transaction of its own, with as little around it as there can be.

A lone transaction of a client is three such statements on its critical path, and SQLAlchemy's
connection, execution context and result cost each of them more than PostgreSQL does; so do parsing
and planning, which is why they are prepared. The pool and the errors are SQLAlchemy's all the same;
and where a program listens to statements, all of it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from psycopg2 import Error
from psycopg2.errors import (
    DuplicatePreparedStatement,
    FeatureNotSupported,
    InvalidSqlStatementName,
)
from psycopg2.extras import NamedTupleCursor
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from datp_tasks.record.array_text import with_array_texts
from datp_tasks.record.prepared import Plans, prepared

log = logging.getLogger("datp.record")

#: Where a connection keeps its plans: among what SQLAlchemy forgets together with it.
PLANS = "datp_plans"
#: The name is not known, or known already, or stands for columns that have other types by now.
MISSES = (InvalidSqlStatementName, DuplicatePreparedStatement, FeatureNotSupported)
#: This many misses plus a tenth of all statements are what restarts and poolers cause. Beyond that
#: something forgets what is prepared again and again, and each miss is a round trip.
MISSES_MAX = 100
GIVEN_UP = (
    "PostgreSQL often cannot execute what was prepared on a connection, for example because a "
    "pooler resets connections. Statements are sent whole from now on, which takes it longer."
)


class SoleStatements:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._executed = 0
        self._missed = 0
        self._is_prepared = True

    def execute(self, sql: str, values: Mapping[str, Any]) -> list[Any]:
        """The rows; errors are those that SQLAlchemy would raise.

        A parameter has the type that the statement needs: where none follows from it, name one.
        """
        if self._engine.dispatch.before_cursor_execute:
            with self._autocommit.connect() as connection:
                return list(connection.exec_driver_sql(sql, dict(values)).all())
        try:
            lent = self._engine.raw_connection()
        except Error as error:
            raise self._translated(error, None) from error
        driver: Any = lent.driver_connection
        try:
            driver.autocommit = True
            with driver.cursor(cursor_factory=NamedTupleCursor) as cursor:
                self._run(lent, cursor, sql, with_array_texts(values))
                rows = cursor.fetchall()
            driver.autocommit = False
        except Error as error:
            raise self._translated(error, lent, sql) from error
        except BaseException as error:
            # Interrupted: what the connection is in the middle of is not known.
            lent.invalidate(error)
            raise
        lent.close()
        return list(rows)

    def _run(self, lent: Any, cursor: Any, sql: str, values: dict[str, Any]) -> None:
        """Prepared if it can be; a miss has done nothing, as the statement commits by itself."""
        execute = self._engine.dialect.do_execute
        if self._is_prepared:
            statement = prepared(sql)
            plans = lent.info.get(PLANS) or lent.info.setdefault(PLANS, Plans())
            self._executed += 1
            try:
                execute(cursor, plans.text_for(statement, time.monotonic()), values)
            except MISSES as error:
                self._note_miss()
                if isinstance(error, InvalidSqlStatementName):
                    plans.names.discard(statement.name)
                elif isinstance(error, FeatureNotSupported):
                    # The name cannot be used any more: the next user gets a new connection.
                    lent.invalidate(error, soft=True)
            else:
                return
        execute(cursor, sql, values)

    def _note_miss(self) -> None:
        self._missed += 1
        if self._is_prepared and self._missed > MISSES_MAX + self._executed // 10:
            self._is_prepared = False
            log.warning(GIVEN_UP)

    def _translated(self, error: Error, lent: Any, sql: str = "") -> Exception:
        dialect = self._engine.dialect
        driver: Any = None if lent is None else lent.driver_connection
        # Its module is psycopg2, which SQLAlchemy only describes.
        of_driver: Any = error
        is_lost = bool(dialect.is_disconnect(of_driver, driver, None))
        if is_lost and lent is not None:
            # The others of the pool are from before the same restart: SQLAlchemy drops them, too.
            self._engine.pool._invalidate(lent, error)
        elif lent is not None:
            driver.autocommit = False
            lent.close()
        return DBAPIError.instance(
            sql or None,
            None,
            error,
            Error,
            hide_parameters=True,
            connection_invalidated=is_lost,
            dialect=dialect,
        )
