"""Transactions in bulk: moved by the same scripts and SQL that workers use, without workers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.stack import Stack
from datp_tasks import Pipeline
from datp_tasks.client.requests import Request, prepare
from datp_tasks.live.live_types import Claimed, Held
from datp_tasks.model.plan import Position
from datp_tasks.model.state import BEGIN, Delta, State, apply, delta_json, done, ending, slept
from datp_tasks.model.status import Status
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings

BATCH = 1_000
NODE = "travellers"
SLEEP_S = 86_400.0
#: What a small business request carries.
PAYLOAD = {"from": "a" * 24, "to": "b" * 24, "amount": 12_345, "note": "x" * 60}
PIPELINE = "journey"


@dataclass(frozen=True, slots=True)
class Traveller:
    tx_id: str
    fence: int


class Travellers:
    """A system of its own, by its prefix, on the servers of the benchmark."""

    def __init__(self, stack: Stack, **settings: float) -> None:
        given = Settings(
            redis_url=stack.redis_server.url,
            database_url=stack.database_url,
            key_prefix="bench-archive",
            policy_file="single-person",
            **settings,  # type: ignore[arg-type]
        )
        # No worker listens for bells, so none are sent.
        self.connections = Container.open(given, send=_no_bells)
        steps = Pipeline(PIPELINE).step("util/progress-report").step("util/delay", dispatch="queue")
        definition = steps.build()
        self.connections.pipelines.apply(definition)
        self.connections.pipelines.use(definition.name, definition.version)
        request = Request(pipeline=PIPELINE, input=PAYLOAD)
        now = self.connections.record.server_now
        #: All travellers are alike but for their ids.
        self._like = prepare(request, definition, given, now, "00")
        self._where = Position("master", "util/delay", f"{PIPELINE}/1")

    def close(self) -> None:
        self.wipe()
        self.connections.close()

    def wipe(self) -> None:
        """Redis loses everything of this system."""
        redis = self.connections.redis
        keys: list[str] = []
        for key in redis.scan_iter(match=f"{self.connections.settings.key_prefix}:*", count=5_000):
            keys.append(key)
            if len(keys) >= 5_000:
                redis.unlink(*keys)
                keys = []
        if keys:
            redis.unlink(*keys)

    def depart(self, count: int, *, accepted: bool) -> Iterator[list[Traveller]]:
        """Batches that were queued and claimed, and have done their first step.

        Not `accepted`: SQL has no row of their request, as what is measured does not need one.
        """
        live = self.connections.live
        for size in _batches(count):
            ids = [_new_id(len(live.shards)) for _ in range(size)]
            if accepted:
                acceptance = self._like.acceptance
                self.connections.record.accept_many([replace(acceptance, tx_id=tx) for tx in ids])
            bells = live.create_many([replace(self._like.new, tx_id=tx) for tx in ids])
            claims = live.claim_many(
                [(bell.tx_id, bell.sequence) for bell in bells if bell],
                NODE,
                step_type=self._like.new.step_type,
                begin=delta_json(BEGIN),
                # As a worker that holds the state already, which then is not sent.
                held=dict.fromkeys(ids, "0/0"),
            )
            yield [
                Traveller(each.tx_id, each.fence) for each in claims if isinstance(each, Claimed)
            ]

    def sleep(self, travellers: Sequence[Traveller]) -> None:
        live, wait_ms = self.connections.live, int(SLEEP_S * 1_000)
        deltas = (_DONE, slept(SLEEP_S, None))
        json = self._after(deltas)
        _all_ok(
            live.run(
                [
                    live.call_sleep(
                        Held(each.tx_id, each.fence, deltas),
                        *(NODE, json, self._where),
                        sleep_ms=wait_ms,
                    )
                    for each in travellers
                ]
            )
        )

    def queue(self, travellers: Sequence[Traveller]) -> None:
        """Their next step gets a message of its own."""
        live, json = self.connections.live, self._after((_DONE,))
        _all_ok(
            live.run(
                [
                    live.call_hand_over(
                        Held(each.tx_id, each.fence, (_DONE,)), NODE, json, self._where
                    )
                    for each in travellers
                ]
            )
        )

    def finish(self, travellers: Sequence[Traveller]) -> None:
        live, deltas = self.connections.live, (_DONE, ending(Status.SUCCESS, "", PAYLOAD))
        json = self._after(deltas)
        _all_ok(
            live.run(
                [
                    live.call_finish(Held(each.tx_id, each.fence, deltas), NODE, "success", json)
                    for each in travellers
                ]
            )
        )

    def _after(self, deltas: Sequence[Delta]) -> str:
        state = State.from_json(self._like.new.state_json)
        for delta in deltas:
            apply(state, delta)
        return state.to_json()


_DONE = done(PAYLOAD, undoable=False)


def _new_id(shards: int) -> str:
    token = secrets.token_hex(16)
    return f"t{int(token[:4], 16) % shards:02d}-{token}"


def _all_ok(replies: Sequence[Sequence[object]]) -> None:
    wrong = [reply for reply in replies if reply[0] != "OK"]
    if wrong:
        raise AssertionError(f"{len(wrong)} were refused, such as {wrong[0]}")


def _batches(count: int) -> Iterator[int]:
    while count > 0:
        yield min(BATCH, count)
        count -= BATCH


def _no_bells(
    step_type: str,
    pairs: list[tuple[str, int]],
    *,
    group: str,
    priority: str,
    answers: str = "",
) -> None: ...
