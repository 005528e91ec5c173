"""The bucket of tokens of an owner: what is taken, owed, and given back."""

from __future__ import annotations

from datp_tasks.live.rates import Granted, Limited, Rates
from datp_tasks.testing import Kit


def test_what_is_given_back_pays_a_debt_and_never_fills_more_than_the_bucket(datp: Kit) -> None:
    live = datp.connections.live
    rates = Rates(live.redis, live.keys, datp.clock)

    def take(cost: int) -> Granted | Limited:
        return rates.take("ann", per_s=1.0, burst=10, cost=cost)

    assert take(25) == Granted(0, -15), "what costs more than there is makes a debt"
    assert take(1) == Limited(16_000)
    assert take(-20) == Granted(0, 5), "also while there is a debt"
    assert take(1) == Granted(0, 4)
    assert take(-50) == Granted(0, 10)
    assert take(1) == Granted(0, 9)
