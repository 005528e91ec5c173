"""As much of a batch as the steps of the examples use, without an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

Said = tuple[str, Any]


@dataclass
class HandMadeItem:
    tx_id: str
    data: dict[str, Any]
    said: list[Said] = field(default_factory=list)

    def done(self, output: Mapping[str, Any] | None = None) -> None:
        self.said.append(("done", output))

    def fail(self, note: str = "", output: Mapping[str, Any] | None = None) -> None:
        self.said.append(("fail", note))

    def retry(self, note: str = "") -> None:
        self.said.append(("retry", note))


class HandMadeBatch:
    """Transactions by their ids, each with the data that the step is given."""

    def __init__(self, sql: Connection, data: Mapping[str, Mapping[str, Any]]) -> None:
        self.sql = sql
        self._items = [HandMadeItem(tx_id, dict(each)) for tx_id, each in data.items()]

    def __iter__(self) -> Iterator[HandMadeItem]:
        return iter(self._items)

    @property
    def said(self) -> dict[str, Said]:
        """The outcome of each item; it must have exactly one."""
        outcomes = {}
        for item in self._items:
            [outcomes[item.tx_id]] = item.said
        return outcomes
