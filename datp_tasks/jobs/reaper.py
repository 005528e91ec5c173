"""Take transactions from nodes that are gone.

Moves:    running -> queued (or final, where SQL had decided already), then rings. Fast, except
          for one in the middle of a step that is not safe to run again: that one waits until the
          step's time limit is over, so that its effect is settled before a probe asks for it.
Knows:    that a node has been silent; not whether it is dead or paused. So SQL gets a higher
          fence first: should the node wake up, Redis and SQL both refuse it.
Bound:    BATCH_MAX transactions of each node a run.
Overlap:  harmless: the second finds other fences and leaves the transaction alone.
Crash:    a node is forgotten only when it holds nothing any more, so the next run goes on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from datp_tasks.live.store import LiveStore
from datp_tasks.transactions.take_over import Taken, TakeOver

log = logging.getLogger("datp.reaper")

#: One run ends before the next begins, also with slow SQL.
BATCH_MAX = 500


@dataclass(frozen=True, slots=True)
class Result:
    nodes: int
    taken: int
    ended: int


def run_once(live: LiveStore, take_over: TakeOver, *, unlisted_after_ms: int) -> Result:
    """`unlisted_after_ms`: one that has run for so long on a node that is not known to beat is
    taken."""
    nodes = live.silent_nodes()
    taken: list[Taken] = []
    for node in nodes:
        taken.append(_reap(live, take_over, node))
        if not live.running_on(node):
            live.forget_node(node)
    for node, held in _unlisted(live, unlisted_after_ms).items():
        taken.append(take_over.from_node(node, held))
    return Result(
        nodes=len(nodes),
        taken=sum(each.queued for each in taken),
        ended=sum(each.ended for each in taken),
    )


def _unlisted(live: LiveStore, after_ms: int) -> dict[str, list[str]]:
    """Transactions by the node that runs them, where no such node is known to beat.

    A node that was paused, given up and forgotten can wake up, claim, and die before it beats.
    """
    old = live.due("processingZ", before_ms=after_ms, batch_max=BATCH_MAX)
    by_node: dict[str, list[str]] = {}
    for tx, fields in zip(old, live.named_many(old, ("node",)), strict=True):
        by_node.setdefault(fields.get("node", ""), []).append(tx)
    listed = live.listed_nodes(list(by_node))
    return {node: held for node, held in by_node.items() if node and node not in listed}


def _reap(live: LiveStore, take_over: TakeOver, node: str) -> Taken:
    held = live.running_on(node)[:BATCH_MAX]
    if not held:
        return Taken(queued=0, ended=0)
    taken = take_over.from_node(node, held)
    log.warning("node %s is gone: %d taken over, %d had ended", node, taken.queued, taken.ended)
    return taken
