"""A connection to PostgreSQL that can be lent to user code, which must not end its transaction.

What a step does and the record of it are one commit, and its neighbours in the vector may share
that commit. So while it is lent, the connection refuses COMMIT and ROLLBACK in whatever way they
are asked for: by the library, by the driver, or as the text of a statement.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NoReturn

from psycopg2.extensions import connection, cursor

from datp_tasks.errors import StepError

OWN_COMMIT = (
    "do not commit ctx.sql (or batch.sql): the engine commits it together with the step's output"
)
OWN_ROLLBACK = (
    "do not roll back ctx.sql (or batch.sql): raise an exception, and the engine undoes the step"
)

#: Words of which at least one is in a statement that ends a transaction; most have none of them.
_SUSPECT = re.compile(r"\b(?:commit|end|abort|rollback|prepare)\b", re.IGNORECASE)
#: Strings, names in quotes, function bodies and comments: what is in them is not executed here.
_QUOTED = re.compile(
    r"\be'(?:\\.|''|[^'\\])*'|'[^']*'|\"[^\"]*\"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/",
    re.IGNORECASE | re.DOTALL,
)
_ROLLBACK = re.compile(
    r"(?:rollback|abort)\b(?!\s+(?:(?:work|transaction)\s+)?to\b)", re.IGNORECASE
)
_COMMIT = re.compile(r"(?:commit|end|prepare\s+transaction)\b", re.IGNORECASE)
#: Texts that were looked at: programs have few, and each is executed again and again. Long ones
#: are usually made for the occasion, with their values inside, and are not kept.
_TEXTS_MAX = 512
_KEPT_LENGTH_MAX = 10_000


class LentConnection(connection):
    """An ordinary connection until it is lent."""

    is_lent = False
    #: How the one it was lent to tried to end the transaction.
    misuse = ""

    def lend(self) -> None:
        self.misuse = ""
        self.is_lent = True
        self.cursor_factory = _LentCursor

    def take_back(self) -> None:
        self.is_lent = False
        self.cursor_factory = cursor

    def commit(self) -> None:
        if self.is_lent:
            self.refuse(OWN_COMMIT)
        super().commit()

    def rollback(self) -> None:
        if self.is_lent:
            self.refuse(OWN_ROLLBACK)
        super().rollback()

    def refuse(self, why: str) -> NoReturn:
        self.misuse = self.misuse or why
        raise StepError(why)


class _LentCursor(cursor):
    def execute(self, query: Any, vars: Any = None) -> None:
        self._look_at(query)
        super().execute(query, vars)

    def executemany(self, query: Any, vars_list: Any) -> None:
        self._look_at(query)
        super().executemany(query, vars_list)

    def copy_expert(self, sql: Any, file: Any, size: int = 8192) -> None:
        self._look_at(sql)
        super().copy_expert(sql, file, size)

    def _look_at(self, query: Any) -> None:
        text = query if isinstance(query, str) else _text(query, self)
        why = misuse_in(text)
        lender = self.connection
        if why and isinstance(lender, LentConnection) and lender.is_lent:
            lender.refuse(why)


def misuse_in(text: str) -> str:
    """Why these statements must not be executed on a connection that is lent, or nothing."""
    return _misuse_in(text) if len(text) > _KEPT_LENGTH_MAX else _kept_misuse_in(text)


def _misuse_in(text: str) -> str:
    if _SUSPECT.search(text) is None:
        return ""
    for statement in _QUOTED.sub(" ", text).split(";"):
        if _COMMIT.match(statement.strip()):
            return OWN_COMMIT
        if _ROLLBACK.match(statement.strip()):
            return OWN_ROLLBACK
    return ""


_kept_misuse_in = lru_cache(maxsize=_TEXTS_MAX)(_misuse_in)


def _text(query: Any, using: cursor) -> str:
    return (
        query.decode(errors="replace") if isinstance(query, bytes) else str(query.as_string(using))
    )
