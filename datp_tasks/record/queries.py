"""Named queries: all SQL of the record lies in `sql/`, one file for each topic.

A file holds queries, each under a header with its name and what it is for:

    -- :name open_alerts
    -- Alerts that are not cleared, the oldest first.
    SELECT id, kind FROM alert WHERE cleared_at IS NULL LIMIT %(limit)s

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
HEADER = re.compile(r"^-- :name (\w+)\n", re.MULTILINE)
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
    before, *parts = HEADER.split(source)
    texts = dict(zip(parts[::2], map(_text, parts[1::2]), strict=True))
    if _text(before) or len(texts) * 2 != len(parts) or not all(texts.values()):
        raise QueriesInvalid(f"sql/{topic}.sql: text without a name, a name twice, or no text")
    return texts


def _text(part: str) -> str:
    return COMMENT.sub("", part).strip()
