"""Take transactions from nodes that are gone.

Moves:    running -> queued (or final, where SQL had decided already), then rings. Fast, except
          for one in the middle of a step that is not safe to run again: that one waits until the
          step's time limit is over, so that its effect is settled before anybody asks for it.
Knows:    that a node has been silent; not whether it is dead or paused. So SQL gets a higher
          fence first: should the node wake up, Redis and SQL both refuse it.
Bound:    `reaper_batch_max` transactions of each node a run.
Overlap:  harmless: the second finds other fences and leaves the transaction alone.
Crash:    a node is forgotten only when it holds nothing any more, so the next run goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from datp_tasks.failpoints import reach
from datp_tasks.live.types import Bell
from datp_tasks.runtime.container import Container
from datp_tasks.transactions.follow_record import follow_summaries

log = logging.getLogger("datp.reaper")

#: What must be known of a transaction before it is taken.
HELD = ("status", "node", "fence", "version", "unsafe")


@dataclass(frozen=True, slots=True)
class Result:
    nodes: int
    taken: int
    ended: int


def run_once(connections: Container) -> Result:
    taken = ended = nodes = 0
    for node in connections.live.silent_nodes():
        nodes += 1
        more_taken, more_ended = _reap(connections, node)
        taken += more_taken
        ended += more_ended
        if not connections.live.running_on(node):
            connections.live.forget_node(node)
    for node, held in _unlisted(connections).items():
        more_taken, more_ended = take(connections, node, held)
        taken += more_taken
        ended += more_ended
    return Result(nodes=nodes, taken=taken, ended=ended)


def _unlisted(connections: Container) -> dict[str, list[str]]:
    """Transactions by the node that runs them, where no such node is known to beat.

    A node that was paused, given up and forgotten can wake up, claim, and die before it beats.
    """
    live, settings = connections.live, connections.settings
    long_ms = settings.node_stale_ms + settings.node_grace_ms
    old = live.due("processingZ", before_ms=long_ms, batch_max=settings.reaper_batch_max)
    by_node: dict[str, list[str]] = {}
    for tx, fields in zip(old, live.named_many(old, ("node",)), strict=True):
        by_node.setdefault(fields.get("node", ""), []).append(tx)
    listed = live.listed_nodes(list(by_node))
    return {node: held for node, held in by_node.items() if node and node not in listed}


def _reap(connections: Container, node: str) -> tuple[int, int]:
    live = connections.live
    held = live.running_on(node)[: connections.settings.reaper_batch_max]
    if not held:
        return 0, 0
    taken, ended = take(connections, node, held)
    log.warning("node %s is gone: %d taken over, %d had ended", node, taken, ended)
    return taken, ended


def take(connections: Container, node: str, held: list[str]) -> tuple[int, int]:
    """Queue again what Redis says this node runs, and nobody works on; how many, and had ended."""
    live = connections.live
    now_ms = live.server_now_ms()
    found = dict(zip(held, live.named_many(held, HELD), strict=True))
    held = [tx for tx in held if not _is_mid_way(found[tx], now_ms)]
    fences = {tx: int(found[tx]["fence"]) for tx in held if found[tx].get("node") == node}
    raised = connections.record.raise_fences(list(fences.items()))
    reach("reaper.after_fence")
    answers = live.take_over_many([(tx, fences[tx], raised[tx]) for tx in raised], node)
    # One of them may have brought its worker down, so none rings together with another.
    bells = [replace(answer, alone=True) for answer in answers if isinstance(answer, Bell)]
    connections.ringer.ring(bells)
    ended = _follow_sql(connections, node, [tx for tx in held if tx not in raised], fences)
    return len(bells), ended


def _is_mid_way(fields: Mapping[str, str], now_ms: int) -> bool:
    """A step that is not safe to run again may still be at work, if only its node was paused."""
    fence, _, limit_ms = fields.get("unsafe", "").partition(":")
    if not fence or fence != fields.get("fence") or fields.get("status") != "running":
        return False
    # A version is the time at which it was written, as long as the clock has not gone back.
    return int(fields["version"]) + int(limit_ms) > now_ms


def _follow_sql(
    connections: Container, node: str, tx_ids: list[str], fences: dict[str, int]
) -> int:
    """What is final in SQL ends in Redis too; what is not this node's is not looked at again."""
    live = connections.live
    summaries = connections.record.summaries(tx_ids) if tx_ids else []
    still_open = follow_summaries(live, summaries)
    # Its row is locked by its worker or another reaper: one of the next runs gets it.
    locked = {
        each.tx_id
        for each in still_open
        if each.tx_id in fences and each.fence <= fences[each.tx_id] + 1
    }
    live.drop_running(node, [tx for tx in tx_ids if tx not in locked])
    return len(summaries) - len(still_open)
