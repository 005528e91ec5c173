"""How often an owner may ask: a bucket of tokens in Redis, shared by all processes."""

from __future__ import annotations

from dataclasses import dataclass

from redis import Redis

from datp_tasks.clock import Clock
from datp_tasks.live.keys import Keys
from datp_tasks.live.scripts import ScriptRunner, call, script


@dataclass(frozen=True, slots=True)
class Granted:
    """It may go on; `more` further tokens were taken along, and `left` are in the bucket."""

    more: int
    left: int


@dataclass(frozen=True, slots=True)
class Limited:
    """Not now; there is a token again after so long."""

    wait_ms: int


class Rates:
    def __init__(self, redis: Redis, keys: Keys, clock: Clock) -> None:
        self._runner = ScriptRunner(redis)
        self._keys = keys
        self._clock = clock

    def take(
        self, owner: str, *, per_s: float, burst: int, cost: int, more: int = 0
    ) -> Granted | Limited:
        """A cost below 0 gives tokens back."""
        now_ms = self._clock.now_ms()
        given = ("" if now_ms is None else now_ms, repr(per_s), burst, cost, more)
        key = self._keys.outside(f"rateH:{owner}")
        word, *numbers = self._runner.run([call(script("take_tokens"), (key,), given)])[0]
        first, *rest = (int(each) for each in numbers)
        return Granted(first, *rest) if word == "OK" else Limited(first)
