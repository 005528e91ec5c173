"""Transactions brought to a status by the scripts themselves, and a store that watches them.

The factories of `Stage` are named by the status they reach; what they give is what a worker in
that situation would hold: a bell, or a claim (which is an old one once the status was left).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis import Redis

from datp_tasks.clock import Clock, VirtualClock
from datp_tasks.connections import make_redis
from datp_tasks.live.scripts import Call, Reply, Script, header_sections
from datp_tasks.live.store import LiveStore
from datp_tasks.live.words import Bell, Claimed, Held, NewTransaction, flat_to_dict
from datp_tasks.model.plan import Position
from datp_tasks.model.state import BEGIN, PASSED, delta_json
from datp_tasks.model.status import FINAL
from datp_tasks.observe.invariants import Seen, check_transaction, look
from datp_tasks.settings import Settings
from datp_tasks.testing.servers import Servers

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
              set = {'SMEMBERS'}, string = {'GET'}}
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


class WatchedStore(LiveStore):
    """Holds every call, its answer and its move to what the header of the script says."""

    def __init__(self, redis: Redis, settings: Settings, clock: Clock) -> None:
        super().__init__(redis, settings, clock)
        self.answers_seen: set[tuple[str, str]] = set()
        self.moves_seen: set[tuple[str, str]] = set()

    def run(self, calls: Sequence[Call]) -> list[Reply]:
        before = self._statuses(calls)
        replies = super().run(calls)
        after = self._statuses(calls)
        for (called, keys, arguments), reply, old, new in zip(
            calls, replies, before, after, strict=True
        ):
            assert len(keys) == len(called.keys), called.name
            assert len({key[key.index("{") : key.index("}")] for key in keys}) == 1, keys
            if called.arguments[-1] in ("fields", "rest"):
                assert len(arguments) >= len(called.arguments) - 1, called.name
            else:
                assert len(arguments) == len(called.arguments), called.name
            assert reply[0] in called.answers, (called.name, reply)
            self.answers_seen.add((called.name, reply[0]))
            if old != new and len(calls) == 1:
                self.moves_seen.add((called.name, allowed_move(called, old, new)))
        return replies

    def _statuses(self, calls: Sequence[Call]) -> list[str | None]:
        pipeline = self.redis.pipeline(transaction=False)
        for called, keys, _ in calls:
            if called.keys[0] == "state":
                pipeline.hget(keys[0], "status")
            else:
                pipeline.get(self.keys.outside("no such key"))
        return list(pipeline.execute())


def moves_of(script: Script) -> list[str]:
    section = header_sections(script.source).get("Moves", "")
    return [line.strip() for line in section.splitlines() if line.strip()]


def allowed_move(script: Script, old: str | None, new: str | None) -> str:
    """The line of the header that allows this change of status."""
    olds = {"(none)"} if old is None else {old, "(any)"}
    news = {new, "final"} if new in FINAL else {new}
    for move in moves_of(script):
        start, _, end = move.partition(" -> ")
        if start in olds and end in news:
            return move
    raise AssertionError(f"{script.name} moved {old} -> {new}, which its header does not say")


class Stage:
    """A store on real Redis, with keys of its own and a clock that stands still."""

    def __init__(self, servers: Servers, clock: Clock | None = None, **changes: Any) -> None:
        self.settings = Settings(
            redis_url=servers.redis_url,
            key_prefix=f"{servers.prefix}-{secrets.token_hex(3)}",
            **changes,
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
        assert self.live.confirm_archived_many([(claim.tx_id, self.version(claim.tx_id))]) == 1
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
        heed_cancel: bool = True,
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
            heed_cancel=heed_cancel,
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
        call = self.live.call_finish(held(claim), node, status, json, follow_sql=follow_sql)
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

    def score(self, tx_id: str, list_name: str) -> float | None:
        found: float | None = self.redis.zscore(self.live.keys.of_tx(tx_id, list_name), tx_id)
        return found

    def seen(self, tx_id: str) -> Seen:
        return look(self.live, [tx_id], NODES)[0]

    def faults(self, tx_id: str) -> list[str]:
        return check_transaction(self.seen(tx_id))

    def picture(self) -> Picture:
        """Everything that is stored, to compare before and after."""
        found: Any = self.redis.eval(PICTURE, 0, f"{self.settings.key_prefix}:*")
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
