"""The live store: one method per script, batch first, one round trip per batch.

Methods that begin with `call_` or `calls_` only describe script calls, so that a hop can send
different transitions of its transactions together with `run`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from redis import Redis

from datp_tasks.clock import Clock
from datp_tasks.live.frames import Frames
from datp_tasks.live.keys import Keys
from datp_tasks.live.live_types import (
    Bell,
    Claimed,
    Held,
    NewTransaction,
    Refused,
    Restored,
    flat_to_dict,
)
from datp_tasks.live.reading import Reading
from datp_tasks.live.script_replies import bell_or_refused, bells_of, claimed
from datp_tasks.live.scripts import (
    Argument,
    Reply,
    ScriptCall,
    ScriptCalls,
    ScriptRunner,
    call,
    script,
)
from datp_tasks.model.plan import Position
from datp_tasks.model.state import CRASH, delta_json
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.settings import Settings

#: How long one that sleeps stays in memory after it was read or archived: restoring is one query.
SLEEPING_TTL_S = 300
#: Of a transaction. Each is a field of the hash that every claim reads.
SWITCHES_MAX = 64


class LiveStore(Reading):
    def __init__(self, redis: Redis, settings: Settings, clock: Clock) -> None:
        self.redis = redis
        self.keys = Keys(settings.key_prefix)
        self._settings = settings
        self._clock = clock
        self._runner = ScriptRunner(redis)
        #: How long a final one stays before it is archived, and whom its end is told.
        self._at_end = (settings.delay_before_archiving_s * 1_000, self.keys.notify)
        self._shards = [f"{number:02d}" for number in range(settings.shards)]
        frames = Frames(self.keys, self.given_now)
        self._frame, self._calls = frames.frame, frames.calls
        self._own = self.keys.own

    @property
    def round_trips(self) -> int:
        return self._runner.round_trips

    @property
    def shards(self) -> list[str]:
        return self._shards

    @property
    def sleeping_ttl_ms(self) -> int:
        """How long one that sleeps stays in memory after it was read or archived."""
        return SLEEPING_TTL_S * 1_000

    def run(self, calls: Sequence[ScriptCall | ScriptCalls]) -> list[Reply]:
        """Send calls in one round trip; replies in the same order."""
        return self._runner.run(calls)

    def send(self, commands: Sequence[tuple[str | int, ...]]) -> list[Any]:
        """Send commands that change no transaction in one round trip."""
        answers = self._runner.send(commands) if commands else []
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    # The way in.

    def create_many(self, new: Sequence[NewTransaction]) -> list[Bell | None]:
        """Queue accepted transactions; None for those that were here already."""
        return self.create_and(new, ())[0]

    def create_and(
        self, new: Sequence[NewTransaction], calls: Sequence[ScriptCall]
    ) -> tuple[list[Bell | None], list[Reply]]:
        """The same with other calls after it in one round trip, and the replies to those."""
        replies = self.run([*map(self._call_create, new), *calls])
        bells = [
            each.bell(reply[1]) if reply[0] == "OK" else None
            for each, reply in zip(new, replies, strict=False)
        ]
        return bells, replies[len(new) :]

    def _call_create(self, new: NewTransaction) -> ScriptCall:
        shared = (new.group, new.pipeline, new.step_type, new.place)
        frame = self._frame("create", new.tx_id, arguments=shared)
        own = (new.tx_id, new.owner, *new.own_pairs())
        return ScriptCall(frame, (self.keys.state(new.tx_id),), own)

    # The hop.

    def claim_many(
        self,
        bells: Sequence[tuple[str, int]],
        node: str,
        *,
        step_type: str = "",
        begin: str = "",
        held: Mapping[str, str] | None = None,
    ) -> list[Claimed | Refused]:
        """The only start of work: queued -> running, for each bell that is still right.

        `begin` is the delta that opens a step of that type; `held` names the states that the
        worker still has ("<JSON version>/<fence>"), which need not be sent again.
        """
        held = held or {}
        wanted = [(tx, str(sequence), held.get(tx, "")) for tx, sequence in bells]
        (replies,) = self.run([self.calls_claim(wanted, node, step_type, begin)])
        return [claimed(tx, reply) for (tx, _), reply in zip(bells, replies, strict=True)]

    def calls_claim(
        self, wanted: Sequence[tuple[str, ...]], node: str, step_type: str, begin: str
    ) -> ScriptCalls:
        """Of many, each as its id, sequence and what of it is held."""
        return self._calls("claim", wanted, node, (node, step_type, begin))

    def call_checkpoint(
        self, held: Held, fields: tuple[str, ...] = (), *, snapshot: bool = False
    ) -> ScriptCall:
        """Of one that stays at its step."""
        tx = held.tx_id
        frame = self._frame("checkpoint", tx, arguments=("", "", "1" if snapshot else "0"))
        return ScriptCall(frame, self._own(tx), (tx, str(held.fence), held.lines, *fields))

    def calls_checkpoint(
        self, held: Sequence[tuple[str, ...]], step_type: str, place: str, *, snapshot: bool
    ) -> ScriptCalls:
        """Of many that go on with the same step, each as its id, fence, lines and fields."""
        return self._calls("checkpoint", held, "", (step_type, place, "1" if snapshot else "0"))

    def call_hand_over(
        self, held: Held, node: str, state_json: str, to: Position, *, snapshot: bool = False
    ) -> ScriptCall:
        tx = held.tx_id
        frame = self._frame("hand_over", tx, node)
        head = (tx, held.fence, int(snapshot), held.lines, state_json)
        return ScriptCall(frame, self._own(tx), (*head, *to.pairs()))

    def call_sleep(
        self,
        held: Held,
        node: str,
        state_json: str,
        to: Position,
        *,
        sleep_ms: int,
        switch: str = "",
        seen: int = 0,
        heed_stop: bool = True,
    ) -> ScriptCall:
        tx = held.tx_id
        frame = self._frame("sleep", tx, node)
        head = (tx, held.fence, sleep_ms, switch, seen, int(heed_stop))
        return ScriptCall(frame, self._own(tx), (*head, held.lines, state_json, *to.pairs()))

    def call_park(self, held: Held, node: str, state_json: str, problem: str) -> ScriptCall:
        tx = held.tx_id
        frame = self._frame("park", tx, node, (self.keys.notify,))
        return ScriptCall(frame, self._own(tx), (tx, held.fence, problem, held.lines, state_json))

    def call_finish(
        self, held: Held, node: str, status: str, state_json: str, *, follow_sql: bool = False
    ) -> ScriptCall:
        """`follow_sql`: the record is final, whichever node holds the live transaction."""
        tx, fence = held.tx_id, "" if follow_sql else str(held.fence)
        frame = self._frame("finish", tx, node, self._at_end)
        return ScriptCall(frame, self._own(tx), (tx, fence, status, held.lines, state_json))

    def calls_finish(self, ended: Sequence[tuple[str, ...]], node: str) -> ScriptCalls:
        """Of many that this node holds, each as its id, fence, status, lines and state."""
        return self._calls("finish", ended, node, self._at_end)

    def follow_sql(self, ended: Sequence[tuple[str, str]]) -> None:
        """The record has these final statuses: the live ones end, whichever node has them."""
        found = self.named_many([tx for tx, _ in ended], ("node",))
        holders = [fields.get("node", "") for fields in found]
        self.run(
            [
                self.call_finish(Held(tx, 0), node, status, "", follow_sql=True)
                for (tx, status), node in zip(ended, holders, strict=True)
            ]
        )

    def report_progress(self, tx_id: str, fence: int, progress_json: str) -> Refused | None:
        keys = (self.keys.state(tx_id), self._journal(tx_id))
        arguments = (self.given_now(), tx_id, fence, progress_json, self.keys.notify)
        word, found = self.run([call(script("report_progress"), keys, arguments)])[0]
        return None if word == "OK" else Refused(tx_id, word, found)

    # From outside.

    def wake_many(
        self, tx_ids: Sequence[str], *, only_due: bool, seen: str = ""
    ) -> list[Bell | Refused]:
        calls: list[ScriptCall] = [
            call(script("wake"), self._wake_keys(tx), (self.given_now(), tx, int(only_due), seen))
            for tx in tx_ids
        ]
        return bells_of(tx_ids, self.run(calls))

    def set_switch(
        self, tx_id: str, name: str, value_json: str, *, fence: int | None = None, seen: str = ""
    ) -> Bell | Refused:
        """A Bell if that woke the transaction; Refused with the word SET if it did not.

        `fence`: of the claim, if one of its own steps sets the switch. `seen`: status and fence
        that it must have still.
        """
        limit = SWITCHES_MAX
        claim: Argument = "" if fence is None else fence
        order = (self.given_now(), tx_id, name, value_json, limit, claim, seen)
        word, found = self.run([call(script("set_switch"), self._wake_keys(tx_id), order)])[0]
        return bell_or_refused(tx_id, word, found, "WOKEN")

    def stop(
        self, tx_id: str, request: StopRequest, node: str, *, seen: str = ""
    ) -> Claimed | Bell | Refused:
        """Claimed: nothing had begun and the caller must finish it now."""
        return self.stop_many([(tx_id, request)], node, seen=seen)[0]

    def stop_many(
        self,
        wanted: Sequence[tuple[str, StopRequest]],
        node: str,
        *,
        only_seize: bool = False,
        seen: str = "",
    ) -> list[Claimed | Bell | Refused]:
        """`only_seize` changes nothing where work has begun."""
        calls: list[ScriptCall] = []
        for tx_id, request in wanted:
            keys = (
                self.keys.state(tx_id),
                *self._queues(tx_id, node),
                *(self.keys.of_tx(tx_id, "sleepingZ"), self.keys.of_tx(tx_id, "toArchiveZ")),
                self._journal(tx_id),
            )
            order = (self.given_now(), tx_id, request.to_text(), node, int(only_seize), seen)
            calls.append(call(script("stop"), keys, order))
        answers: list[Claimed | Bell | Refused] = []
        for (tx_id, _), reply in zip(wanted, self.run(calls), strict=True):
            if reply[0] == "SEIZED":
                answers.append(Claimed(tx_id, int(reply[1]), flat_to_dict(reply[2]), []))
            else:
                answers.append(bell_or_refused(tx_id, reply[0], reply[1], "QUEUED"))
        return answers

    def note_problems(self, bells: Iterable[tuple[str, int]], problem: str) -> None:
        note = script("note_problem")
        self.run([call(note, (self.keys.state(tx),), (seq, problem)) for tx, seq in bells])

    # Maintenance.

    def ring_again_many(self, tx_ids: Sequence[str]) -> list[Bell | Refused]:
        calls: list[ScriptCall] = []
        for tx in tx_ids:
            keys = (self.keys.state(tx), self.keys.of_tx(tx, "queuedZ"))
            calls.append(call(script("ring_again"), keys, (self.given_now(), tx)))
        return bells_of(tx_ids, self.run(calls))

    def take_over_many(
        self, taken: Sequence[tuple[str, int, int]], node: str
    ) -> list[Bell | Refused]:
        """Transactions of a node that is gone, as (id, its fence, new fence that SQL knows)."""
        calls: list[ScriptCall] = []
        for tx, fence, new_fence in taken:
            keys = (*self._own(tx), *self._queues(tx, node), self._journal(tx))
            order = (self.given_now(), tx, fence, new_fence, delta_json(CRASH))
            calls.append(call(script("take_over"), keys, order))
        return bells_of([tx for tx, _, _ in taken], self.run(calls))

    def confirm_archived_many(self, written: Sequence[tuple[str, str, str]]) -> int:
        """Transactions that are in SQL may leave; how many do. Each as its id, its version there,
        and its status if it had ended and no delta followed its JSON."""
        stay_ms = (self._settings.state_ttl_s * 1_000, self.sleeping_ttl_ms)
        (replies,) = self.run([self._calls("confirm_archived", written, "", stay_ms)])
        return sum(reply[0] == "OK" and reply[1] == 1 for reply in replies)

    def restore_many(self, wanted: Sequence[Restored]) -> list[Bell | Refused]:
        """Bring transactions back from SQL; what is newer here stays."""
        return bells_of([each.tx_id for each in wanted], self.run(list(map(self._restore, wanted))))

    def _restore(self, back: Restored) -> ScriptCall:
        tx, of_tx = back.tx_id, self.keys.of_tx
        keys = (
            *self._own(tx),
            *self._queues(tx, back.node),
            *(of_tx(tx, "sleepingZ"), of_tx(tx, "exceptionZ"), of_tx(tx, "toArchiveZ")),
            self._journal(tx),
        )
        pairs = [part for pair in back.fields.items() for part in pair]
        head = (self.given_now(), tx, back.node, back.version, back.fence, back.status)
        tail = (back.wake_ms, back.ttl_ms, int(back.rebuilt), back.lines, back.until_ms)
        return call(script("restore"), keys, (*head, *tail, *pairs))

    def resolve(
        self, held: Held, version: int, state_json: str, to: Position | None
    ) -> Bell | Refused:
        """Queue one that was in doubt, with what an operator decided about its step."""
        tx, of_tx = held.tx_id, self.keys.of_tx
        keys = (
            *self._own(tx),
            *(of_tx(tx, "queuedZ"), of_tx(tx, "exceptionZ"), of_tx(tx, "toArchiveZ")),
            self._journal(tx),
        )
        head = (self.given_now(), tx, version, held.fence, held.lines, state_json)
        order = call(script("resolve"), keys, (*head, *(to.pairs() if to else ())))
        return bells_of([tx], self.run([order]))[0]

    def drop_running(self, node: str, tx_ids: Sequence[str]) -> None:
        """Forget that a node runs these, except those that it does run."""
        calls: list[ScriptCall] = []
        for tx in tx_ids:
            keys = (self.keys.state(tx), self.keys.of_tx(tx, f"runningS:{node}"))
            calls.append(call(script("drop_running"), keys, (tx, node)))
        self.run(calls)

    # Nodes.

    def beat(self, node: str) -> None:
        keys = (self.keys.nodes, self.keys.stale_nodes)
        self.run([call(script("beat"), keys, (self.given_now(), node))])

    def silent_nodes(self) -> list[str]:
        keys = (self.keys.nodes, self.keys.stale_nodes)
        limits = (self._settings.node_stale_ms, self._settings.node_grace_ms)
        reply = self.run([call(script("silent_nodes"), keys, (self.given_now(), *limits))])[0]
        return list(reply[1])

    def forget_node(self, node: str) -> None:
        pipeline = self.redis.pipeline(transaction=False)
        pipeline.zrem(self.keys.nodes, node)
        pipeline.zrem(self.keys.stale_nodes, node)
        pipeline.execute()

    # Keys.

    def given_now(self) -> int | str:
        """The time that a test injects, or nothing: then scripts use the server's."""
        now_ms = self._clock.now_ms()
        return "" if now_ms is None else now_ms

    def _queues(self, tx_id: str, node: str) -> tuple[str, str, str]:
        of_tx = self.keys.of_tx
        return (
            of_tx(tx_id, "queuedZ"),
            of_tx(tx_id, "processingZ"),
            of_tx(tx_id, f"runningS:{node}"),
        )

    def _wake_keys(self, tx_id: str) -> tuple[str, ...]:
        of_tx = self.keys.of_tx
        lists = (of_tx(tx_id, name) for name in ("queuedZ", "sleepingZ", "toArchiveZ"))
        return (self.keys.state(tx_id), *lists, self._journal(tx_id))

    def _journal(self, tx_id: str) -> str:
        return self.keys.of_tx(tx_id, "journalX")
