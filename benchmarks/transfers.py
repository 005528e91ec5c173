"""Random transfers and their states: the data of the seed's study, made again.

The distribution is that of Mojaloop's `randomTransfers.js` as it made the seed's dataset: of a
million transfers 1,000 have expired (half of them prepared, half reserved); the others end with
equal chance in one of nine ways, one of which is "still reserved". That gives 3.56 rows each.

Variants: `contiguous` (all rows of a transfer one after another, as the original wrote them),
`interleaved` (each state comes a while after the one before, as in real traffic) and `finalised`
(interleaved, and nearly everything is over). The same seed gives the same rows.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

Variant = Literal["contiguous", "interleaved", "finalised"]
VARIANTS: tuple[Variant, ...] = ("contiguous", "interleaved", "finalised")

HOURS_MAX = 168
MS_PER_HOUR = 3_600_000
AMOUNT_MAX = 100
CURRENCIES = ("USD", "EUR", "ZAR")
SHARDS = 16
#: Between two states of a transfer, so many others start at most. The original meant its states to
#: be 30 s apart on average; at 200 transfers a second 6,000 others start meanwhile.
OTHERS_BETWEEN_MAX = 12_000
#: Of the variant `finalised`: how many of those that have not expired are still in process.
LIVE_SHARE = 0.01

PREPARED, RESERVED, FULFILLED = "RECEIVED_PREPARE", "RESERVED", "RECEIVED_FULFIL"
COMMITTED, SETTLING, SETTLED = "COMMITTED", "PENDING_SETTLEMENT", "SETTLED"

#: The nine ways, each as likely as the others; the first is not over.
STILL_RESERVED = (PREPARED, RESERVED)
OVER = (
    (PREPARED, RESERVED, FULFILLED),
    (PREPARED, RESERVED, FULFILLED, COMMITTED),
    *((PREPARED, RESERVED, end) for end in ("FAILED", "EXPIRED", "REJECTED", "ABORTED")),
    (PREPARED, RESERVED, FULFILLED, COMMITTED, SETTLING),
    (PREPARED, RESERVED, FULFILLED, COMMITTED, SETTLING, SETTLED),
)
EXPIRED = ((PREPARED,), (PREPARED, RESERVED))


@dataclass(frozen=True, slots=True)
class Transfer:
    transfer_id: str
    amount: float
    currency: str
    #: Relative to the moment at which the data is loaded.
    expires_in_ms: int
    states: tuple[str, ...]

    @property
    def is_over(self) -> bool:
        return self.states not in (*EXPIRED, STILL_RESERVED)


@dataclass(frozen=True, slots=True)
class Change:
    """One row of the log. `is_first`: the transfer itself is new, too."""

    transfer: Transfer
    state: str
    is_first: bool


def transfers(total: int, expired: int, variant: Variant, seed: int) -> Iterator[Transfer]:
    rng = Random(seed)
    every = max(1, total // max(1, expired))
    left = expired
    for number in range(total):
        remaining = total - number
        has_expired = left > 0 and (remaining <= left or rng.randrange(every) == 0)
        left -= has_expired
        states = rng.choice(EXPIRED) if has_expired else _way(rng, variant)
        in_the_past = has_expired or (variant == "finalised" and states != STILL_RESERVED)
        yield Transfer(
            transfer_id=f"t{number % SHARDS:02d}-{number:016x}{rng.getrandbits(64):016x}",
            amount=1 + math.ceil(rng.random() * (AMOUNT_MAX - 1) * 100) / 100,
            currency=rng.choice(CURRENCIES),
            expires_in_ms=_expiry_ms(rng, in_the_past),
            states=states,
        )


def _way(rng: Random, variant: Variant) -> tuple[str, ...]:
    if variant == "finalised":
        return STILL_RESERVED if rng.random() < LIVE_SHARE else rng.choice(OVER)
    return rng.choice((STILL_RESERVED, *OVER))


def _expiry_ms(rng: Random, in_the_past: bool) -> int:
    hours = rng.randint(1, HOURS_MAX)
    after_ms = int(rng.random() * hours * MS_PER_HOUR)
    return -after_ms - 1 if in_the_past else after_ms + MS_PER_HOUR


def changes(total: int, expired: int, variant: Variant, seed: int) -> Iterator[Change]:
    """The log, in the order of its ids."""
    made = transfers(total, expired, variant, seed)
    if variant == "contiguous":
        for transfer in made:
            for place, state in enumerate(transfer.states):
                yield Change(transfer, state, place == 0)
        return
    rng = Random(seed + 1)
    #: When it is due (in transfers started), a tie-breaker, the transfer, the place of its state.
    later: list[tuple[float, int, Transfer, int]] = []
    for number, transfer in enumerate(made):
        heapq.heappush(later, (number, number, transfer, 0))
        yield from _due(later, number, rng)
    yield from _due(later, math.inf, rng)


def _due(
    later: list[tuple[float, int, Transfer, int]], until: float, rng: Random
) -> Iterator[Change]:
    while later and later[0][0] <= until:
        at, number, transfer, place = heapq.heappop(later)
        yield Change(transfer, transfer.states[place], place == 0)
        if place + 1 < len(transfer.states):
            pause = rng.random() * OTHERS_BETWEEN_MAX
            heapq.heappush(later, (at + pause, number, transfer, place + 1))
