"""Transactions brought to a status by the scripts themselves, and a store that watches them.

The factories of `Stage` are named by the status they reach; what they give is what a worker in
that situation would hold: a bell, or a claim (which is an old one once the status was left).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from redis import Redis

from datp_tasks.clock import Clock, VirtualClock
from datp_tasks.live import pipelining
from datp_tasks.live.cluster_redis import servers_of
from datp_tasks.live.connect import make_redis
from datp_tasks.live.invariants import Observed, check_transaction, look
from datp_tasks.live.keys import LISTS
from datp_tasks.live.live_types import Bell, Claimed, Held, NewTransaction, Restored, flat_to_dict
from datp_tasks.live.scripts import (
    FOLDER,
    Reply,
    Script,
    ScriptCall,
    ScriptCalls,
    header_sections,
    one_by_one,
    script_names,
)
from datp_tasks.live.store import LiveStore
from datp_tasks.model.journal import Entry, living_branch
from datp_tasks.model.plan import Position
from datp_tasks.model.state import BEGIN, PASSED, State, delta_json
from datp_tasks.model.status import FINAL
from datp_tasks.model.view import View
from datp_tasks.settings import Settings
from datp_tasks.testing.servers import Servers
from tests.support.lua_tokens import calls_of, tokens_of

NODE = "node-a"
OTHER_NODE = "node-b"
NODES = (NODE, OTHER_NODE)
STEP = "t/step"
OPENS = delta_json(BEGIN)
HERE = Position("master", STEP, "p/0")
THERE = Position("payments", "t/pay", "p/1")

#: Nothing of this may be touched by a script: integers beyond 2^53, money, empty containers.
STATE_JSON = (
    '{"stack":[["p","v1",0]],"data":{"big":9007199254740993,"bigger":-123456789012345678901234567890'
    ',"money":"0.10","price":1234567890.10,"tiny":1e-7,"list":[],"dict":{},"text":"é😀\\u0000\\n"}}'
)

#: Everything that is stored under a prefix, at one moment: key, type, whether it ends, content.
PICTURE = """
local read = {hash = {'HGETALL'}, list = {'LRANGE', 0, -1}, zset = {'ZRANGE', 0, -1, 'WITHSCORES'},
              set = {'SMEMBERS'}, string = {'GET'}, stream = {'XRANGE', '-', '+'}}
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind = redis.call('TYPE', key).ok
  local command, from, to, option = unpack(read[kind])
  local content = option and redis.call(command, key, from, to, option)
    or from and redis.call(command, key, from, to) or redis.call(command, key)
  table.insert(found, {key, kind, redis.call('PTTL', key) >= 0 and 1 or 0, content})
end
return found
"""

Picture = dict[str, Any]
News = Callable[..., str | None]


@dataclass(frozen=True)
class Standing:
    """What a call finds, or leaves behind, of the transaction that it is about."""

    status: str | None
    leaves: bool


class WatchedStore(LiveStore):
    """Holds every call, its answer and its move to what the header of the script says."""

    def __init__(self, redis: Redis, settings: Settings, clock: Clock) -> None:
        super().__init__(redis, settings, clock)
        self.answers_seen: set[tuple[str, str]] = set()
        self.moves_seen: set[tuple[str, str]] = set()
        #: Transactions that left memory because SQL has them; others that are not here were lost.
        self.left: set[str] = set()

    def run(self, calls: Sequence[ScriptCall | ScriptCalls]) -> list[Reply]:
        each: list[ScriptCall] = []
        for call in calls:
            each += [call] if isinstance(call, ScriptCall) else [one for _, one in call.each()]
        before = self._standings(each)
        replies = super().run(calls)
        after = self._standings(each)
        answered = one_by_one(calls, replies)
        for (call, reply), old, new in zip(answered, before, after, strict=True):
            called, keys = call.script, call.all_keys
            assert len(keys) == len(called.keys) + len(called.own_keys), called.name
            assert len({key[key.index("{") : key.index("}")] for key in keys}) == 1, keys
            if called.own_keys:
                fits(called, called.arguments, call.frame.arguments)
            fits(called, called.own_arguments or called.arguments, call.arguments)
            assert reply[0] in called.answers, (called.name, reply)
            self.answers_seen.add((called.name, reply[0]))
            if len(each) == 1:
                self._see_move(called, call.keys[0].rpartition(":")[2], old, new)
        return replies

    def _see_move(self, called: Script, tx_id: str, old: Standing, new: Standing) -> None:
        """A script that leaves everything as it is makes a move only if its header has that one."""
        if called.name == "forget" and old.leaves and old.status in FINAL:
            # What has ended and is archived leaves a little sooner than by itself: no move.
            return
        starts = named(old.status) | {"(any)"} if old.status else {"(none)"}
        if called.name == "restore":
            # What is found here is older than what is brought back, so it is as good as lost.
            starts = {"archived" if not old.status and tx_id in self.left else "(lost)"}
        leaves = new.leaves and not old.leaves and called.name != "restore"
        moved = old.status != new.status or leaves
        for move in moves_of(called):
            start, _, end = move.partition(" -> ")
            if start in starts and end in ({"archived"} if leaves else named(new.status)):
                self.moves_seen.add((called.name, move))
                return
        assert not moved, f"{called.name} moved {old} -> {new}, which its header does not say"

    def _standings(self, calls: Sequence[ScriptCall]) -> list[Standing]:
        pipeline = self.redis.pipeline(transaction=False)
        for call in calls:
            is_state = (call.script.own_keys or call.script.keys)[0] == "state"
            key = call.keys[0] if is_state else self.keys.outside("no such key")
            pipeline.hget(key, "status")
            pipeline.pttl(key)
        answers = pipeline.execute()
        pairs = zip(answers[::2], answers[1::2], strict=True)
        return [Standing(status, ttl_ms >= 0) for status, ttl_ms in pairs]


def fits(called: Script, names: Sequence[str], given: Sequence[object]) -> None:
    """As many arguments as the header names; names and values of fields may be any number."""
    if names and names[-1] in ("fields", "pairs"):
        assert len(given) >= len(names) - 1, called.name
    else:
        assert len(given) == len(names), called.name


def named(status: str | None) -> set[str]:
    """What a header may call it."""
    return {status, "final"} if status in FINAL else {status or "(none)"}


def moves_of(script: Script) -> list[str]:
    section = header_sections(script.source).get("Moves", "")
    return [line.strip() for line in section.splitlines() if line.strip()]


def kinds_written() -> set[tuple[str, str]]:
    """Scripts, and the kinds of the entries that they write, as their sources say."""
    found = set()
    for name in script_names():
        tokens = tokens_of((FOLDER / f"{name}.lua").read_text())
        for arguments in [*calls_of(tokens, "journal"), *calls_of(tokens, "entry")]:
            kinds = [token.text.strip("'") for token in arguments[5] if token.kind == "string"]
            assert kinds, f"{name} writes an entry whose kind is not in its source"
            found |= {(name, kind) for kind in kinds}
    return found


class Stage:
    """A store on real Redis, with keys of its own and a clock that stands still."""

    def __init__(self, servers: Servers, clock: Clock | None = None, **changes: Any) -> None:
        self.settings = Settings(
            key_prefix=f"{servers.prefix}-{secrets.token_hex(3)}",
            **{**servers.places(), **changes},
        )
        self.redis = make_redis(self.settings)
        self.clock = VirtualClock()
        self.live = WatchedStore(self.redis, self.settings, clock or self.clock)

    def close(self) -> None:
        for key in self.picture():
            self.redis.delete(key)
        self.redis.close()

    @property
    def now_ms(self) -> int:
        return self.live.server_now_ms()

    # Factories.

    def new(self, *, shard: str = "07", external_id: str | None = None) -> NewTransaction:
        return NewTransaction(
            tx_id=f"t{shard}-{secrets.token_hex(16)}",
            owner="alice",
            external_id=external_id,
            pipeline="p",
            group="master",
            step_type=STEP,
            place="p/0",
            state_json=STATE_JSON,
            metadata_json='{"n":9007199254740993}',
        )

    def queued(self, *, shard: str = "07", external_id: str | None = None) -> Bell:
        bell = self.live.create_many([self.new(shard=shard, external_id=external_id)])[0]
        assert bell is not None
        return bell

    def claimed(self, bell: Bell | None = None, *, node: str = NODE, begin: str = OPENS) -> Claimed:
        bell = bell or self.queued()
        pair = (bell.tx_id, bell.sequence)
        claim = self.live.claim_many([pair], node, step_type=STEP, begin=begin)[0]
        assert isinstance(claim, Claimed), claim
        return claim

    def handed_over(self, claim: Claimed | None = None) -> tuple[Claimed, Bell]:
        claim = claim or self.claimed()
        reply = self.hand_over(claim)
        assert reply[0] == "OK", reply
        return claim, Bell(claim.tx_id, reply[1], HERE.group, STEP, HERE.place, HERE.priority)

    def sleeping(
        self, claim: Claimed | None = None, *, sleep_ms: int = 60_000, switch: str = ""
    ) -> Claimed:
        claim = claim or self.claimed()
        reply = self.sleep(claim, sleep_ms=sleep_ms, switch=switch)
        assert reply[0] == "OK", reply
        return claim

    def parked(self, claim: Claimed | None = None) -> Claimed:
        claim = claim or self.claimed()
        assert self.park(claim)[0] == "OK"
        return claim

    def finished(self, claim: Claimed | None = None, status: str = "success") -> Claimed:
        claim = claim or self.claimed()
        assert self.finish(claim, status)[0] == "OK"
        return claim

    def archived(self) -> Claimed:
        claim = self.finished()
        assert self.live.confirm_archived_many([(claim.tx_id, self.version(claim.tx_id), "")]) == 1
        return claim

    def gone(self) -> Claimed:
        """One that ended, was archived and has left."""
        claim = self.archived()
        self.redis.delete(self.live.keys.state(claim.tx_id))
        return claim

    def taken_over(self, claim: Claimed | None = None) -> Claimed:
        """Queued again, because the node that ran it is gone."""
        claim = claim or self.claimed()
        order = (claim.tx_id, claim.fence, claim.fence + 1)
        assert isinstance(self.live.take_over_many([order], NODE)[0], Bell)
        return claim

    def lose(self, tx_id: str) -> None:
        """Redis forgets all of it but what is in the journal."""
        keys = self.live.keys
        self.redis.delete(keys.state(tx_id), keys.deltas(tx_id))
        for name in LISTS:
            self.redis.zrem(keys.of_tx(tx_id, name), tx_id)
        for node in NODES:
            self.redis.srem(keys.of_tx(tx_id, f"runningS:{node}"), tx_id)

    def as_sql_has_it(self, tx_id: str, view: View) -> Restored:
        """What brings it back as it was."""
        pairs = HERE.pairs()
        fields = self.new().fields() | dict(zip(pairs[::2], pairs[1::2], strict=True))
        if view.status in FINAL:
            del fields["stepType"]
        return Restored(
            tx_id=tx_id,
            version=view.version,
            fence=view.fence,
            status=view.status,
            fields=fields | view.to_fields(),
            wake_ms="" if view.wake_ms is None else view.wake_ms,
        )

    # What the holder of a claim does, with one delta each time.

    def checkpoint(self, claim: Claimed, *fields: str) -> Reply:
        return self.live.run([self.live.call_checkpoint(held(claim), fields)])[0]

    def hand_over(
        self, claim: Claimed, *, node: str = NODE, to: Position = HERE, json: str = STATE_JSON
    ) -> Reply:
        return self.live.run([self.live.call_hand_over(held(claim), node, json, to)])[0]

    def sleep(
        self,
        claim: Claimed,
        *,
        node: str = NODE,
        sleep_ms: int = 60_000,
        switch: str = "",
        seen: int = 0,
        heed_stop: bool = True,
        json: str = STATE_JSON,
    ) -> Reply:
        call = self.live.call_sleep(
            held(claim),
            node,
            json,
            HERE,
            sleep_ms=sleep_ms,
            switch=switch,
            seen=seen,
            heed_stop=heed_stop,
        )
        return self.live.run([call])[0]

    def park(self, claim: Claimed, *, node: str = NODE, json: str = STATE_JSON) -> Reply:
        return self.live.run([self.live.call_park(held(claim), node, json, "who knows")])[0]

    def finish(
        self,
        claim: Claimed,
        status: str = "success",
        *,
        node: str = NODE,
        json: str = STATE_JSON,
        follow_sql: bool = False,
    ) -> Reply:
        # Without a JSON that holds them, deltas would be in the journal only.
        shown = held(claim) if json else self.holding_nothing_new(claim)
        call = self.live.call_finish(shown, node, status, json, follow_sql=follow_sql)
        return self.live.run([call])[0]

    def holding_nothing_new(self, claim: Claimed) -> Held:
        return Held(claim.tx_id, claim.fence)

    # Looking.

    def fields(self, tx_id: str) -> dict[str, str]:
        return self.live.fields_many([tx_id])[0]

    def status(self, tx_id: str) -> str:
        return self.fields(tx_id).get("status", "gone")

    def version(self, tx_id: str) -> str:
        return self.fields(tx_id)["version"]

    def deltas(self, tx_id: str) -> list[str]:
        return [str(delta) for delta in self.redis.lrange(self.live.keys.deltas(tx_id), 0, -1)]

    def entries(self, tx_id: str) -> list[Entry]:
        """What the stream has of a transaction's journal."""
        return [entry for _, owner, entry in self.stream(tx_id[1:3]) if owner == tx_id]

    def stream(self, shard: str = "07", *, since: str = "-") -> list[tuple[str, str, Entry]]:
        """The journal of a shard: id, transaction and entry."""
        # Not by redis-py's method: what stands twice in an entry would be there once.
        found = self.live.send([("XRANGE", self.live.keys.in_shard(shard, "journalX"), since, "+")])
        texts = [
            (each, tx_id, text)
            for each, flat in found[0]
            for tx_id, text in zip(flat[::2], flat[1::2], strict=True)
        ]
        # SQL gets the text of the script, and knows by it what it has already.
        assert [text for _, _, text in texts] == [Entry.from_text(t).to_text() for _, _, t in texts]
        return [(each, tx_id, Entry.from_text(text)) for each, tx_id, text in texts]

    def view(self, tx_id: str) -> View:
        return View.from_fields(self.fields(tx_id), self.deltas(tx_id))

    def folded(self, tx_id: str) -> View:
        """The same, from nothing but the first state and the journal."""
        first = View(State.from_json(STATE_JSON))
        return first.fold(living_branch(self.entries(tx_id)))

    def unexplained(self) -> list[str]:
        """Transactions whose version is not the one that their journal leads to."""
        keys = self.redis.scan_iter(match=self.live.keys.in_shard("*", "stateH:*"), count=1_000)
        return [tx for tx in (key.rpartition(":")[2] for key in keys) if not self._explained(tx)]

    def _explained(self, tx_id: str) -> bool:
        entries = self.entries(tx_id)
        branch = living_branch(entries)
        return int(self.version(tx_id)) == (branch[-1].version if branch else 0)

    def score(self, tx_id: str, list_name: str) -> float | None:
        found: float | None = self.redis.zscore(self.live.keys.of_tx(tx_id, list_name), tx_id)
        return found

    def seen(self, tx_id: str) -> Observed:
        return look(self.live, [tx_id], NODES)[0]

    def faults(self, tx_id: str) -> list[str]:
        return check_transaction(self.seen(tx_id))

    def picture(self) -> Picture:
        """Everything that is stored, to compare before and after."""
        pattern = f"{self.settings.key_prefix}:*"
        servers: list[Any] = servers_of(self.redis)
        found = [each for server in servers for each in server.eval(PICTURE, 0, pattern)]
        in_any_order: dict[str, Callable[[list[str]], object]] = {"hash": flat_to_dict, "set": set}
        return {
            key: (ends, in_any_order.get(kind, list)(content)) for key, kind, ends, content in found
        }

    @contextmanager
    def news(self) -> Iterator[News]:
        """What is published from here on, one message a call; None if nothing comes."""
        subscription: Any = self.redis.pubsub()  # type: ignore[no-untyped-call]

        def next_message(timeout_s: float = 2.0) -> str | None:
            found = subscription.get_message(timeout=timeout_s)
            return str(found["data"]) if found else None

        with subscription:
            subscription.subscribe(self.live.keys.notify)
            assert next_message() == "1"  # the subscription itself
            yield next_message

    @contextmanager
    def nothing_changes(self) -> Iterator[None]:
        before = self.picture()
        yield
        assert self.picture() == before


def held(claim: Claimed) -> Held:
    return Held(claim.tx_id, claim.fence, (PASSED,))


@contextmanager
def interrupted_read(number: int) -> Iterator[None]:
    """Ctrl-C comes when the reply of this number is about to be read."""
    read, left = pipelining._read, number

    def interrupted(connection: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return read(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelining, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield
