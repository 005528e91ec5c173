"""Random operations against real Redis, beside a model: whatever happens in whatever order,
every transaction is where its status says, and a stale worker changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from datp_tasks.live.keys import LISTS
from datp_tasks.live.scripts import Call, script
from datp_tasks.live.words import Bell, Claimed, Held, Refused
from datp_tasks.model.state import PASSED
from datp_tasks.observe.invariants import check_all, check_transaction, look
from datp_tasks.testing.servers import Servers
from tests.scripts.live_model import Hold, Modelled
from tests.scripts.live_states import HERE, NODES, OPENS, STEP, Stage, moves_of

T = TypeVar("T")

LIVE_MAX = 3
SWITCHES_MAX = 2
#: The search of Hypothesis keeps near what it has seen, so it is sent off from many places.
WORLDS = 16
EXAMPLES = 4
STEPS = 60

#: What may happen, and how often in relation to the rest. Each is a method of the machine.
OPERATIONS = {
    "create": 2,
    "create_again": 1,
    "lose_and_place_again": 1,
    "claim": 12,
    "claim_with_any_bell": 3,
    "checkpoint": 4,
    "hand_over": 4,
    "sleep": 10,
    "park": 1,
    "finish": 2,
    "report_progress": 2,
    "take_over": 3,
    "wake": 5,
    "set_switch": 10,
    "cancel": 5,
    "ring_again": 2,
    "note_problem": 2,
    "follow_sql": 1,
    "archiver_reads": 5,
    "confirm_archived": 5,
    "advance": 3,
    "meet_a_stranger": 1,
}

#: The scripts that this machine drives, to every answer that they can give.
DRIVEN = (
    *("create", "claim", "checkpoint", "hand_over", "sleep", "park", "finish"),
    *("report_progress", "take_over", "wake", "set_switch", "cancel"),
    *("ring_again", "note_problem", "confirm_archived"),
)

#: Fields that no script of a transaction on its way changes here.
UNCHANGED = ("owner", "pipeline", "group", "stepType", "place", "metadata", "externalId")


class Dice:
    """Chooses what an operation needs. The same seed chooses the same."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def operation(self) -> str:
        return self._random.choices(list(OPERATIONS), list(OPERATIONS.values()))[0]

    def one_of(self, those: Sequence[T]) -> T:
        return self._random.choice(those)

    def likely(self, those: Sequence[T], is_likely: Callable[[T], bool]) -> T:
        """Three times in four one of those that something can be done with, if there are any."""
        good = [each for each in those if is_likely(each)]
        return self.one_of(good if good and self._random.random() < 0.75 else those)

    def yes(self) -> bool:
        return self._random.random() < 0.5

    def node(self) -> str:
        return self.one_of(NODES)

    def switch(self) -> str:
        return self.one_of(["kyc", "limit", "third"])

    def held(self, hold: Hold) -> Held:
        return Held(hold.tx_id, hold.fence, (PASSED,) * self.one_of([0, 1, 2]))


class LiveMachine(RuleBasedStateMachine):
    servers: ClassVar[Servers]
    world: ClassVar[int]
    answers_seen: ClassVar[set[tuple[str, str]]] = set()
    moves_seen: ClassVar[set[tuple[str, str]]] = set()

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(self.servers, switches_per_transaction_max=SWITCHES_MAX)
        self.live = self.stage.live
        self.live.answers_seen, self.live.moves_seen = self.answers_seen, self.moves_seen
        self.model: dict[str, Modelled] = {}
        self.highest_fence: dict[str, int] = {}
        self.bells: list[tuple[str, int]] = []
        #: Of all workers that ever claimed anything; they never forget.
        self.holds: list[Hold] = []
        #: Transaction and version, as an archiver once read them.
        self.reads: list[tuple[str, str]] = []
        self._documents = 0
        self._steps = 0

    @initialize()
    def begin(self) -> None:
        self._create(external_id="e")
        self._create(external_id=None)

    @rule(seed=st.integers(min_value=0, max_value=2**64 - 1))
    def something_happens(self, seed: int) -> None:
        # A seed instead of many draws: it spreads the choices evenly, and much faster.
        self._steps += 1
        dice = Dice(f"{self.world} {self._steps} {seed}")
        operation = dice.operation()
        note(f"{operation} in world {self.world}")
        getattr(self, operation)(dice)

    @invariant()
    def everything_is_where_its_status_says(self) -> None:
        """Those that ended long ago are looked at once more at the end."""
        ended = [tx for tx in self.model.values() if tx.ended]
        self._compare([tx for tx in self.model.values() if not tx.ended] + ended[-1:])

    def teardown(self) -> None:
        try:
            self._compare(list(self.model.values()))
            assert check_all(self.live) == []
        finally:
            self.stage.close()

    def _compare(self, those: Sequence[Modelled]) -> None:
        tx_ids = [tx.tx_id for tx in those]
        stored = dict(zip(tx_ids, self.live.fields_many(tx_ids), strict=True))
        for seen in look(self.live, tx_ids, NODES):
            tx, fields = self.model[seen.tx_id], stored[seen.tx_id]
            assert check_transaction(seen) == [], (seen, tx)
            assert {name: fields[name] for name in fields if name not in UNCHANGED} == tx.fields()
            assert set(seen.scores) == tx.lists()
            assert seen.deltas == tx.deltas
            assert (seen.ttl_ms is not None) == tx.leaves
            assert seen.nodes == ({tx.node} if tx.node else set())

    # The way in.

    def create(self, dice: Dice) -> None:
        if sum(not tx.ended for tx in self.model.values()) < LIVE_MAX:
            self._create(f"e{len(self.model)}" if dice.yes() else None)

    def _create(self, external_id: str | None) -> None:
        new = self.stage.new(external_id=external_id)
        assert self.live.create_many([new]) == [new.bell(1)]
        self.model[new.tx_id] = Modelled(new.tx_id, new.state_json)
        self.highest_fence[new.tx_id] = 0
        self.bells.append((new.tx_id, 1))

    def create_again(self, dice: Dice) -> None:
        again = replace(self.stage.new(), tx_id=self._any(dice).tx_id, state_json="{}")
        with self.stage.nothing_changes():
            assert self.live.create_many([again]) == [None]

    def lose_and_place_again(self, dice: Dice) -> None:
        """Redis forgets a transaction; the reconciler finds its row in SQL some time later."""
        tx_id = self._any(dice).tx_id
        if self.model[tx_id].ended:
            return
        keys = self.live.keys
        self.stage.redis.delete(keys.state(tx_id), keys.deltas(tx_id))
        for name in LISTS:
            self.stage.redis.zrem(keys.of_tx(tx_id, name), tx_id)
        for node in NODES:
            self.stage.redis.srem(keys.of_tx(tx_id, f"runningS:{node}"), tx_id)
        self.stage.clock.advance(seconds=1)
        again = replace(self.stage.new(), tx_id=tx_id)
        assert self.live.create_many([again]) == [again.bell(1)]
        self.model[tx_id] = Modelled(tx_id, again.state_json)
        self.bells.append((tx_id, 1))

    # The door.

    def claim(self, dice: Dice) -> None:
        tx = dice.likely(list(self.model.values()), lambda tx: tx.status == "queued")
        self._claim(tx, tx.sequence, dice.node(), opens=dice.yes())

    def claim_with_any_bell(self, dice: Dice) -> None:
        tx_id, sequence = dice.one_of(self.bells)
        sequence += dice.one_of([0, 0, 1, -1])
        self._claim(self.model[tx_id], sequence, dice.node(), opens=dice.yes())

    def _claim(self, tx: Modelled, sequence: int, node: str, *, opens: bool) -> None:
        def knock() -> Claimed | Refused:
            pairs, begin = [(tx.tx_id, sequence)], OPENS if opens else ""
            return self.live.claim_many(pairs, node, step_type=STEP, begin=begin)[0]

        if tx.status != "queued" or sequence != tx.sequence:
            word = "NOT_QUEUED" if tx.status != "queued" else "OLD_BELL"
            found = tx.status if tx.status != "queued" else str(tx.sequence)
            self._nothing_changes(knock, Refused(tx.tx_id, word, found))
            return
        answer = knock()
        assert isinstance(answer, Claimed), answer
        assert len(answer.deltas) == tx.deltas
        assert answer.opened == opens
        assert answer.fields["state"] == tx.json
        tx.claim(answer.fence, node, opens=opens)
        self._hold(tx, answer, node)

    def _hold(self, tx: Modelled, claim: Claimed, node: str) -> None:
        assert claim.fence > self.highest_fence[tx.tx_id]
        assert claim.fence >= self.stage.now_ms
        self.highest_fence[tx.tx_id] = claim.fence
        self.holds.append(Hold(tx.tx_id, claim.fence, node, tx.switch_seq))

    # What a worker writes, whether its claim is still right or not.

    def checkpoint(self, dice: Dice) -> None:
        if hold := self._any_hold(dice):
            held = dice.held(hold)
            call = self.live.call_checkpoint(held, ("begun", "1"))
            if tx := self._holder_of(hold, call):
                tx.add_deltas(len(held.deltas))
                tx.begun = True
                expected = ["OK", tx.version, tx.cancel or "", str(tx.switch_seq)]
                assert self.live.run([call]) == [expected]

    def hand_over(self, dice: Dice) -> None:
        if hold := self._any_hold(dice):
            held, json = dice.held(hold), self._document()
            call = self.live.call_hand_over(held, hold.node, json, HERE)
            if tx := self._holder_of(hold, call):
                tx.write_json(json, len(held.deltas))
                tx.enqueue()
                assert self.live.run([call]) == [["OK", tx.sequence, tx.version]]
                self.bells.append((tx.tx_id, tx.sequence))

    def sleep(self, dice: Dice) -> None:
        if not (hold := self._any_hold(dice)):
            return
        held, json, now_ms = dice.held(hold), self._document(), self.stage.now_ms
        sleep_ms, heed_cancel = dice.one_of([0, 1_000, 100_000]), dice.yes()
        switch = dice.one_of(["", dice.switch(), *2 * list(self.model[hold.tx_id].switches)])
        seen = dice.one_of([hold.seen, hold.seen, self.model[hold.tx_id].switch_seq])
        call = self.live.call_sleep(
            held,
            hold.node,
            json,
            HERE,
            sleep_ms=sleep_ms,
            switch=switch,
            seen=seen,
            heed_cancel=heed_cancel,
        )
        if not (tx := self._holder_of(hold, call)):
            return
        if tx.cancel and heed_cancel:
            self._nothing_changes(lambda: self.live.run([call]), [["CANCEL", tx.cancel]])
        elif tx.switches.get(switch, (0, ""))[0] > seen:
            self._nothing_changes(lambda: self.live.run([call])[0][0], "AWAKE")
        else:
            tx.write_json(json, len(held.deltas))
            tx.sleep(now_ms + sleep_ms, switch)
            assert self.live.run([call]) == [["OK", str(tx.wake_ms), tx.version]]

    def park(self, dice: Dice) -> None:
        if hold := self._any_hold(dice):
            held, json = dice.held(hold), self._document()
            call = self.live.call_park(held, hold.node, json, "who knows")
            if tx := self._holder_of(hold, call):
                tx.write_json(json, len(held.deltas))
                tx.park("who knows")
                assert self.live.run([call]) == [["OK", tx.version]]

    def finish(self, dice: Dice) -> None:
        if hold := self._any_hold(dice):
            held, json = dice.held(hold), self._document()
            status = dice.one_of(["success", "failed", "cancelled"])
            call = self.live.call_finish(held, hold.node, status, json)
            if tx := self._holder_of(hold, call, at_the_end="FINAL"):
                tx.write_json(json, len(held.deltas))
                tx.finish(status)
                assert self.live.run([call]) == [["OK", tx.version]]

    def report_progress(self, dice: Dice) -> None:
        if not (hold := self._any_hold(dice)):
            return
        tx, report = self.model[hold.tx_id], self._document()

        def tell() -> Refused | None:
            return self.live.report_progress(hold.tx_id, hold.fence, report)

        if tx.held_by(hold):
            tx.progress = report
            assert tell() is None
        else:
            self._nothing_changes(tell, Refused(hold.tx_id, "STALE", tx.status))

    def take_over(self, dice: Dice) -> None:
        """The reaper takes the node for gone, rightly or not."""
        if not (hold := self._any_hold(dice)):
            return
        tx = self.model[hold.tx_id]
        order = (hold.tx_id, hold.fence, hold.fence + dice.one_of([1, 2, 3]))

        def take() -> list[Bell | Refused]:
            return self.live.take_over_many([order], hold.node)

        if not tx.held_by(hold):
            self._nothing_changes(take, [Refused(hold.tx_id, "STALE", tx.status)])
            return
        tx.add_deltas(1)
        tx.enqueue()
        tx.fence = self.highest_fence[tx.tx_id] = order[2]
        assert take() == [self._bell(tx)]

    # From outside.

    def wake(self, dice: Dice) -> None:
        tx = dice.likely(list(self.model.values()), lambda tx: tx.status == "sleeping")
        only_due = dice.yes()

        def shake() -> list[Bell | Refused]:
            return self.live.wake_many([tx.tx_id], only_due=only_due)

        if tx.status != "sleeping":
            self._nothing_changes(shake, [Refused(tx.tx_id, "NOT_SLEEPING", tx.status)])
        elif only_due and (tx.wake_ms or 0) > self.stage.now_ms:
            self._nothing_changes(shake, [Refused(tx.tx_id, "NOT_DUE", str(tx.wake_ms))])
        else:
            tx.enqueue()
            assert shake() == [self._bell(tx)]

    def set_switch(self, dice: Dice) -> None:
        tx, name = self._any(dice), dice.switch()
        if tx.wake_switch and dice.yes():
            name = tx.wake_switch
        value = dice.one_of(["true", "false", '"12:34"', ""])

        def turn() -> Bell | Refused:
            return self.live.set_switch(tx.tx_id, name, value)

        if tx.ended:
            self._nothing_changes(turn, Refused(tx.tx_id, "FINAL", tx.status))
        elif tx.switches.get(name, (0, ""))[1] == value:
            self._nothing_changes(turn, Refused(tx.tx_id, "NO_CHANGE", ""))
        elif name not in tx.switches and len(tx.switches) >= SWITCHES_MAX:
            self._nothing_changes(turn, Refused(tx.tx_id, "TOO_MANY", str(SWITCHES_MAX)))
        elif tx.wake_switch == name:
            tx.set_switch(name, value)
            tx.enqueue()
            assert turn() == self._bell(tx)
        else:
            tx.set_switch(name, value)
            tx.archive_due = tx.archive_due or tx.status == "sleeping"
            assert turn() == Refused(tx.tx_id, "SET", str(tx.switch_seq))

    def cancel(self, dice: Dice) -> None:
        tx, node, reason = self._any(dice), dice.node(), dice.one_of(["why", "why not"])

        only_seize = dice.one_of([False, False, True])

        def ask() -> Claimed | Bell | Refused:
            wanted = [(tx.tx_id, reason)]
            return self.live.cancel_many(wanted, node, only_seize=only_seize)[0]

        if tx.ended:
            return self._nothing_changes(ask, Refused(tx.tx_id, "FINAL", tx.status))
        if tx.status == "in-doubt":
            return self._nothing_changes(ask, Refused(tx.tx_id, "PARKED", ""))
        if only_seize and (tx.status == "running" or tx.begun):
            return self._nothing_changes(ask, Refused(tx.tx_id, "BEGUN", tx.status))
        tx.cancel = tx.cancel or reason
        answer = ask()
        if tx.status != "running" and not tx.begun:
            assert isinstance(answer, Claimed), answer
            tx.claim(answer.fence, node)
            self._hold(tx, answer, node)
        elif tx.status == "sleeping":
            tx.enqueue()
            assert answer == self._bell(tx)
        else:
            assert answer == Refused(tx.tx_id, "ASKED", tx.status)
        return None

    # Maintenance.

    def ring_again(self, dice: Dice) -> None:
        tx = self._any(dice)
        if tx.status == "queued":
            assert self.live.ring_again_many([tx.tx_id]) == [self._bell(tx)]
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
            tx.finish(status)
            self.live.follow_sql([(tx.tx_id, status)])

    def archiver_reads(self, dice: Dice) -> None:
        due = [tx for tx in self.model.values() if tx.archive_due]
        if due:
            tx = dice.one_of(due)
            self.reads.append((tx.tx_id, str(tx.version)))

    def confirm_archived(self, dice: Dice) -> None:
        """The archiver has written what it read, perhaps long ago."""
        if not self.reads:
            return
        read = dice.one_of(self.reads)
        tx = self.model[read[0]]
        if read[1] == str(tx.version):
            assert self.live.confirm_archived_many([read]) == 1
            tx.archive_due = False
            tx.leaves = tx.ended
        else:
            self._nothing_changes(lambda: self.live.confirm_archived_many([read]), 0)

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
                self.live.cancel(tx_id, "why", node),
            ]
            assert answers == [Refused(tx_id, "UNKNOWN", "")] * 4
            self.live.follow_sql([(tx_id, "expired")])
            self.live.confirm_archived_many([(tx_id, "1")])
            self.live.note_problems([(tx_id, 1)], "what")
            assert self.live.ring_again_many([tx_id]) == [Refused(tx_id, "NOT_QUEUED", "UNKNOWN")]

    # Helpers.

    def _any(self, dice: Dice) -> Modelled:
        return dice.likely(list(self.model.values()), lambda tx: not tx.ended)

    def _any_hold(self, dice: Dice) -> Hold | None:
        if not self.holds:
            return None
        return dice.likely(self.holds, lambda hold: self.model[hold.tx_id].held_by(hold))

    def _holder_of(self, hold: Hold, call: Call, at_the_end: str = "STALE") -> Modelled | None:
        """The transaction if the hold is right; if not, the call must change nothing."""
        tx = self.model[hold.tx_id]
        if tx.held_by(hold):
            return tx
        word = at_the_end if tx.ended else "STALE"
        self._nothing_changes(lambda: self.live.run([call]), [[word, tx.status]])
        return None

    def _nothing_changes(self, act: Callable[[], Any], expected: object) -> None:
        with self.stage.nothing_changes():
            assert act() == expected

    def _bell(self, tx: Modelled) -> Bell:
        self.bells.append((tx.tx_id, tx.sequence))
        return Bell(tx.tx_id, tx.sequence, "master", STEP, "p/0", tx.priority)

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
    datp_servers: Servers,
) -> None:
    LiveMachine.servers = datp_servers
    LiveMachine.answers_seen.clear()
    LiveMachine.moves_seen.clear()
    for LiveMachine.world in range(WORLDS):
        run_state_machine_as_test(LiveMachine, settings=SETTINGS)
    # A machine that never got there would prove nothing.
    driven = [script(name) for name in DRIVEN]
    answers = {(each.name, word) for each in driven for word in each.answers}
    assert answers - LiveMachine.answers_seen == set()
    moves = {(each.name, move) for each in driven for move in moves_of(each)}
    assert {each for each in moves - LiveMachine.moves_seen if _changes(each[1])} == set()


def _changes(move: str) -> bool:
    start, _, end = move.partition(" -> ")
    return start != end and end != "archived"
