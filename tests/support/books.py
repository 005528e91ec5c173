"""A table that steps write to. It has no unique key, so whatever is applied twice is seen."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text


class Books:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with engine.begin() as sql:
            sql.execute(
                text(
                    "CREATE TABLE IF NOT EXISTS test_books "
                    "(id bigint GENERATED ALWAYS AS IDENTITY, tx_id text, line text)"
                )
            )
            sql.execute(text("TRUNCATE test_books"))

    def write(self, sql: Connection, tx_id: str, line: str) -> None:
        """Part of the caller's transaction."""
        values = {"tx_id": tx_id, "line": line}
        sql.execute(text("INSERT INTO test_books (tx_id, line) VALUES (:tx_id, :line)"), values)

    def lines(self, tx_id: str | None = None) -> list[str]:
        """What is committed, in the order of writing."""
        query = "SELECT line FROM test_books WHERE tx_id = :tx_id OR :tx_id IS NULL ORDER BY id"
        with self._engine.connect() as sql:
            return list(sql.execute(text(query), {"tx_id": tx_id}).scalars())


def reports(engine: Engine, tx_id: str) -> list[str]:
    """Progress reports that became numbered events."""
    query = (
        "SELECT payload FROM tx_event WHERE tx_id = :tx_id AND kind = 'progress' ORDER BY sequence"
    )
    with engine.connect() as sql:
        return list(sql.execute(text(query), {"tx_id": tx_id}).scalars())
