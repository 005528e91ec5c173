"""Transactions in bulk: moved by the same scripts and SQL that workers use, without workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.stack import Stack
from datp_tasks import Pipeline
from datp_tasks.connections import Connections
from datp_tasks.intake.requests import Request, prepare
from datp_tasks.live.words import Claimed, Held
from datp_tasks.model.plan import Position
from datp_tasks.model.state import BEGIN, State, apply, delta_json, done, ending, slept
from datp_tasks.model.status import Status
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
    state: State


class Travellers:
    """A system of its own, by its prefix, on the servers of the benchmark."""

    def __init__(self, stack: Stack, **settings: float) -> None:
        given = Settings(
            redis_url=stack.redis_server.url,
            database_url=stack.postgres.url,
            key_prefix="bench-archive",
            **settings,  # type: ignore[arg-type]
        )
        # Nobody would hear the bells, so none are sent.
        self.connections = Connections.open(given, send=_no_bells)
        steps = Pipeline(PIPELINE).step("util/progress-report").step("util/delay", dispatch="queue")
        definition = steps.build()
        self.connections.pipelines.apply(definition)
        self.connections.pipelines.use(definition.name, definition.version)
        self._definition = definition
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
            prepared = [
                prepare(
                    Request(pipeline=PIPELINE, data=PAYLOAD),
                    self._definition,
                    self.connections.settings,
                    self.connections.record.server_now,
                )
                for _ in range(size)
            ]
            if accepted:
                self.connections.record.accept_many([each.acceptance for each in prepared])
            bells = [bell for bell in live.create_many([each.new for each in prepared]) if bell]
            claims = live.claim_many(
                [(bell.tx_id, bell.sequence) for bell in bells],
                NODE,
                step_type=bells[0].step_type,
                begin=delta_json(BEGIN),
            )
            yield [_after_first_step(each) for each in claims if isinstance(each, Claimed)]

    def sleep(self, travellers: Sequence[Traveller]) -> None:
        delta = slept(SLEEP_S, None)
        calls = []
        for each in travellers:
            apply(each.state, delta)
            held = Held(each.tx_id, each.fence, (_DONE, delta))
            json = each.state.to_json()
            wait_ms = int(SLEEP_S * 1_000)
            live = self.connections.live
            calls.append(live.call_sleep(held, NODE, json, self._where, sleep_ms=wait_ms))
        _all_ok(self.connections.live.run(calls))

    def queue(self, travellers: Sequence[Traveller]) -> None:
        """Their next step gets a message of its own."""
        live = self.connections.live
        calls = []
        for each in travellers:
            held = Held(each.tx_id, each.fence, (_DONE,))
            calls.append(live.call_hand_over(held, NODE, each.state.to_json(), self._where))
        _all_ok(live.run(calls))

    def finish(self, travellers: Sequence[Traveller]) -> None:
        delta = ending(Status.SUCCESS, "", PAYLOAD)
        live = self.connections.live
        calls = []
        for each in travellers:
            apply(each.state, delta)
            held = Held(each.tx_id, each.fence, (_DONE, delta))
            calls.append(live.call_finish(held, NODE, "success", each.state.to_json()))
        _all_ok(live.run(calls))


_DONE = done(PAYLOAD, undoable=False)


def _after_first_step(claimed: Claimed) -> Traveller:
    state = State.from_json(claimed.fields["state"])
    apply(state, _DONE)
    return Traveller(claimed.tx_id, claimed.fence, state)


def _all_ok(replies: Sequence[Sequence[object]]) -> None:
    wrong = [reply for reply in replies if reply[0] != "OK"]
    if wrong:
        raise AssertionError(f"{len(wrong)} were refused, such as {wrong[0]}")


def _batches(count: int) -> Iterator[int]:
    while count > 0:
        yield min(BATCH, count)
        count -= BATCH


def _no_bells(
    step_type: str, pairs: list[tuple[str, int]], *, group: str, priority: str
) -> None: ...
