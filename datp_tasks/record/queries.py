"""Named queries: all SQL of the record lies in `sql/`, one file for each topic.

A file holds queries, each under a header with its name and what it is for:

    -- :name open_alerts
    -- Alerts that are not cleared, the oldest first.
    SELECT id, kind FROM alert WHERE cleared_at IS NULL LIMIT %(limit)s

What several queries of a file say alike is a part, written once and named where it belongs:

    -- :part owners
    -- The owners, read off the index one by one.
    owners AS (SELECT …)

    -- :name newest
    -- Ids of transactions, the newest first.
    WITH RECURSIVE
    -- :use owners
    SELECT … FROM owners

Parameters are those of psycopg2, so a `%` that is none is doubled. Comments stay in the file: the
server does not get them. A module names its queries in a class, so that mypy knows each of them:

    class Query(Queries, topic="alerts"):
        open_alerts: str

Importing the module fails if the file lacks one of them, or has one that the class does not name.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "sql"
HEADER = re.compile(r"^-- :(name|part) (\w+)\n", re.MULTILINE)
USE = re.compile(r"^ *-- :use (\w+)\n", re.MULTILINE)
MARK = re.compile(r"^.*--\s*:.*$", re.MULTILINE)
COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)


class QueriesInvalid(RuntimeError):
    """A file of queries and the class that names them do not fit each other."""


class Queries:
    """Base of the classes that name the queries of a topic."""

    def __init_subclass__(cls, *, topic: str) -> None:
        texts = load(topic)
        if texts.keys() != cls.__annotations__.keys():
            wrong = ", ".join(sorted(texts.keys() ^ cls.__annotations__.keys()))
            raise QueriesInvalid(f"sql/{topic}.sql and {cls.__module__} differ in: {wrong}")
        for name, text in texts.items():
            setattr(cls, name, text)


def load(topic: str) -> dict[str, str]:
    """The queries of a file by name, without comments."""
    source = (FOLDER / f"{topic}.sql").read_text(encoding="utf-8")
    before, *found = HEADER.split(source)
    kinds, names, bodies = found[::3], found[1::3], found[2::3]
    parts = {
        name: body for kind, name, body in zip(kinds, names, bodies, strict=True) if kind == "part"
    }
    if unknown := set(USE.findall(source)) ^ parts.keys():
        raise QueriesInvalid(f"sql/{topic}.sql: a part that is not there or not used: {unknown}")
    texts = {name: _text(body, parts) for name, body in zip(names, bodies, strict=True)}
    if _text(before, {}) or len(texts) != len(names) or not all(texts.values()):
        raise QueriesInvalid(f"sql/{topic}.sql: text without a name, a name twice, or no text")
    return {name: text for name, text in texts.items() if name not in parts}


def _text(body: str, parts: dict[str, str]) -> str:
    text = USE.sub(lambda use: parts[use[1]], body)
    if left := MARK.search(text):
        # As a comment it would vanish, and with it a condition of the query.
        raise QueriesInvalid(f"not understood in a file of queries: {left[0].strip()}")
    return COMMENT.sub("", text).strip()
