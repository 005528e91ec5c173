"""Every key in Redis: type, what it holds, when it leaves.

Keys of transactions lie in shards, `datp:{07}:stateH:<tx>`: the part in braces is Redis
Cluster's hash tag, so all keys that one script touches live on one server. The shard is part of
the transaction id (`t07-…`), so every process that has the id can name its keys.

| key (in a shard)          | type   | holds                                      | leaves when            |
|---------------------------|--------|--------------------------------------------|------------------------|
| stateH:<tx>               | hash   | state JSON and externalised fields (below) | TTL, once archived     |
| deltaL:<tx>               | list   | deltas since the last full JSON            | next full JSON         |
| queuedZ                   | zset   | tx by time queued, or rung again           | claim                  |
| processingZ               | zset   | tx by claim time                           | hop ends               |
| runningS:<node>           | set    | tx that this node runs                     | hop ends               |
| sleepingZ                 | zset   | tx by wake time                            | wake, switch, cancel   |
| toArchiveZ                | zset   | tx by the time it may be archived          | archived, or changed   |
| exceptionZ                | zset   | tx parked in doubt, by time                | a person decides       |
| journalX                  | stream | every change, on its way to SQL            | SQL has it             |
| countsH                   | hash   | slot|what|group|pipeline|owner -> number   | the meter takes it     |
| rebuilding                | string | token of the repair that restores it       | repaired               |
| mark                      | string | number of times the journal was read       | never                  |
| webhooksZ:<owner>         | zset   | <tx>:<sequence> by time of next attempt    | 2xx, given up, told    |
| webhookOwnersZ            | zset   | owner by when it is due and has its turn   | nothing of it is there |

| key (outside shards)      | type   | holds                                      | leaves when            |
|---------------------------|--------|--------------------------------------------|------------------------|
| pipelineH:<name>          | hash   | inUse, disabled, and v:<version> = JSON    | never                  |
| node:<group>:<node>       | string | JSON: step types, version, host            | 60 s without a beat    |
| {nodes}:nodesZ            | zset   | node by last beat                          | leaves or is reaped    |
| {nodes}:registeredZ       | zset   | <group>/<node> by last beat                | leaves or is replaced  |
| {nodes}:missedZ           | zset   | <group>/<node> by when it was missed first | beats again, replaced  |
| nodeGroups                | string | JSON: names of the groups that have values | never                  |
| nodeGroupH:<name>         | hash   | values of a node group                     | never                  |
| beatSeen                  | string | when a job of beat last ran (ms)           | never                  |
| {nodes}:staleZ            | zset   | node by the time it was first found silent | beats again, or reaped |
| {bells}:ringN:<line>      | string | how many messages to a line are under way  | answered, or 1 s       |
| {bells}:lineL:<line>      | list   | due there, without a message of their own  | answered, or 10 min    |
| {bells}:lineH:<line>      | hash   | owner -> how many of the list are its own  | answered, or 10 min    |
| {bells}:linesS            | set    | lines in which something waits             | answered               |
| stepCostH                 | hash   | pipeline/step -> microseconds per tx       | never                  |
| stepTypesH                | hash   | step type -> what it is for, JSON          | never                  |
| stepTimesH                | hash   | place|n, place|us: passed, microseconds    | never                  |
| metric1H…3H:<slot>        | hash   | counters and gauges of a slot of time      | 5 min, 2 h, 24 h       |
| metricTotalsH, gaugesH    | hash   | counters since the beginning; last samples | never                  |
| webhookFail:<hash>        | string | failures in a row of a target (its URL)    | success, or its period |
| alertTold:<id>:<event>    | string | the operator's URL was told, or is tried   | 2 days, or 10 min      |
| webhooksRung              | string | senders of webhooks were told to look      | they look, or 1 s      |
| tick:<job>                | string | a maintenance job ran just now             | its period             |
| rateH:<owner>             | hash   | tokens of an owner for the API             | full again             |
| {archive}:archiveLock1, 2 | string | who archives; no more work, then no more   | seconds after the run  |
| {archive}:archiveFence    | string | fence of the last who got that role        | never                  |
| rebuilding, rebuiltTo     | string | a loss is being repaired, and how far      | repaired               |
| reconcilerH               | hash   | how far the reconciler has looked          | never                  |
| datp-notify               | channel| <event>:<tx>:<status>, a line for each tx  |                        |

Fields of stateH:

| field       | meaning                                                                     |
|-------------|-----------------------------------------------------------------------------|
| status      | queued, running, sleeping, in-doubt or a final status                       |
| owner       | whose transaction it is                                                     |
| pipeline    | name of the pipeline the client asked for                                   |
| group       | node group that runs it now or next                                         |
| stepType    | step type that runs now or next: the name of the bell                       |
| place       | pipeline/step index, for the cost book and for people                       |
| priority    | class of its bell: in, out or admin                                         |
| fence       | number of the last claim; every write must show it                          |
| sequence    | number of times it was queued; a bell must show it                          |
| rung        | "<sequence>:<time queued>" (ms), once its bell was rung again               |
| version     | name of the last entry in the journal; grows, and follows the clock         |
| jsonVersion | value of `version` when `state` was written                                 |
| state       | the state as JSON                                                           |
| node        | who runs it                                                                 |
| begun       | "1" from the moment any step may have had an effect                         |
| recreated   | "1" once Redis had lost it: a step may have had one that is not known       |
| unsafe      | "<fence>:<time limit in ms>" in the middle of a step not safe to run again  |
| wakeTime    | when it wakes (ms)                                                          |
| wakeSwitch  | switch it waits for                                                         |
| switchSeq   | number of switch settings so far                                            |
| switchCount | number of different switches                                                |
| switch:<n>  | "<switchSeq when set>:<JSON value>"                                         |
| cancel      | "<status>:<reason>" of a stop request (1), be it a cancel or an expiry      |
| expiresAt   | when it must be over (ms)                                                   |
| progress    | last progress report, JSON                                                  |
| problem     | why it is not moving, for people                                            |
| trace       | ids of its span and when it began, if it is traced (observe/tracing.py)     |
| externalId, metadata | as the client gave them                                            |

(1) Not called `stop`: workers of the version before, which run on during a rolling upgrade, look
for a request to stop in the field `cancel`. The same holds for the entries of the journal.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

TX_ID = re.compile(r"t(\d{2})-[0-9a-f]{32}")

#: Transactions in one script call: more brings nothing, and Redis serves no one else meanwhile.
CALL_TRANSACTIONS_MAX = 100

#: Lists that hold transactions, in every shard.
LISTS = ("queuedZ", "processingZ", "sleepingZ", "toArchiveZ", "exceptionZ")


def shard_of_tx(tx_id: str) -> str | None:
    """The shard in a transaction id, or None if that is no transaction id."""
    match = TX_ID.fullmatch(tx_id)
    return match.group(1) if match else None


def shards_for(count: int, shards: int) -> list[str]:
    """A shard for each of so many new transactions, all as likely as each other.

    Neighbours share one: a script call moves transactions of one shard, so that few calls move
    what is accepted together.
    """
    first = random.randrange(shards)
    return [f"{(first + n // CALL_TRANSACTIONS_MAX) % shards:02d}" for n in range(count)]


#: The lists that all transactions of a call share, by script; `runningS` is that of a node.
SHARED_LISTS = {
    "create": ("queuedZ", "countsH"),
    "claim": ("queuedZ", "processingZ", "runningS", "journalX", "countsH"),
    "checkpoint": ("toArchiveZ", "journalX"),
    "hand_over": ("queuedZ", "processingZ", "runningS", "toArchiveZ", "journalX"),
    "sleep": ("processingZ", "runningS", "sleepingZ", "toArchiveZ", "journalX"),
    "park": ("processingZ", "runningS", "exceptionZ", "toArchiveZ", "journalX"),
    "finish": (
        *("queuedZ", "processingZ", "runningS", "sleepingZ", "exceptionZ"),
        *("toArchiveZ", "journalX", "countsH"),
    ),
    "confirm_archived": ("toArchiveZ",),
}


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of keys for one prefix."""

    prefix: str

    def in_shard(self, shard: str, name: str) -> str:
        return f"{self.prefix}:{{{shard}}}:{name}"

    def state(self, tx_id: str) -> str:
        return f"{self.prefix}:{{{tx_id[1:3]}}}:stateH:{tx_id}"

    def deltas(self, tx_id: str) -> str:
        return f"{self.prefix}:{{{tx_id[1:3]}}}:deltaL:{tx_id}"

    def own(self, tx_id: str) -> tuple[str, str]:
        """State and deltas: what most scripts take of each transaction."""
        state, deltas = self.own_prefixes(tx_id[1:3])
        return state + tx_id, deltas + tx_id

    def own_prefixes(self, shard: str) -> tuple[str, str]:
        """What comes before the id in these two names."""
        return f"{self.prefix}:{{{shard}}}:stateH:", f"{self.prefix}:{{{shard}}}:deltaL:"

    def of_tx(self, tx_id: str, name: str) -> str:
        """A list of the shard that the transaction lives in."""
        return f"{self.prefix}:{{{tx_id[1:3]}}}:{name}"

    def pipeline(self, name: str) -> str:
        return f"{self.prefix}:pipelineH:{name}"

    def node(self, group: str, node: str) -> str:
        return f"{self.prefix}:node:{group}:{node}"

    def outside(self, name: str) -> str:
        return f"{self.prefix}:{name}"

    @property
    def nodes(self) -> str:
        return self.in_shard("nodes", "nodesZ")

    @property
    def stale_nodes(self) -> str:
        return self.in_shard("nodes", "staleZ")

    @property
    def notify(self) -> str:
        return f"{self.prefix}-notify"
