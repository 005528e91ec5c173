"""A clock that is wrong by an hour: versions, fences and sequences only ever grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from datp_tasks.live.live_types import Bell, Claimed, Held
from datp_tasks.model.journal import living_branch
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.testing.servers import Servers
from tests.support.live_states import HERE, NODE, OTHER_NODE, STATE_JSON, Stage

HOUR_S = 3_600

#: How far the clock jumps before the next transition.
JUMPS_S = st.sampled_from([0, 0, 0.001, 1, -0.001, -1, -HOUR_S, HOUR_S])


class Life:
    """One transaction, and what can be done with it next."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.live = stage, stage.live
        self.tx_id = stage.queued().tx_id
        self.claim: Claimed | None = None
        self._switches = 0

    def moves(self) -> list[Callable[[], object]]:
        by_status: dict[str, list[Callable[[], object]]] = {
            "queued": [self.claims, self.claims, self.switches],
            "running": [
                *(self.checkpoints, self.hands_over, self.sleeps, self.parks),
                *(self.reports, self.switches, self.is_taken_over, self.is_cancelled),
            ],
            "sleeping": [self.wakes, self.switches],
            "in-doubt": [self.is_resolved, self.switches],
        }
        return by_status[self.stage.status(self.tx_id)]

    @property
    def held(self) -> Held:
        assert self.claim
        return Held(self.tx_id, self.claim.fence)

    def claims(self) -> None:
        bell = self.live.ring_again_many([self.tx_id])[0]
        assert isinstance(bell, Bell)
        self.claim = self.stage.claimed(bell)

    def checkpoints(self) -> object:
        return self.live.run([self.live.call_checkpoint(self.held)])

    def hands_over(self) -> object:
        return self.live.run([self.live.call_hand_over(self.held, NODE, STATE_JSON, HERE)])

    def sleeps(self) -> object:
        return self.live.run(
            [
                self.live.call_sleep(
                    self.held, NODE, STATE_JSON, HERE, sleep_ms=1_000, heed_stop=False
                )
            ]
        )

    def parks(self) -> object:
        return self.live.run([self.live.call_park(self.held, NODE, STATE_JSON, "why")])

    def reports(self) -> object:
        return self.live.report_progress(self.tx_id, self.held.fence, "{}")

    def is_taken_over(self) -> object:
        fence = self.held.fence
        return self.live.take_over_many([(self.tx_id, fence, fence + 1)], NODE)

    def is_cancelled(self) -> object:
        return self.live.stop(self.tx_id, StopRequest.cancel(f"why {self._switches}"), OTHER_NODE)

    def wakes(self) -> object:
        return self.live.wake_many([self.tx_id], only_due=False)

    def switches(self) -> object:
        self._switches += 1
        return self.live.set_switch(self.tx_id, "kyc", str(self._switches))

    def is_resolved(self) -> object:
        fields = self.stage.fields(self.tx_id)
        fence = max(int(fields["fence"]) + 1, self.stage.now_ms)
        order = Held(self.tx_id, fence)
        return self.live.resolve(order, int(fields["version"]), STATE_JSON, HERE)


STEPS = st.lists(st.tuples(JUMPS_S, st.integers(0, 7)), min_size=10, max_size=30)


def test_nothing_goes_back_when_the_clock_does(datp_servers: Servers) -> None:
    stage = Stage(datp_servers)

    @settings(
        derandomize=True,
        database=None,
        max_examples=25,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(steps=STEPS)
    def runs(steps: list[tuple[float, int]]) -> None:
        life = Life(stage)
        claims: list[int] = []
        for jump_s, choice in steps:
            stage.clock.advance(seconds=jump_s)
            before = stage.fields(life.tx_id)
            moves = life.moves()
            move = moves[choice % len(moves)]
            move()
            after = stage.fields(life.tx_id)
            compare(before, after, stage.now_ms)
            if move == life.claims:
                claims.append(int(after["fence"]))
        assert claims == sorted(set(claims))
        entries = stage.entries(life.tx_id)
        assert living_branch(entries) == entries
        fences = [entry.fence for entry in entries]
        assert fences == sorted(fences)

    def compare(before: dict[str, Any], after: dict[str, Any], now_ms: int) -> None:
        numbers = ("version", "fence", "sequence")
        old, new = ([int(fields[name]) for name in numbers] for fields in (before, after))
        if new[0] == old[0]:
            # A second cancel: nothing happened.
            assert after == before
            return
        assert new[0] == max(old[0] + 1, now_ms)
        assert new[1] >= old[1]
        assert new[2] >= old[2]
        if before["status"] == "queued" and after["status"] == "running":
            assert new[1] == max(old[1] + 1, now_ms)

    try:
        runs()
    finally:
        stage.close()
