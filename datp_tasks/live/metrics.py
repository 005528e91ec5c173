"""Metrics in slots of time: 5 s kept for 5 min, 100 s for 2 h, 1000 s for 24 h.

Scripts count in their shard, in the step that makes the change. The meter (a beat job) takes what
was counted in slots that are over and adds it to the series here, which are few keys outside the
shards. Gauges are sampled by the meter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis

from datp_tasks.live.keys import Keys
from datp_tasks.live.scripts import call, script
from datp_tasks.live.store import LiveStore

#: Names that one call of the script looks at, and calls for each shard: while it runs, Redis does
#: nothing else.
FIELDS_MAX = 500
ROUNDS_MAX = 100


@dataclass(frozen=True, slots=True)
class Resolution:
    slot_s: int
    kept_s: int

    def start(self, second: int) -> int:
        return second // self.slot_s * self.slot_s


RESOLUTIONS = {
    "fine": Resolution(5, 300),
    "middle": Resolution(100, 7_200),
    "coarse": Resolution(1_000, 86_400),
}


@dataclass(frozen=True, slots=True)
class Label:
    """What was counted, and for whom. Ended transactions are counted under their status."""

    what: str
    group: str = ""
    pipeline: str = ""
    owner: str = ""

    @classmethod
    def from_text(cls, text: str) -> Label:
        return cls(*text.split("|", 3))

    def to_text(self) -> str:
        return "|".join((self.what, self.group, self.pipeline, self.owner))


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a series: counters that were added up, gauges as last sampled."""

    start_s: int
    counts: Mapping[Label, int]
    gauges: Mapping[str, float]


def take_counts(live: LiveStore) -> dict[tuple[int, Label], int]:
    """What the scripts have counted in slots that are over; it is forgotten there.

    Much may have been counted while the meter did not run: each call takes a part, and what is
    left after ROUNDS_MAX calls is taken the next time.
    """
    taken: Counter[tuple[int, Label]] = Counter()
    cursors = dict.fromkeys(live.shards, "0")
    for _ in range(ROUNDS_MAX):
        calls: list[Any] = [
            call(
                script("take_counts"),
                (live.keys.in_shard(shard, "countsH"),),
                (live.given_now(), cursor, FIELDS_MAX),
            )
            for shard, cursor in cursors.items()
        ]
        for shard, (_, flat, cursor) in zip(list(cursors), live.run(calls), strict=True):
            _add_up(taken, flat)
            cursors[shard] = str(cursor)
        cursors = {shard: cursor for shard, cursor in cursors.items() if cursor != "0"}
        if not cursors:
            break
    return dict(taken)


def _add_up(taken: Counter[tuple[int, Label]], flat: Sequence[Any]) -> None:
    for name, number in zip(flat[::2], flat[1::2], strict=True):
        slot, _, label = str(name).partition("|")
        taken[int(slot), Label.from_text(label)] += int(number)


class Metrics:
    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    def add(
        self, counts: Mapping[tuple[int, Label], int], gauges: Mapping[str, float], now_s: int
    ) -> None:
        """Add to all series, and to the totals that only grow."""
        pipeline = self._redis.pipeline(transaction=False)
        touched: dict[str, int] = {}
        sums: Counter[tuple[str, str]] = Counter()
        for (second, label), number in counts.items():
            sums[self._keys.outside("metricTotalsH"), label.to_text()] += number
            for resolution in RESOLUTIONS.values():
                start = resolution.start(second)
                if start > now_s - resolution.kept_s - resolution.slot_s:
                    key = self._key(resolution, start)
                    sums[key, label.to_text()] += number
                    touched[key] = resolution.kept_s + resolution.slot_s
        for (key, name), number in sums.items():
            pipeline.hincrby(key, name, number)
        for resolution in RESOLUTIONS.values():
            key = self._key(resolution, resolution.start(now_s))
            for name, value in gauges.items():
                pipeline.hset(key, f"={name}", repr(value))
            touched[key] = resolution.kept_s + resolution.slot_s
        for key, keep_s in touched.items():
            pipeline.expire(key, keep_s)
        if gauges:
            pipeline.hset(
                self._keys.outside("gaugesH"), mapping={n: repr(v) for n, v in gauges.items()}
            )
        pipeline.execute()

    def series(self, resolution: Resolution, now_s: int) -> list[Slot]:
        """All slots that are kept, oldest first; one in which nothing happened is there, too."""
        last = resolution.start(now_s)
        slots = resolution.kept_s // resolution.slot_s
        starts = [last - back * resolution.slot_s for back in reversed(range(slots))]
        pipeline = self._redis.pipeline(transaction=False)
        for start in starts:
            pipeline.hgetall(self._key(resolution, start))
        return [
            _slot(start, fields) for start, fields in zip(starts, pipeline.execute(), strict=True)
        ]

    def sampled(
        self, names: Sequence[str], resolution: Resolution, *, since_s: int, until_s: int
    ) -> list[list[float]]:
        """Of each gauge what was sampled in that time, oldest first."""
        if not names:
            return []
        starts = range(resolution.start(since_s), until_s, resolution.slot_s)
        pipeline = self._redis.pipeline(transaction=False)
        for start in starts:
            pipeline.hmget(self._key(resolution, start), [f"={name}" for name in names])
        slots = pipeline.execute()
        return [[float(slot[at]) for slot in slots if slot[at]] for at in range(len(names))]

    def totals(self) -> dict[Label, int]:
        """Since the beginning of counting; they only grow."""
        found = self._redis.hgetall(self._keys.outside("metricTotalsH"))
        return {Label.from_text(str(name)): int(number) for name, number in found.items()}

    def gauges(self) -> dict[str, float]:
        """As the meter saw them last."""
        found = self._redis.hgetall(self._keys.outside("gaugesH"))
        return {str(name): float(value) for name, value in found.items()}

    def step_times(self) -> dict[str, tuple[int, float]]:
        """Place -> how many transactions passed it, and seconds spent in its steps."""
        found = self._redis.hgetall(self._keys.outside("stepTimesH"))
        places = {str(name).rpartition("|")[0] for name in found}
        return {
            place: (int(found.get(f"{place}|n", 0)), int(found.get(f"{place}|us", 0)) / 1e6)
            for place in sorted(places)
        }

    def _key(self, resolution: Resolution, start_s: int) -> str:
        number = [*RESOLUTIONS.values()].index(resolution) + 1
        return self._keys.outside(f"metric{number}H:{start_s}")


def summed(slot: Slot, *, by: Iterable[str]) -> dict[tuple[str, ...], int]:
    """The counters of a slot, added up over everything that is not named."""
    names = tuple(by)
    total: Counter[tuple[str, ...]] = Counter()
    for label, number in slot.counts.items():
        total[tuple(getattr(label, name) for name in names)] += number
    return dict(total)


def _slot(start_s: int, fields: Mapping[Any, Any]) -> Slot:
    counts = {Label.from_text(str(n)): int(v) for n, v in fields.items() if str(n)[0] != "="}
    gauges = {str(n)[1:]: float(v) for n, v in fields.items() if str(n)[0] == "="}
    return Slot(start_s, counts, gauges)
