"""Which attempts to make now, within what this process, an owner and a target may have under way.

take (Redis, rescored) → look (SQL) → sort → claim (SQL, compare and set) → place the rest
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from datp_tasks.failpoints import reach
from datp_tasks.live.webhook_schedule import WebhookSchedule
from datp_tasks.record.webhook_queue import (
    ClaimedDelivery,
    Member,
    Receiver,
    Waiting,
    WebhookQueue,
    webhook_id,
)
from datp_tasks.settings import Settings
from datp_tasks.webhooks import verdict

#: One target that is slow leaves places to the others.
PER_URL_MAX = 8
#: Deliveries per look: some rounds of the workers.
BATCH_MAX = 500
#: What is taken may be for targets that are busy, so more is taken than there is room for.
TAKE_FACTOR = 4
#: An owner may have so many times under way what it leaves free. One owner alone gets three
#: quarters of the places; and however many have receivers that hang, some places stay free for
#: those that come next.
OWNER_SHARE = 3
#: Those that wait for a target come back spread over so much more of the time.
SPREAD = 0.2
#: How long an attempt takes, until it was measured.
PACE_S = 0.05


@dataclass(frozen=True, slots=True)
class Busy:
    """What a target has under way: how many, and how long one of them takes."""

    count: int = 0
    pace_s: float = PACE_S


@dataclass(frozen=True, slots=True)
class Capacity:
    """What this process has under way, and how many places it has left."""

    free: int
    receivers: Mapping[Receiver, Busy] = field(default_factory=dict)


class _Places:
    """The free places of this process, as owners share them."""

    def __init__(self, load: Capacity) -> None:
        self._free = load.free
        self._taken: Counter[str] = Counter()
        for (owner, _), busy in load.receivers.items():
            self._taken[owner] += busy.count

    def room(self, owner: str) -> int:
        """How many more this owner may have under way."""
        taken = self._taken[owner]
        room = (OWNER_SHARE * self._free - taken) // (OWNER_SHARE + 1)
        return max(room, int(self._free > 0 and taken == 0))

    def take(self, owner: str) -> None:
        self._free -= 1
        self._taken[owner] += 1


@dataclass(frozen=True, slots=True)
class Picked:
    claimed: list[ClaimedDelivery]
    #: Something was due, so more of it may be.
    is_more: bool = False
    #: When the first of those is due that had to wait for their turn.
    turn_s: float | None = None


@dataclass(slots=True)
class _Sorted:
    chosen: list[Waiting] = field(default_factory=list)
    #: Where each of the others goes on the schedule; None takes it off.
    placed: list[tuple[Member, float | None]] = field(default_factory=list)
    #: Put off in SQL, too, because their target is disabled.
    held: list[tuple[str, float]] = field(default_factory=list)
    buried: list[str] = field(default_factory=list)
    #: How long those wait that have no room now.
    turns: list[float] = field(default_factory=list)

    def put_off(self, each: Waiting, turn_s: float) -> None:
        """There is no room for it now."""
        self.turns.append(turn_s)
        self.placed.append((each.member, turn_s))


class Picker:
    def __init__(
        self,
        settings: Settings,
        queue: WebhookQueue,
        schedule: WebhookSchedule,
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._schedule = schedule
        self._rng = rng

    def pick(self, load: Capacity) -> Picked:
        """Attempts to make now."""
        settings = self._settings
        places = _Places(load)
        taken = self._schedule.take(
            batch_max=min(BATCH_MAX, TAKE_FACTOR * load.free),
            hold_s=settings.webhook_hold_s,
            room=lambda owner: TAKE_FACTOR * places.room(owner),
        )
        if not taken:
            return Picked([])
        reach("webhooks.after_take")
        waiting = self._queue.look([webhook_id(member) for member in taken])
        # What has ended, or never was, needs no place on the schedule.
        known = {each.member for each in waiting}
        found = _Sorted(placed=[(member, None) for member in taken if member not in known])
        self._sort(_in_turn(waiting), places, load.receivers, found)
        claimed = self._queue.claim(found.chosen, settings.webhook_hold_s) if found.chosen else []
        reach("webhooks.after_claim")
        if found.held:
            self._queue.hold(found.held)
        if found.buried:
            self._queue.bury(found.buried)
        self._schedule.place(found.placed)
        return Picked(claimed, is_more=True, turn_s=min(found.turns, default=None))

    def repair(self) -> int:
        """Put back what Redis does not know of: SQL has it, and no sender has taken it."""
        settings = self._settings
        overdue = self._queue.overdue(settings.webhook_overdue_s, BATCH_MAX)
        self._schedule.place([(member, 0.0) for member in overdue], only_new=True)
        return len(overdue)

    def _sort(
        self,
        waiting: list[Waiting],
        places: _Places,
        busy: Mapping[Receiver, Busy],
        found: _Sorted,
    ) -> None:
        counts: dict[Receiver, int] = {}
        probing: set[Receiver] = set()
        for each in waiting:
            if each.wait_s > 0:
                found.placed.append((each.member, each.wait_s))
            elif each.is_broken:
                self._sort_broken(each, probing, places, found)
            else:
                now = busy.get(each.receiver, Busy())
                count = counts[each.receiver] = counts.get(each.receiver, now.count) + 1
                excess = count - PER_URL_MAX
                if excess <= 0 and places.room(each.owner) > 0:
                    places.take(each.owner)
                    found.chosen.append(each)
                else:
                    found.put_off(each, self._turn_s(excess, now.pace_s))

    def _sort_broken(
        self, each: Waiting, probing: set[Receiver], places: _Places, found: _Sorted
    ) -> None:
        """Nothing for a target that is disabled, but for one that finds out whether it is back."""
        hold_s = self._settings.webhook_hold_s
        if each.age_s > verdict.GIVE_UP_S:
            found.buried.append(each.id)
            found.placed.append((each.member, None))
            return
        if each.disabled_s <= 0 and each.receiver not in probing:
            if places.room(each.owner) <= 0:
                # It may hang as before, so it needs a place as any other does.
                found.put_off(each, self._turn_s(0, PACE_S))
                return
            probing.add(each.receiver)
            if self._queue.probe(each.receiver, hold_s):
                places.take(each.owner)
                found.chosen.append(each)
                return
        wait_s = (each.disabled_s or hold_s) * (1 + SPREAD * self._rng.random())
        found.held.append((each.id, wait_s))
        found.placed.append((each.member, wait_s))

    def _turn_s(self, excess: int, pace_s: float) -> float:
        """When it may be its turn: so many are before it, and one takes about so long."""
        rounds = max(0, excess) / PER_URL_MAX
        return max(self._settings.webhook_pause_busy_ms / 1_000, rounds * pace_s)


def _in_turn(waiting: list[Waiting]) -> list[Waiting]:
    """The first of each owner, then the second of each; those of an owner stay in their order."""
    ranks: Counter[str] = Counter()
    ranked = []
    for each in waiting:
        ranked.append((ranks[each.owner], each))
        ranks[each.owner] += 1
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]
