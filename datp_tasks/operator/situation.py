"""What is known of one open transaction and of the node group that it waits in, read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.nodes import Node, NodeRegister
from datp_tasks.live.store import LiveStore
from datp_tasks.model.plan import step_words
from datp_tasks.model.view import View
from datp_tasks.record.groups import GroupStore
from datp_tasks.record.record_types import Summary
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.locate import ask_many
from datp_tasks.transactions.restore import Restorer
from datp_tasks.transactions.views import view_of_copy


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that is needed for an answer."""

    summary: Summary
    fields: Mapping[str, str]
    view: View
    now_ms: int
    queued_ms: float | None
    #: When its bell was rung last.
    rung_ms: float | None
    claimed_ms: float | None

    @property
    def group(self) -> str:
        return self.fields.get("group", "")

    @property
    def step(self) -> str:
        return step_words(self.fields.get("place", "?"), self.fields.get("stepType", "?"))

    def ago_s(self, moment_ms: float | None) -> float:
        return 0.0 if moment_ms is None else max(0.0, (self.now_ms - moment_ms) / 1_000)


@dataclass(frozen=True, kw_only=True)
class Situations:
    """Reads transactions where they are; a sleeper that left Redis is brought back for it."""

    record: Record
    live: LiveStore
    restorer: Restorer

    def summary(self, tx_id: str) -> Summary | None:
        found = self.record.summaries([tx_id])
        return found[0] if found else None

    def read(self, summary: Summary) -> Situation | None:
        """None if Redis does not have it."""
        tx_id = summary.tx_id
        asked = ask_many(self.restorer, [tx_id], ArchiveFeed(self.live).states)
        fields = asked.answers[0]
        if not fields:
            return None
        return Situation(
            summary=summary,
            fields=fields,
            view=view_of_copy(fields),
            now_ms=self.live.server_now_ms(),
            queued_ms=self.live.queued_since([tx_id])[0],
            rung_ms=self.live.score(tx_id, "queuedZ"),
            claimed_ms=self.live.score(tx_id, "processingZ"),
        )

    def last_beat_ms(self, node: str) -> tuple[bool, float | None]:
        """Whether the node is listed, and when it was last heard of."""
        if node not in self.live.listed_nodes([node]):
            return False, None
        (beat_ms,) = self.live.beats([node])
        return True, beat_ms


@dataclass(frozen=True, kw_only=True)
class ServedGroups:
    """Who serves a node group, and how many messages wait there."""

    register: NodeRegister
    store: GroupStore
    #: How many messages a queue holds.
    bells_in: Callable[[str], int]

    def nodes_of(self, group: str) -> list[Node]:
        return [node for node in self.register.nodes() if node.group == group]

    def is_stopped(self, group: str) -> bool:
        groups = self.store.current()
        return group in groups and groups[group].is_stopped
