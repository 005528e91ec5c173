"""Take transactions from nodes that are gone.

Moves:    running -> queued (or final, where SQL had decided already), then rings.
Knows:    that a node has been silent; not whether it is dead or paused. So SQL gets a higher
          fence first: should the node wake up, Redis and SQL both refuse it.
Bound:    `reaper_batch_max` transactions of each node a run.
Overlap:  harmless: the second finds other fences and leaves the transaction alone.
Crash:    a node is forgotten only when it holds nothing any more, so the next run goes on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from datp_tasks.connections import Connections
from datp_tasks.live.words import Bell, Held
from datp_tasks.model.status import Status
from datp_tasks.observe.failpoints import reach

log = logging.getLogger("datp.reaper")


@dataclass(frozen=True, slots=True)
class Result:
    nodes: int
    taken: int
    ended: int


def run_once(connections: Connections) -> Result:
    taken = ended = nodes = 0
    for node in connections.live.silent_nodes():
        nodes += 1
        more_taken, more_ended = _reap(connections, node)
        taken += more_taken
        ended += more_ended
        if not connections.live.running_on(node):
            connections.live.forget_node(node)
    return Result(nodes=nodes, taken=taken, ended=ended)


def _reap(connections: Connections, node: str) -> tuple[int, int]:
    live = connections.live
    held = live.running_on(node)[: connections.settings.reaper_batch_max]
    if not held:
        return 0, 0
    fences = {
        tx: int(fields.get("fence", 0))
        for tx, fields in zip(held, live.fields_many(held), strict=True)
    }
    raised = connections.record.raise_fences(list(fences.items()))
    reach("reaper.after_fence")
    orders = [(tx, fences[tx], raised.get(tx, fences[tx] + 1)) for tx in held if tx in raised]
    answers = live.take_over_many(orders, node)
    bells = [answer for answer in answers if isinstance(answer, Bell)]
    connections.ringer.ring(bells)
    ended = _follow_sql(connections, node, [tx for tx in held if tx not in raised])
    log.warning("node %s is gone: %d taken over, %d had ended", node, len(bells), ended)
    return len(bells), ended


def _follow_sql(connections: Connections, node: str, tx_ids: list[str]) -> int:
    """SQL has the final status, only Redis does not know it yet."""
    live = connections.live
    summaries = connections.record.summaries(tx_ids) if tx_ids else []
    calls = [
        live.call_finish(
            Held(each.tx_id, each.fence), node, Status(each.status), "", follow_sql=True
        )
        for each in summaries
        if each.is_final
    ]
    live.run(calls)
    # What is gone from Redis, or unknown to SQL, must not be looked at for ever.
    live.drop_running(node, [tx for tx in tx_ids if tx not in {s.tx_id for s in summaries}])
    return len(calls)
