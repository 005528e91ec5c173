"""How a worker answers the doorbell that a bell came from, and what is fair to the other owners.

A worker takes along what waits in the line, and the next messages are sent for what does not fit.
What one owner has in excess waits in a line of its own. While other owners have work, the next
message for such a line is held until the hop has ended, is less urgent, and its vector is shorter.

All of this is hints: what is not rung for here is rung for by the reconciler.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from datp_tasks.engine.recent_owners import SHARED, RecentOwners
from datp_tasks.engine.worker_parts import Bells
from datp_tasks.live.doorbells import Doorbells, Line
from datp_tasks.live.nodes import count_nodes
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.live.scripts import Reply, ScriptCall
from datp_tasks.live.store import LiveStore

log = logging.getLogger("datp.hop")

#: While others have work too, the vectors of what an owner has in excess are so much shorter, and
#: have no more than so many: the others wait until one is done.
SHORTER = 4
SHORT_MAX = 25
#: How often the number of processes of such a node group is counted.
COUNT_NODES_S = 5.0


class DoorbellAnswers:
    """For one thread; `line` is the name of the line at a doorbell, "" for a bell without one."""

    def __init__(self, live: LiveStore, bells: Bells) -> None:
        self._live = live
        self._ringer = bells.ringer
        self._costs = bells.costs
        self._doorbells = bells.doorbells
        self._owners = RecentOwners(SHARED)
        #: Node group -> its processes, and when to count them again.
        self._nodes: dict[str, tuple[int, float]] = {}

    def saw(self, owners: Iterable[str]) -> None:
        """The owners of what was claimed."""
        self._owners.saw(owners)

    def is_held(self, line: str) -> bool:
        """Whether the next message for this line waits for the end of the hop: the line is of
        what an owner has in excess, and others have work."""
        owner = Line.parsed(line).owner if line else ""
        return bool(owner) and self._owners.are_others(owner)

    def answering(self, line: str, rung: int) -> ScriptCall:
        """The call that answers a line that is not held, by a worker with so many transactions.

        Where a worker has seen no other owner lately, an owner's excess is as urgent as its new
        work: behind that it would wait without end.
        """
        of = Line.parsed(line)
        size = self._costs.vector_size(of.place)
        # One for each process and one to spare: another owner that comes waits for no more.
        messages_max = self._processes_of(of.group) + 1 if of.owner else 1
        return self._doorbells.answering(line, max(0, size - rung), size, messages_max)

    def answered(self, line: str, reply: Reply) -> Sequence[tuple[str, int]]:
        """Send the next messages; what the worker takes along."""
        along, following = Doorbells.answered(reply)
        if following:
            self._ringer.ring_next(line, following)
        return along

    def ring_held(self, line: str) -> None:
        """Ring for a line that was held: one process of its group is left to the others."""
        of = Line.parsed(line)
        size = max(1, min(SHORT_MAX, self._costs.vector_size(of.place) // SHORTER))
        try:
            messages_max = max(1, self._processes_of(of.group) - 1)
            order = self._doorbells.answering(line, 0, size, messages_max)
            _, following = Doorbells.answered(self._live.run([order])[0])
        except RedisError as error:
            log.debug("what waits at %s is rung for later: %s", line, error)
            return
        self._ringer.ring_next(line, following, later=True)

    def _processes_of(self, group: str) -> int:
        """As far as is known: a hint, whose failure must not hold up what a bell asks for."""
        count, until_s = self._nodes.get(group, (1, 0.0))
        if until_s < time.monotonic():
            try:
                count = count_nodes(self._live.redis, self._live.keys, group)
            except RedisError as error:
                log.debug("the processes of %s are not counted: %s", group, error)
            self._nodes[group] = count, time.monotonic() + COUNT_NODES_S
        return count
