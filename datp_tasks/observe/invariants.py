"""What must hold for every transaction in Redis between any two scripts.

`WHERE` and `FIELDS` are the table of modes: for each status the lists that a transaction is in,
and the fields that it has. Two modes differ from the original table on purpose: a running
transaction is not in `queuedZ` (a bell for it would find the door shut), and a sleeping one that
was archived stays in Redis, so that waking it needs no SQL.

Operators call `check_all`; tests call `check_transaction` after every move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import batched

from redis.client import Pipeline

from datp_tasks.live.keys import LISTS, shard_of_tx
from datp_tasks.live.store import LiveStore
from datp_tasks.live.words import PRIORITIES
from datp_tasks.model.status import FINAL, Status

#: yes: must be; no: must not be; may: either; one: exactly one of the columns marked so.
#: `ttl` tells whether the state leaves Redis by itself; `gone` is a state that has left.
WHERE = """
status    queuedZ  processingZ  runningS  sleepingZ  toArchiveZ  exceptionZ  ttl
queued    yes      no           no        no         no          no          no
running   no       yes          yes       no         no          no          no
sleeping  no       no           no        yes        may         no          no
in-doubt  no       no           no        no         no          yes         no
final     no       no           no        no         one         no          one
gone      no       no           no        no         no          no          no
"""

FIELDS = """
status    stepType  node  wakeTime  wakeSwitch  cancel  problem
queued    yes       no    no        no          may     may
running   yes       yes   no        no          may     no
sleeping  yes       no    yes       may         may     no
in-doubt  yes       no    no        no          may     yes
final     no        no    no        no          no      no
gone      no        no    no        no          no      no
"""

#: Every transaction has these, whatever it does.
ALWAYS = ("owner", "pipeline", "group", "place", "priority", "fence", "sequence")
ALWAYS += ("version", "jsonVersion", "state")
#: Those of them that are numbers, and the least they can be.
NUMBERS = {"fence": 0, "sequence": 1, "version": 0, "jsonVersion": 0}
#: Statuses that only a claim leads to.
CLAIMED_ONCE = frozenset({Status.RUNNING, Status.SLEEPING, Status.IN_DOUBT})

BATCH = 100
VIOLATIONS_MAX = 1_000


def _table(text: str) -> dict[str, dict[str, str]]:
    heading, *rows = (line.split() for line in text.strip().splitlines())
    return {row[0]: dict(zip(heading[1:], row[1:], strict=True)) for row in rows}


_WHERE = _table(WHERE)
_FIELDS = _table(FIELDS)
_READ = ("status", "externalId", "begun", *ALWAYS[:-1], *_FIELDS["queued"])


@dataclass(frozen=True, slots=True)
class Seen:
    """One transaction as Redis had it at one moment."""

    tx_id: str
    #: Without the JSON itself, which may be large; empty if the state is not there.
    fields: Mapping[str, str] = field(default_factory=dict)
    #: List -> score, for the lists that it is in.
    scores: Mapping[str, float] = field(default_factory=dict)
    #: Nodes that say that they run it.
    nodes: frozenset[str] = frozenset()
    ttl_ms: int | None = None
    deltas: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    tx_id: str
    what: str


def check_all(live: LiveStore, *, violations_max: int = VIOLATIONS_MAX) -> list[Violation]:
    """Everything that is wrong now, in bounded batches; the system may go on meanwhile."""
    found: dict[Violation, None] = {}
    nodes = find_nodes(live)
    for shard in live.shards:
        for name in (*LISTS, *(f"runningS:{node}" for node in sorted(nodes))):
            for violation in _orphans(live, shard, name, nodes):
                found[violation] = None
            if len(found) >= violations_max:
                return list(found)[:violations_max]
    for tx_ids in _with_keys(live):
        for violation in _check(live, tx_ids, nodes):
            found[violation] = None
        if len(found) >= violations_max:
            break
    return list(found)[:violations_max]


def look(live: LiveStore, tx_ids: Iterable[str], nodes: Collection[str]) -> list[Seen]:
    """See transactions, each shard at one moment. `nodes` are those that may run them."""
    by_shard: defaultdict[str, list[str]] = defaultdict(list)
    for tx_id in tx_ids:
        by_shard[tx_id[1:3]].append(tx_id)
    return [seen for ids in by_shard.values() for seen in _look_at_shard(live, ids, sorted(nodes))]


def find_nodes(live: LiveStore) -> set[str]:
    """All nodes that are said to run something, those that nobody knows any more too."""
    start = live.keys.in_shard("*", "runningS:")
    keys = live.redis.scan_iter(match=f"{start}*", count=BATCH * 10)
    return {key.partition(":runningS:")[2] for key in keys}


def check_transaction(seen: Seen) -> list[str]:
    """What is wrong with one transaction, in words; empty if nothing is."""
    if not seen.fields:
        return _misplaced(seen, "gone") + ([f"{seen.deltas} deltas without a state"] * bool(seen.deltas))
    status = seen.fields.get("status", "")
    if status not in list(Status):
        return [f"its status is {status!r}, which nobody knows"]
    mode = "final" if Status(status) in FINAL else status
    faults = _misplaced(seen, mode) + _wrong_fields(seen, mode)
    return faults or _wrong_values(seen, Status(status))


# The rules.


def _misplaced(seen: Seen, mode: str) -> list[str]:
    here = set(seen.scores)
    if seen.nodes:
        here.add("runningS")
    if seen.ttl_ms is not None:
        here.add("ttl")
    marks = _WHERE[mode]
    faults = _against(mode, marks, here, ("is not in", "is in"))
    either = [name for name, mark in marks.items() if mark == "one"]
    if either and len(here.intersection(either)) != 1:
        both = " and ".join(sorted(here.intersection(either))) or "neither"
        faults.append(f"{mode}, but of {' and '.join(either)} it has {both}")
    return faults


def _wrong_fields(seen: Seen, mode: str) -> list[str]:
    missing = [name for name in ALWAYS if name not in seen.fields]
    faults = [f"{mode}, but has no {name}" for name in missing]
    return faults + _against(mode, _FIELDS[mode], set(seen.fields), ("has no", "has"))


def _against(
    mode: str, marks: Mapping[str, str], here: set[str], say: tuple[str, str]
) -> list[str]:
    missing = [name for name, mark in marks.items() if mark == "yes" and name not in here]
    excess = [name for name, mark in marks.items() if mark == "no" and name in here]
    faults = [f"{mode}, but {say[0]} {name}" for name in missing]
    return faults + [f"{mode}, but {say[1]} {name}" for name in excess]


def _wrong_values(seen: Seen, status: Status) -> list[str]:
    fields = seen.fields
    faults = [
        f"{name} is {fields[name]!r}, not a number from {least} on"
        for name, least in NUMBERS.items()
        if not fields[name].isdecimal() or int(fields[name]) < least
    ]
    if faults:
        return faults
    if status in CLAIMED_ONCE and fields["fence"] == "0":
        faults.append(f"{status}, but was never claimed: its fence is 0")
    behind = int(fields["version"]) - int(fields["jsonVersion"])
    if behind != seen.deltas:
        faults.append(f"its JSON is {behind} deltas behind, but there are {seen.deltas}")
    if fields["priority"] not in PRIORITIES:
        faults.append(f"its priority is {fields['priority']!r}")
    if fields.get("begun", "1") != "1":
        faults.append(f"begun is {fields['begun']!r}, not 1")
    if status is Status.RUNNING and seen.nodes != {fields["node"]}:
        faults.append(f"runs on {fields['node']}, but is in runningS of {', '.join(seen.nodes)}")
    if status is Status.SLEEPING and str(int(seen.scores["sleepingZ"])) != fields["wakeTime"]:
        faults.append(f"wakes at {fields['wakeTime']}, but sleepingZ says otherwise")
    return faults


# Looking.


def _look_at_shard(live: LiveStore, tx_ids: Sequence[str], nodes: Sequence[str]) -> list[Seen]:
    # In one MULTI: between two scripts, never in the middle of what one changes.
    pipeline = live.redis.pipeline(transaction=True)
    for node in nodes:
        pipeline.smismember(live.keys.of_tx(tx_ids[0], f"runningS:{node}"), list(tx_ids))
    for tx_id in tx_ids:
        _ask(pipeline, live, tx_id)
    answers = pipeline.execute()
    running, answers = answers[: len(nodes)], answers[len(nodes) :]
    size = len(answers) // len(tx_ids)
    return [
        _seen(
            tx_id,
            answers[place * size : (place + 1) * size],
            frozenset(node for node, held in zip(nodes, running, strict=True) if held[place]),
        )
        for place, tx_id in enumerate(tx_ids)
    ]


def _ask(pipeline: Pipeline, live: LiveStore, tx_id: str) -> None:
    state = live.keys.state(tx_id)
    pipeline.hmget(state, _READ)
    pipeline.hexists(state, "state")
    pipeline.pttl(state)
    pipeline.llen(live.keys.deltas(tx_id))
    for name in LISTS:
        pipeline.zscore(live.keys.of_tx(tx_id, name), tx_id)


def _seen(tx_id: str, answers: Sequence[object], nodes: frozenset[str]) -> Seen:
    values, has_json, ttl_ms, deltas, *scores = answers
