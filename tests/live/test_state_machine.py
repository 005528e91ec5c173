"""Random operations against real Redis, beside a model: whatever happens in whatever order,
every transaction is where its status says, a stale worker changes nothing, and the journal alone
leads to what is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from datp_tasks.jobs.archiver import as_confirmed
from datp_tasks.live import store
from datp_tasks.live.archive_feed import Copied
from datp_tasks.live.invariants import Observed, check_all, check_transaction, look
from datp_tasks.live.live_types import Bell, Claimed, Held, NewTransaction, Refused, Restored
from datp_tasks.live.scripts import ScriptCall, script
from datp_tasks.model.journal import Entry, living_branch
from datp_tasks.model.state import BEGIN, CRASH, Delta, State
from datp_tasks.model.status import FINAL
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.model.view import View
from datp_tasks.testing.servers import Servers
from tests.live.live_dice import Dice
from tests.live.live_model import Hold, Log, Modelled, following, lines_of
from tests.support.live_states import (
    HERE,
    NODES,
    OPENS,
    STEP,
    Stage,
    kinds_written,
    moves_of,
)

LIVE_MAX = 3
SWITCHES_MAX = 2
#: The search of Hypothesis keeps near what it has seen, so it is sent off from many places.
WORLDS = 8
EXAMPLES = 4
STEPS = 50
#: What Hypothesis does for a step takes longer than an operation.
OPERATIONS_A_STEP = 4
#: Longer than any fence or version runs ahead of the clock here: a loss takes longer than that.
OUTAGE_S = 1

#: What may happen, and how often in relation to the rest. Each is a method of the machine.
OPERATIONS = {
    "create": 2,
    "create_again": 1,
    "claim": 12,
    "claim_with_any_bell": 3,
    "checkpoint": 5,
    "hand_over": 4,
    "sleep": 10,
    "park": 3,
    "resolve": 4,
    "finish": 2,
    "report_progress": 2,
    "take_over": 3,
    "wake": 5,
    "set_switch": 10,
    "stop": 5,
    "ring_again": 2,
    "note_problem": 2,
    "follow_sql": 1,
    "archiver_reads": 9,
    "confirm_archived": 4,
    "leave_memory": 8,
    "restore": 6,
    "lose_and_place_again": 1,
    "lose_and_rebuild": 3,
    "remember": 4,
    "fall_back": 3,
    "rebuild_what_is_behind": 6,
    "advance": 3,
    "meet_a_stranger": 1,
}

#: The scripts that this machine drives, to every answer that they can give.
DRIVEN = (
    *("create", "claim", "checkpoint", "hand_over", "sleep", "park", "resolve", "finish"),
    *("report_progress", "take_over", "wake", "set_switch", "stop"),
    *("ring_again", "note_problem", "confirm_archived", "restore"),
)

#: Fields that no script of a transaction on its way changes here; and since when it waits, which
#: is asked for where it is rung again.
UNCHANGED = ("owner", "pipeline", "group", "stepType", "place", "metadata", "externalId", "rung")


@dataclass(frozen=True)
class Image:
    """A transaction as Redis had it once, and as the model did."""

    model: Modelled
    fields: dict[str, str]
    seen: Observed

    def is_ahead_of(self, tx_id: str, recorded: Sequence[Entry]) -> bool:
        return self.seen.tx_id == tx_id and not set(self.model.entries) <= set(recorded)


class LiveMachine(RuleBasedStateMachine):
    servers: ClassVar[Servers]
    world: ClassVar[int]
    answers_seen: ClassVar[set[tuple[str, str]]] = set()
    moves_seen: ClassVar[set[tuple[str, str]]] = set()
    kinds_seen: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(self.servers)
        self.live = self.stage.live
        self.live.answers_seen, self.live.moves_seen = self.answers_seen, self.moves_seen
        self.model: dict[str, Modelled] = {}
        self.accepted: dict[str, NewTransaction] = {}
        self.highest_fence: dict[str, int] = {}
        self.bells: list[tuple[str, int]] = []
        #: Of all workers that ever claimed anything; they never forget.
        self.holds: list[Hold] = []
        #: Transaction and version, as an archiver once read them.
        self.reads: list[tuple[str, str, str]] = []
        self.images: list[Image] = []
        #: What the last operation must have written into the journal.
        self.log: Log = []
        #: The journal in SQL: everything that was ever read from the stream, in that order.
        self.recorded: defaultdict[str, list[Entry]] = defaultdict(list)
        self._read_to = "-"
        self._documents = 0
        self._steps = 0

    @initialize()
    def begin(self) -> None:
        self._create(external_id="e")
        self._create(external_id=None)

    @rule(seed=st.integers(min_value=0, max_value=2**64 - 1))
    def something_happens(self, seed: int) -> None:
        # A seed instead of many draws: it spreads the choices evenly, and much faster.
        for _ in range(OPERATIONS_A_STEP):
            self.everything_is_where_its_status_says()
            self._steps += 1
            dice = Dice(f"{self.world} {self._steps} {seed}")
            operation = dice.weighted(OPERATIONS)
            note(f"{operation} in world {self.world}")
            getattr(self, operation)(dice)

    def everything_is_where_its_status_says(self) -> None:
        """Those that ended long ago are looked at once more at the end."""
        self._read_journal()
        ended = [tx for tx in self.model.values() if tx.ended]
        self._compare([tx for tx in self.model.values() if not tx.ended] + ended[-1:])

    def teardown(self) -> None:
        try:
            self._read_journal()
            self._compare(list(self.model.values()))
            assert check_all(self.live) == []
        finally:
            self.stage.close()

    def _read_journal(self) -> None:
        """The stream has one entry more for each change, and no other."""
        found = self.stage.stream(since=self._read_to)
        new = [(tx_id, entry) for _, tx_id, entry in found]
        assert new == self.log
        for tx_id, entry in new:
            self.recorded[tx_id].append(entry)
            self.kinds_seen.add(entry.kind)
        if found:
            self._read_to = f"({found[-1][0]}"
        self.log.clear()

    def _compare(self, those: Sequence[Modelled]) -> None:
        tx_ids = [tx.tx_id for tx in those]
        stored = dict(zip(tx_ids, self.live.fields_many(tx_ids), strict=True))
        for seen in look(self.live, tx_ids, NODES):
            tx, fields = self.model[seen.tx_id], stored[seen.tx_id]
            assert check_transaction(seen) == [], (seen, tx)
            assert bool(fields) != tx.gone
            assert set(seen.scores) == tx.lists()
            assert seen.nodes == ({tx.node} if tx.node else set())
            assert (seen.ttl_ms is not None) == (tx.leaves and not tx.gone)
            assert seen.deltas == (0 if tx.gone else len(tx.deltas))
            if fields:
                written = {name: fields[name] for name in fields if name not in UNCHANGED}
                assert written == tx.fields()
                self._fold(tx, fields)

    def _fold(self, tx: Modelled, fields: dict[str, str]) -> None:
        """Nothing but the first state and the journal is needed to tell what is in Redis."""
        deltas = self.stage.deltas(tx.tx_id) if tx.deltas else []
        assert deltas == tx.deltas
        branch = living_branch(tx.entries)
        assert branch == tx.entries
        live = View.from_fields(fields, deltas)
        assert self._first_view(tx.tx_id).fold(branch) == live
        recorded = self.recorded[tx.tx_id]
        if recorded and branch and recorded[-1] is branch[-1]:
            assert living_branch(recorded) == branch

    def _first_view(self, tx_id: str) -> View:
        return View(State.from_json(self.accepted[tx_id].state_json))

    # The way in.

    def create(self, dice: Dice) -> None:
        if sum(not tx.ended for tx in self.model.values()) < LIVE_MAX:
            self._create(f"e{len(self.model)}" if dice.yes() else None, plain=dice.yes())

    def _create(self, external_id: str | None, *, plain: bool = False) -> None:
        new = self.stage.new(external_id=external_id)
        if plain:
            # With no field that only some have.
            new = replace(new, metadata_json=None)
        assert self.live.create_many([new]) == [new.bell(1)]
        self.accepted[new.tx_id] = new
        self.model[new.tx_id] = Modelled(new.tx_id, new.state_json, self.log)
        self.highest_fence[new.tx_id] = 0
        self.bells.append((new.tx_id, 1))

    def create_again(self, dice: Dice) -> None:
        again = replace(self.stage.new(), tx_id=self._any(dice).tx_id, state_json="{}")
        with self.stage.nothing_changes():
            assert self.live.create_many([again]) == [None]

    # The door.

    def claim(self, dice: Dice) -> None:
        tx = dice.likely(list(self.model.values()), lambda tx: tx.status == "queued")
        self._claim(tx, tx.sequence, dice)

    def claim_with_any_bell(self, dice: Dice) -> None:
        tx_id, sequence = dice.one_of(self.bells)
        sequence += dice.one_of([0, 0, 1, -1])
        self._claim(self.model[tx_id], sequence, dice)

    def _claim(self, tx: Modelled, sequence: int, dice: Dice) -> None:
        node = dice.node()
        # A bell may be for another step than the one that is due by now.
        begin, step_type = dice.one_of([("", STEP), (OPENS, STEP), (OPENS, STEP), (OPENS, "t/x")])
        opens = (begin, step_type) == (OPENS, STEP)

        def knock() -> Claimed | Refused:
            pairs = [(tx.tx_id, sequence)]
            return self.live.claim_many(pairs, node, step_type=step_type, begin=begin)[0]

        if tx.gone:
            return self._nothing_changes(knock, Refused(tx.tx_id, "UNKNOWN", ""))
        if tx.status != "queued":
            return self._nothing_changes(knock, Refused(tx.tx_id, "NOT_QUEUED", tx.status))
        if sequence != tx.sequence:
            return self._nothing_changes(knock, Refused(tx.tx_id, "OLD_BELL", str(tx.sequence)))
        answer = knock()
        assert isinstance(answer, Claimed), answer
        assert answer.deltas == tx.deltas
        assert answer.opened == opens
        assert answer.fields["state"] == tx.json
        tx.claim(self.stage.now_ms, node, opens=opens)
        return self._hold(tx, answer, node)

    def _hold(self, tx: Modelled, claim: Claimed, node: str) -> None:
        assert claim.fence == tx.fence
        assert claim.fence > self.highest_fence[tx.tx_id]
        assert claim.fence >= self.stage.now_ms
        self.highest_fence[tx.tx_id] = claim.fence
        self.holds.append(Hold(tx.tx_id, claim.fence, node, tx.switch_seq))

    # What a worker writes, whether its claim is still right or not.

    def checkpoint(self, dice: Dice) -> None:
        if hold := self._any_hold(dice):
            held, snapshot = self._held(hold, dice), dice.yes()
            fields = ("begun", "1") if BEGIN in held.deltas else ()
            call = self.live.call_checkpoint(held, fields, snapshot=snapshot)
            if tx := self._holder_of(hold, call):
                tx.checkpoint(self.stage.now_ms, held.deltas, snapshot=snapshot)
                news = [tx.cancel or "", str(tx.switch_seq)] if tx.cancel or tx.switch_seq else []
                assert self.live.run([call]) == [["OK", *news]]

    def hand_over(self, dice: Dice) -> None:
        if hold := self._any_hold(dice):
            held, snapshot = self._held(hold, dice), dice.yes()
            json = self._json_after(held)
            call = self.live.call_hand_over(held, hold.node, json, HERE, snapshot=snapshot)
            if tx := self._holder_of(hold, call):
                tx.hand_over(self.stage.now_ms, held.deltas, snapshot=snapshot)
                assert self.live.run([call]) == [["OK", tx.sequence, str(tx.version)]]
                self.bells.append((tx.tx_id, tx.sequence))

    def sleep(self, dice: Dice) -> None:
        if not (hold := self._any_hold(dice)):
            return
        held, now_ms = self._held(hold, dice), self.stage.now_ms
        sleep_ms, heed_stop = dice.one_of([0, 100_000, 10**7, 10**7]), dice.yes()
        switch = dice.one_of(["", dice.switch(), *2 * list(self.model[hold.tx_id].switches)])
        seen = dice.one_of([hold.seen, hold.seen, self.model[hold.tx_id].switch_seq])
        call = self.live.call_sleep(
            held,
            hold.node,
            self._json_after(held),
            HERE,
            sleep_ms=sleep_ms,
            switch=switch,
            seen=seen,
            heed_stop=heed_stop,
        )
        if not (tx := self._holder_of(hold, call)):
            return
        if tx.cancel and heed_stop:
            self._nothing_changes(lambda: self.live.run([call]), [["STOP", tx.cancel]])
        elif tx.switches.get(switch, (0, ""))[0] > seen:
            self._nothing_changes(lambda: self.live.run([call])[0][0], "AWAKE")
        else:
            tx.sleep(now_ms, held.deltas, now_ms + sleep_ms, switch)
            assert self.live.run([call]) == [["OK", str(tx.wake_ms), str(tx.version)]]

    def park(self, dice: Dice) -> None:
        if hold := self._any_hold(dice):
            held = self._held(hold, dice)
            call = self.live.call_park(held, hold.node, self._json_after(held), "who knows")
            if tx := self._holder_of(hold, call):
                tx.park(self.stage.now_ms, held.deltas, "who knows")
                assert self.live.run([call]) == [["OK", str(tx.version)]]

    def finish(self, dice: Dice) -> None:
        if hold := self._any_hold(dice):
            held = self._held(hold, dice)
            status = dice.one_of(["success", "failed", "cancelled"])
            call = self.live.call_finish(held, hold.node, status, self._json_after(held))
            if self.model[hold.tx_id].asleep_elsewhere:
                return self._end_elsewhere(self.model[hold.tx_id], call, status)
            if tx := self._holder_of(hold, call, is_end=True):
                tx.finish(self.stage.now_ms, held.deltas, status)
                assert self.live.run([call]) == [["OK", str(tx.version)]]
        return None

    def _end_elsewhere(self, tx: Modelled, call: ScriptCall, status: str) -> None:
        """SQL has ended one that sleeps and has left memory: nobody must wake it any more."""
        before = self.stage.picture()
        assert self.live.run([call]) == [["UNKNOWN", ""]]
        sleeping = self.live.keys.of_tx(tx.tx_id, "sleepingZ")
        after = self.stage.picture()
        assert {key for key in before if before[key] != after.get(key)} == {sleeping}
        assert after.keys() <= before.keys()
        tx.status, tx.wake_ms, tx.wake_switch = status, None, None

    def report_progress(self, dice: Dice) -> None:
        if not (hold := self._any_hold(dice)):
            return
        tx, report = self.model[hold.tx_id], self._document()

        def tell() -> Refused | None:
            return self.live.report_progress(hold.tx_id, hold.fence, report)

        if tx.held_by(hold):
            tx.report_progress(self.stage.now_ms, report)
            assert tell() is None
        else:
            self._nothing_changes(tell, Refused(hold.tx_id, "STALE", tx.found))

    def take_over(self, dice: Dice) -> None:
        """The reaper takes the node for gone, rightly or not."""
        if not (hold := self._any_hold(dice)):
            return
        tx = self.model[hold.tx_id]
        order = (hold.tx_id, hold.fence, hold.fence + dice.one_of([1, 2, 3]))

        def take() -> list[Bell | Refused]:
            return self.live.take_over_many([order], hold.node)

        if not tx.held_by(hold):
            self._nothing_changes(take, [Refused(hold.tx_id, "STALE", tx.found)])
            return
        tx.take_over(self.stage.now_ms, order[2])
        self.highest_fence[tx.tx_id] = max(self.highest_fence[tx.tx_id], order[2])
        assert take() == [self._bell(tx)]

    # From outside.

    @staticmethod
    def _seen(dice: Dice, tx: Any) -> str:
        """What a caller saw of it: nothing, what is so, or what was so."""
        return dice.one_of(["", "", f"{tx.status}:{tx.fence}", f"{tx.status}:{tx.fence - 1}"])

    @staticmethod
    def _has_moved(tx: Any, seen: str) -> bool:
        return seen not in ("", f"{tx.status}:{tx.fence}")

    def wake(self, dice: Dice) -> None:
        tx = dice.likely(list(self.model.values()), lambda tx: tx.status == "sleeping")
        only_due, seen = dice.yes(), self._seen(dice, tx)

        def shake() -> list[Bell | Refused]:
            return self.live.wake_many([tx.tx_id], only_due=only_due, seen=seen)

        if tx.gone:
            self._nothing_changes(shake, [Refused(tx.tx_id, "UNKNOWN", "")])
        elif self._has_moved(tx, seen):
            self._nothing_changes(shake, [Refused(tx.tx_id, "MOVED", tx.status)])
        elif tx.status != "sleeping":
            self._nothing_changes(shake, [Refused(tx.tx_id, "NOT_SLEEPING", tx.status)])
        elif only_due and (tx.wake_ms or 0) > self.stage.now_ms:
            self._nothing_changes(shake, [Refused(tx.tx_id, "NOT_DUE", str(tx.wake_ms))])
        else:
            tx.wake(self.stage.now_ms)
            assert shake() == [self._bell(tx)]

    def set_switch(self, dice: Dice) -> None:
        tx, name = self._any(dice), dice.switch()
        if tx.wake_switch and dice.yes():
            name = tx.wake_switch
        value = dice.one_of(["true", "false", '"12:34=5"', ""])
        # From outside, or by a step of this claim or another.
        fence = dice.one_of([None, None, tx.fence, tx.fence - 1])
        seen = self._seen(dice, tx)

        def turn() -> Bell | Refused:
            return self.live.set_switch(tx.tx_id, name, value, fence=fence, seen=seen)

        if self._has_moved(tx, seen):
            self._nothing_changes(turn, Refused(tx.tx_id, "MOVED", tx.status))
        elif tx.ended:
            self._nothing_changes(turn, Refused(tx.tx_id, "FINAL", tx.status))
        elif fence is not None and (tx.status != "running" or fence != tx.fence):
            self._nothing_changes(turn, Refused(tx.tx_id, "STALE", tx.status))
        elif tx.switches.get(name, (0, ""))[1] == value:
            self._nothing_changes(turn, Refused(tx.tx_id, "NO_CHANGE", ""))
        elif name not in tx.switches and len(tx.switches) >= SWITCHES_MAX:
            self._nothing_changes(turn, Refused(tx.tx_id, "TOO_MANY", str(SWITCHES_MAX)))
        elif tx.wake_switch == name:
            tx.set_switch(self.stage.now_ms, name, value)
            assert turn() == self._bell(tx)
        else:
            tx.set_switch(self.stage.now_ms, name, value)
            assert turn() == Refused(tx.tx_id, "SET", str(tx.switch_seq))

    def stop(self, dice: Dice) -> None:
        tx, node, reason = self._any(dice), dice.node(), dice.one_of(["why", "why not"])
        request = StopRequest.cancel(reason) if dice.yes() else StopRequest.expiry(reason)
        only_seize, now_ms = dice.one_of([False, False, True]), self.stage.now_ms
        seen = self._seen(dice, tx)

        def ask() -> Claimed | Bell | Refused:
            wanted = [(tx.tx_id, request)]
            return self.live.stop_many(wanted, node, only_seize=only_seize, seen=seen)[0]

        if self._has_moved(tx, seen):
            return self._nothing_changes(ask, Refused(tx.tx_id, "MOVED", tx.status))
        if tx.ended:
            return self._nothing_changes(ask, Refused(tx.tx_id, "FINAL", tx.status))
        if tx.status == "in-doubt":
            return self._nothing_changes(ask, Refused(tx.tx_id, "PARKED", ""))
        if only_seize and (tx.status == "running" or tx.begun):
            return self._nothing_changes(ask, Refused(tx.tx_id, "BEGUN", tx.status))
        answer = ask()
        if tx.status != "running" and not tx.begun:
            assert isinstance(answer, Claimed), answer
            tx.seize(now_ms, request.to_text(), node)
            self._hold(tx, answer, node)
        elif tx.status == "sleeping":
            tx.stop_and_wake(now_ms, request.to_text())
            assert answer == self._bell(tx)
        else:
            tx.ask_to_stop(now_ms, request.to_text())
            assert answer == Refused(tx.tx_id, "ASKED", tx.status)
        return None

    def resolve(self, dice: Dice) -> None:
        """Somebody decides about one in doubt, perhaps on what it was some time ago."""
        tx = dice.likely(list(self.model.values()), lambda tx: tx.status == "in-doubt")
        deltas = dice.deltas(tx.state, may_begin=tx.begun)
        held = Held(tx.tx_id, following(tx.fence, self.stage.now_ms), deltas)
        version = tx.version - dice.one_of([0, 1])

        def decide() -> Bell | Refused:
            return self.live.resolve(held, version, self._json_after(held), HERE)

        if tx.found != "in-doubt":
            self._nothing_changes(decide, Refused(tx.tx_id, "NOT_PARKED", tx.found))
        elif version != tx.version:
            self._nothing_changes(decide, Refused(tx.tx_id, "CHANGED", str(tx.version)))
        else:
            answer = decide()
            tx.resolve(self.stage.now_ms, deltas, held.fence)
            self.highest_fence[tx.tx_id] = held.fence
            assert answer == self._bell(tx)

    # Maintenance.

    def ring_again(self, dice: Dice) -> None:
        tx = self._any(dice)
        if tx.status == "queued":
            since = self.live.queued_since([tx.tx_id])
            assert self.live.ring_again_many([tx.tx_id]) == [self._bell(tx)]
            assert self.live.queued_since([tx.tx_id]) == since
        else:
            refused = [Refused(tx.tx_id, "NOT_QUEUED", tx.status)]
            self._nothing_changes(lambda: self.live.ring_again_many([tx.tx_id]), refused)

    def note_problem(self, dice: Dice) -> None:
        tx_id, sequence = dice.one_of(self.bells)
        tx = self.model[tx_id]

        def note() -> None:
            self.live.note_problems([(tx_id, sequence)], "nobody offers it")

        if tx.status == "queued" and tx.sequence == sequence:
            tx.problem = "nobody offers it"
            note()
        else:
            self._nothing_changes(note, None)

    def follow_sql(self, dice: Dice) -> None:
        """Somebody else decided the end in SQL; Redis follows, whoever holds the transaction."""
        tx, status = self._any(dice), dice.one_of(["expired", "cancelled"])
        if tx.ended:
            self._nothing_changes(lambda: self.live.follow_sql([(tx.tx_id, status)]), None)
        else:
            tx.follow_sql(self.stage.now_ms, status)
            self.live.follow_sql([(tx.tx_id, status)])

    def archiver_reads(self, dice: Dice) -> None:
        due = [tx for tx in self.model.values() if tx.archive_due]
        if due:
            tx = dice.likely(due, lambda tx: tx.status == "sleeping")
            (fields,) = self.live.fields_many([tx.tx_id])
            self.reads.append(as_confirmed(tx.tx_id, Copied.of(fields, [])))
            if dice.yes():
                self._confirm(self.reads[-1])

    def confirm_archived(self, dice: Dice) -> None:
        """The archiver has written what it read, perhaps long ago."""
        if not self.reads:
            return
        self._confirm(dice.one_of(self.reads))

    def _confirm(self, read: tuple[str, str, str]) -> None:
        tx = self.model[read[0]]
        if tx.gone or (tx.is_idle and read[1] != str(tx.version)):
            self._nothing_changes(lambda: self.live.confirm_archived_many([read]), 0)
        else:
            stay_ms = store.SLEEPING_TTL_S * 1_000
            left = tx.confirm(self.stage.now_ms, stay_ms)
            assert self.live.confirm_archived_many([read]) == int(left)

    def leave_memory(self, dice: Dice) -> None:
        """Time passes, as far as Redis is concerned."""
        leaving = [tx for tx in self.model.values() if tx.leaves and not tx.gone]
        if leaving:
            tx = dice.likely(leaving, lambda tx: not tx.ended)
            keys = self.live.keys
            assert all(
                self.stage.redis.pttl(key) > 0
                for key in (keys.state(tx.tx_id), keys.deltas(tx.tx_id))
                if self.stage.redis.exists(key)
            )
            self.stage.redis.delete(keys.state(tx.tx_id), keys.deltas(tx.tx_id))
            tx.gone = True
            self.live.left.add(tx.tx_id)

    def restore(self, dice: Dice) -> None:
        """Somebody asks for one that has left, or thinks that it has."""
        gone = [tx for tx in self.model.values() if tx.gone]
        tx = dice.likely(gone or list(self.model.values()), lambda tx: not tx.ended)
        view, branch = self._in_sql(tx)
        if not branch or (tx.gone and view.status != tx.status):
            # SQL has nothing of it yet, or has ended it since it left.
            return
        ttl_ms = dice.one_of([0, 60_000])
        order = self._order(tx, view, ttl_ms=ttl_ms)
        if tx.gone and dice.one_of([False, False, True]):
            # Who asked was paused for so long that it may be wrong by now.
            order = replace(order, until_ms=self.stage.now_ms - dice.one_of([0, 1]))
            late = [Refused(tx.tx_id, "LATE", str(self.stage.now_ms))]
            self._nothing_changes(lambda: self.live.restore_many([order]), late)
        elif tx.gone:
            order = replace(order, until_ms=self.stage.now_ms + 1 if dice.yes() else "")
            tx.restore(self.stage.now_ms, view, branch, leaves=bool(ttl_ms))
            assert self.live.restore_many([order]) == [self._bell(tx)]
            self.live.left.discard(tx.tx_id)
        elif view.version <= tx.version:
            refused = [Refused(tx.tx_id, "NEWER", str(tx.version))]
            self._nothing_changes(lambda: self.live.restore_many([order]), refused)

    # Losses.

    def lose_and_place_again(self, dice: Dice) -> None:
        """Redis forgets a transaction of which SQL has no more than the row."""
        tx_id = self._any(dice).tx_id
        if self.model[tx_id].ended:
            return
        self._forget(tx_id)
        again = self.accepted[tx_id]
        assert self.live.create_many([again]) == [again.bell(1)]
        self.model[tx_id] = Modelled(tx_id, again.state_json, self.log)
        self.bells.append((tx_id, 1))

    def lose_and_rebuild(self, dice: Dice) -> None:
        """Redis forgets a transaction, and its last changes have not come to SQL either."""
        tx = self._any(dice)
        recorded = self.recorded[tx.tx_id]
        known = recorded[: max(1, len(recorded) - dice.one_of([0, 0, 1, 2]))]
        view = self._first_view(tx.tx_id).fold(living_branch(known))
        # What SQL takes for ended is not rebuilt.
        if tx.ended or not known or view.status in FINAL:
            return
        self._forget(tx.tx_id)
        self.recorded[tx.tx_id] = known
        # A copy of Redis that had more would have the journal of it as well.
        self.images = [each for each in self.images if not each.is_ahead_of(tx.tx_id, known)]
        tx.gone, tx.node = True, None
        self._rebuild(tx, dice)

    def remember(self, dice: Dice) -> None:
        """What a copy of Redis would have, should it take over some time later."""
        tx = self._any(dice)
        if not tx.ended:
            seen = look(self.live, [tx.tx_id], NODES)[0]
            self.images.append(Image(tx.copied(), self.stage.fields(tx.tx_id), seen))

    def fall_back(self, dice: Dice) -> None:
        """A transaction is again what it was once, and goes on from there."""
        if not self.images:
            return
        image = dice.likely(
            self.images, lambda image: image.model.version < self.model[image.seen.tx_id].version
        )
        tx_id, keys, redis = image.seen.tx_id, self.live.keys, self.stage.redis
        self._forget(tx_id)
        redis.hset(keys.state(tx_id), items=[x for pair in image.fields.items() for x in pair])
        if image.model.deltas:
            redis.rpush(keys.deltas(tx_id), *image.model.deltas)
        for name, score in image.seen.scores.items():
            redis.zadd(keys.of_tx(tx_id, name), {tx_id: score})
        for node in image.seen.nodes:
            redis.sadd(keys.of_tx(tx_id, f"runningS:{node}"), tx_id)
        if image.seen.ttl_ms is not None:
            redis.pexpire(keys.state(tx_id), image.seen.ttl_ms)
        self.model[tx_id] = image.model.copied()

    def rebuild_what_is_behind(self, dice: Dice) -> None:
        """SQL knows more of it than Redis does; or somebody thinks so who looked too early."""
        behind = [
            tx
            for tx in self.model.values()
            if not tx.gone and tx.version < self._in_sql(tx)[0].version
        ]
        if not behind:
            return
        tx = dice.one_of(behind)
        view, _ = self._in_sql(tx)
        if view.status not in FINAL:
            wrong = replace(self._order(tx, view), node="node-c" if tx.node or dice.yes() else "")
            if wrong.node:
                moved = [Refused(tx.tx_id, "MOVED", tx.node or "")]
                self._nothing_changes(lambda: self.live.restore_many([wrong]), moved)
            self._rebuild(tx, dice)

    def _rebuild(self, tx: Modelled, dice: Dice) -> None:
        view, branch = self._in_sql(tx)
        if view.status in ("sleeping", "in-doubt") and dice.yes():
            # Nothing was at work on it, so it may also come back as it is.
            order = replace(self._order(tx, view), node=tx.node or "")
            tx.restore(self.stage.now_ms, view, branch, leaves=False)
            assert self.live.restore_many([order]) == [self._bell(tx)]
            return
        deltas: list[Delta] = [CRASH] if view.status == "running" else []
        fence, node = following(view.fence, self.stage.now_ms), tx.node or ""
        tx.rebuild(self.stage.now_ms, view, branch, fence, deltas)
        self.highest_fence[tx.tx_id] = max(self.highest_fence[tx.tx_id], fence)
        order = replace(
            self._order(tx, self._first_view(tx.tx_id).fold(tx.entries)),
            version=branch[-1].version,
            node=node,
            rebuilt=True,
            lines=lines_of(deltas),
        )
        assert self.live.restore_many([order]) == [self._bell(tx)]

    def _forget(self, tx_id: str) -> None:
        self.stage.lose(tx_id)
        self.live.left.discard(tx_id)
        self.stage.clock.advance(seconds=OUTAGE_S)

    def _in_sql(self, tx: Modelled) -> tuple[View, list[Entry]]:
        """As far as SQL can tell, and the entries that lead there."""
        branch = living_branch(self.recorded[tx.tx_id])
        return self._first_view(tx.tx_id).fold(branch), branch

    def _order(self, tx: Modelled, view: View, *, ttl_ms: int = 0) -> Restored:
        order = self.stage.as_sql_has_it(tx.tx_id, view)
        external_id = self.accepted[tx.tx_id].external_id
        named = {"externalId": external_id} if external_id else {}
        return replace(order, ttl_ms=ttl_ms, fields={**order.fields, **named})

    def advance(self, dice: Dice) -> None:
        self.stage.clock.advance(seconds=dice.one_of([0.001, 1, 30, 1_000]))

    def meet_a_stranger(self, dice: Dice) -> None:
        """Nobody makes a transaction by talking about one that is not there."""
        tx_id, node = self.stage.new().tx_id, dice.node()
        with self.stage.nothing_changes():
            answers = [
                *self.live.claim_many([(tx_id, 1)], node),
                *self.live.wake_many([tx_id], only_due=False),
                self.live.set_switch(tx_id, "kyc", "true"),
                self.live.stop(tx_id, StopRequest.cancel("why"), node),
            ]
            assert answers == [Refused(tx_id, "UNKNOWN", "")] * 4
            self.live.follow_sql([(tx_id, "expired")])
            self.live.confirm_archived_many([(tx_id, "1", "")])
            self.live.note_problems([(tx_id, 1)], "what")
            assert self.live.ring_again_many([tx_id]) == [Refused(tx_id, "NOT_QUEUED", "UNKNOWN")]
            assert self.live.resolve(Held(tx_id, 1), 1, "{}", HERE) == Refused(
                tx_id, "NOT_PARKED", "UNKNOWN"
            )

    # Helpers.

    def _any(self, dice: Dice) -> Modelled:
        here = [tx for tx in self.model.values() if not tx.gone]
        return dice.likely(here or [self._fresh()], lambda tx: not tx.ended)

    def _fresh(self) -> Modelled:
        self._create(external_id=None)
        return list(self.model.values())[-1]

    def _any_hold(self, dice: Dice) -> Hold | None:
        if not self.holds:
            return None
        return dice.likely(self.holds, lambda hold: self.model[hold.tx_id].held_by(hold))

    def _held(self, hold: Hold, dice: Dice) -> Held:
        """A step that was marked begun was so by a script of its own: only that one may say it."""
        tx = self.model[hold.tx_id]
        return Held(hold.tx_id, hold.fence, dice.deltas(tx.state, may_begin=tx.begun))

    def _json_after(self, held: Held) -> str:
        """The state that the holder would write."""
        tx = self.model[held.tx_id].copied()
        tx.log = []
        tx.hand_over(0, held.deltas, snapshot=False)
        return tx.json

    def _holder_of(self, hold: Hold, call: ScriptCall, *, is_end: bool = False) -> Modelled | None:
        """The transaction if the hold is right; if not, the call must change nothing."""
        tx = self.model[hold.tx_id]
        if tx.held_by(hold):
            return tx
        refusal = ["STALE", tx.found]
        if is_end and (tx.gone or tx.ended):
            refusal = ["UNKNOWN", ""] if tx.gone else ["FINAL", tx.status]
        self._nothing_changes(lambda: self.live.run([call]), [refusal])
        return None

    def _nothing_changes(self, act: Callable[[], Any], expected: object) -> None:
        with self.stage.nothing_changes():
            assert act() == expected

    def _bell(self, tx: Modelled) -> Bell:
        self.bells.append((tx.tx_id, tx.sequence))
        step_type = "" if tx.ended else STEP
        return Bell(tx.tx_id, tx.sequence, "master", step_type, "p/0", tx.priority)

    def _document(self) -> str:
        """JSON that was never written before."""
        self._documents += 1
        return f'{{"document":{self._documents},"big":9007199254740993}}'


SETTINGS = settings(
    derandomize=True,
    database=None,
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    # Shrinking would take minutes, longer than a test may.
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


def test_whatever_happens_every_transaction_is_where_its_status_says(
    datp_servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SWITCHES_MAX", SWITCHES_MAX)
    LiveMachine.servers = datp_servers
    for seen in (LiveMachine.answers_seen, LiveMachine.moves_seen, LiveMachine.kinds_seen):
        seen.clear()
    for LiveMachine.world in range(WORLDS):
        run_state_machine_as_test(LiveMachine, settings=SETTINGS)
    # A machine that never got there would prove nothing.
    driven = [script(name) for name in DRIVEN]
    answers = {(each.name, word) for each in driven for word in each.answers}
    assert answers - LiveMachine.answers_seen == set()
    moves = {(each.name, move) for each in driven for move in moves_of(each)}
    assert moves - LiveMachine.moves_seen == set()
    assert {kind for _, kind in kinds_written()} == LiveMachine.kinds_seen
