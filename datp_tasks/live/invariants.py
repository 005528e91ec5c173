"""What must hold for every transaction in Redis between any two scripts.

`WHERE` and `FIELDS` are the table of modes: for each status the lists that a transaction is in,
and the fields that it has. One mode differs from the original table on purpose: a running
transaction is not in `queuedZ`, because `claim` would refuse a bell for it.

Operators call `check_all`; tests call `check_transaction` after every move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from datp_tasks.live.keys import LISTS, shard_of_tx
from datp_tasks.live.live_types import PRIORITIES
from datp_tasks.live.store import LiveStore
from datp_tasks.model.status import FINAL, Status

#: yes: must be; no: must not be; may: either; one: exactly one of the columns marked so.
#: `ttl` tells whether the state leaves Redis by itself; `gone` is a state that has left. In
#: `toArchiveZ` a transaction that goes on waits for SQL to get a copy of it, not to leave.
WHERE = """
status    queuedZ  processingZ  runningS  sleepingZ  toArchiveZ  exceptionZ  ttl
queued    yes      no           no        no         may         no          no
running   no       yes          yes       no         may         no          no
sleeping  no       no           no        yes        may         no          may
in-doubt  no       no           no        no         may         yes         no
final     no       no           no        no         one         no          one
gone      no       no           no        may        no          no          no
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
ALWAYS = (
    *("owner", "pipeline", "group", "place", "priority"),
    *("fence", "sequence", "version", "jsonVersion", "state"),
)
#: Those of them that are numbers, and the least they can be.
NUMBERS = {"fence": 0, "sequence": 1, "version": 0, "jsonVersion": 0}
#: Statuses that only a claim leads to.
CLAIMED_ONCE = frozenset({Status.RUNNING, Status.SLEEPING, Status.IN_DOUBT})

#: How many transactions are looked at in one moment.
BATCH = 100
SCAN_COUNT = 1_000
VIOLATIONS_MAX = 1_000
#: What PTTL says instead of a time; -1 if there is none.
NO_SUCH_KEY = -2

T = TypeVar("T")


def _table(text: str) -> dict[str, dict[str, str]]:
    heading, *rows = (line.split() for line in text.strip().splitlines())
    return {row[0]: dict(zip(heading[1:], row[1:], strict=True)) for row in rows}


_WHERE = _table(WHERE)
_FIELDS = _table(FIELDS)
_READ = ("status", "begun", *ALWAYS[:-1], *_FIELDS["queued"])


@dataclass(frozen=True, slots=True)
class Observed:
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
    """What is wrong now, found in bounded batches; the system may go on meanwhile."""
    found: dict[Violation, None] = {}
    for violation in _violations(live, find_nodes(live)):
        found[violation] = None
        if len(found) >= violations_max:
            break
    return list(found)


def look(live: LiveStore, tx_ids: Iterable[str], nodes: Collection[str]) -> list[Observed]:
    """See transactions, each shard at one moment. `nodes` are those that may run them."""
    by_shard: defaultdict[str, list[str]] = defaultdict(list)
    for tx_id in tx_ids:
        by_shard[tx_id[1:3]].append(tx_id)
    return [each for ids in by_shard.values() for each in _look_at_shard(live, ids, sorted(nodes))]


def find_nodes(live: LiveStore) -> set[str]:
    """All nodes that are said to run something, even those that are not registered any more."""
    pattern = live.keys.in_shard("*", "runningS:*")
    keys = live.redis.scan_iter(match=pattern, count=SCAN_COUNT)
    return {key.partition(":runningS:")[2] for key in keys}


def check_transaction(seen: Observed) -> list[str]:
    """What is wrong with one transaction, in words; empty if nothing is."""
    if not seen.fields:
        left = [f"gone, but {seen.deltas} deltas of it are left"] if seen.deltas else []
        return _misplaced(seen, "gone") + left
    status = seen.fields.get("status", "")
    if status not in list(Status):
        return [f"its status is {status!r}, which is not a status"]
    mode = "final" if Status(status) in FINAL else status
    faults = _misplaced(seen, mode) + _wrong_fields(seen, mode)
    return faults or _wrong_values(seen, Status(status))


# The rules.


def _misplaced(seen: Observed, mode: str) -> list[str]:
    here = set(seen.scores)
    if seen.nodes:
        here.add("runningS")
    if seen.ttl_ms is not None:
        here.add("ttl")
    faults = _against(mode, _WHERE[mode], here)
    either = [name for name, mark in _WHERE[mode].items() if mark == "one"]
    if either and len(here.intersection(either)) != 1:
        has = "both" if here.issuperset(either) else "neither"
        faults.append(f"{mode}, but of {' and '.join(either)} it has {has}")
    if mode == "sleeping" and {"toArchiveZ", "ttl"} <= here:
        faults.append("sleeping and about to leave, but SQL does not have it yet")
    return faults


def _wrong_fields(seen: Observed, mode: str) -> list[str]:
    faults = [f"{mode}, but without {name}" for name in ALWAYS if name not in seen.fields]
    return faults + _against(mode, _FIELDS[mode], set(seen.fields))


def _against(mode: str, marks: Mapping[str, str], here: set[str]) -> list[str]:
    missing = [name for name, mark in marks.items() if mark == "yes" and name not in here]
    excess = [name for name, mark in marks.items() if mark == "no" and name in here]
    faults = [f"{mode}, but without {name}" for name in missing]
    return faults + [f"{mode}, but with {name}" for name in excess]


def _wrong_values(seen: Observed, status: Status) -> list[str]:
    fields = seen.fields
    faults = [
        f"{name} is {fields[name]!r}, not a number from {least} on"
        for name, least in NUMBERS.items()
        if not fields[name].isdecimal() or int(fields[name]) < least
    ]
    if faults:
        return faults
    behind = int(fields["version"]) - int(fields["jsonVersion"])
    lost = behind < 0 or (behind == 0 and seen.deltas > 0)
    unclaimed = status in CLAIMED_ONCE and fields["fence"] == "0"
    rules = {
        f"{status}, but its fence is 0: no worker claimed it": unclaimed,
        f"its JSON is as new as its version, or newer, but there are {seen.deltas} deltas": lost,
        f"its priority is {fields['priority']!r}": fields["priority"] not in PRIORITIES,
        f"begun is {fields.get('begun')!r}, not 1": fields.get("begun", "1") != "1",
    }
    return [fault for fault, broken in rules.items() if broken] + _wrong_place(seen, status)


def _wrong_place(seen: Observed, status: Status) -> list[str]:
    if status is Status.RUNNING and seen.nodes != {seen.fields["node"]}:
        nodes = ", ".join(sorted(seen.nodes))
        return [f"{seen.fields['node']} runs it, but it is in runningS of {nodes}"]
    if status is Status.SLEEPING and f"{seen.scores['sleepingZ']:.0f}" != seen.fields["wakeTime"]:
        return [f"wakes at {seen.fields['wakeTime']}, but sleepingZ says otherwise"]
    return []


# Looking at transactions.


def _look_at_shard(live: LiveStore, tx_ids: Sequence[str], nodes: Sequence[str]) -> list[Observed]:
    # One MULTI: it sees what is there between two scripts, never half of what one changes.
    pipeline = live.redis.pipeline(transaction=True)
    for node in nodes:
        pipeline.smismember(live.keys.of_tx(tx_ids[0], f"runningS:{node}"), list(tx_ids))
    for tx_id in tx_ids:
        state = live.keys.state(tx_id)
        pipeline.hmget(state, _READ)
        pipeline.hexists(state, "state")
        pipeline.pttl(state)
        pipeline.llen(live.keys.deltas(tx_id))
        for name in LISTS:
            pipeline.zscore(live.keys.of_tx(tx_id, name), tx_id)
    answers = pipeline.execute()
    running, answers = answers[: len(nodes)], answers[len(nodes) :]
    size = len(answers) // len(tx_ids)
    found = []
    for place, tx_id in enumerate(tx_ids):
        runs = frozenset(node for node, held in zip(nodes, running, strict=True) if held[place])
        found.append(_seen(tx_id, runs, answers[place * size : (place + 1) * size]))
    return found


def _seen(tx_id: str, nodes: frozenset[str], answers: Sequence[Any]) -> Observed:
    values, has_json, ttl_ms, deltas, *scores = answers
    fields = {n: value for n, value in zip(_READ, values, strict=True) if value is not None}
    if has_json:
        fields["state"] = ""
    if ttl_ms != NO_SUCH_KEY:
        fields.setdefault("status", "")
    placed = {n: score for n, score in zip(LISTS, scores, strict=True) if score is not None}
    ends_in_ms = ttl_ms if ttl_ms >= 0 else None
    return Observed(tx_id, fields, placed, nodes, ends_in_ms, deltas)


# Looking for transactions.


def _violations(live: LiveStore, nodes: Collection[str]) -> Iterator[Violation]:
    for listed in _batches(_members(live, nodes)):
        yield from _strays(live, listed, nodes)
    for pattern in (live.keys.in_shard("*", name) for name in ("stateH:*", "deltaL:*")):
        keys = live.redis.scan_iter(match=pattern, count=SCAN_COUNT)
        for tx_ids in _batches(key.rpartition(":")[2] for key in keys):
            yield from _check(live, tx_ids, nodes)


def _strays(
    live: LiveStore, listed: Sequence[tuple[str, str, str]], nodes: Collection[str]
) -> Iterator[Violation]:
    """Members of lists that have no state, or that belong elsewhere."""
    at_home = [member for shard, _, member in listed if shard_of_tx(member) == shard]
    orphans = [tx for tx, here in zip(at_home, live.exist_many(at_home), strict=True) if not here]
    yield from _check(live, orphans, nodes)
    for shard, name, member in listed:
        if shard_of_tx(member) != shard:
            yield Violation(member, f"no transaction of shard {shard}, but in {name} there")


def _check(live: LiveStore, tx_ids: Sequence[str], nodes: Collection[str]) -> Iterator[Violation]:
    suspects = [seen for seen in look(live, tx_ids, nodes) if check_transaction(seen)]
    # A node that has started since the nodes were listed makes good transactions look bad.
    newcomers = {seen.fields["node"] for seen in suspects if "node" in seen.fields}
    for seen in look(live, [each.tx_id for each in suspects], newcomers.union(nodes)):
        yield from (Violation(seen.tx_id, what) for what in check_transaction(seen))


def _members(live: LiveStore, nodes: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Shard, list and member, for every list of transactions."""
    for shard in live.shards:
        for name in LISTS:
            key = live.keys.in_shard(shard, name)
            for member, _ in live.redis.zscan_iter(key, count=BATCH):
                yield shard, name, member
        for name in (f"runningS:{node}" for node in sorted(nodes)):
            for member in live.redis.sscan_iter(live.keys.in_shard(shard, name), count=BATCH):
                yield shard, name, member


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while batch := list(islice(left, BATCH)):
        yield batch
