"""Doorbells: transactions that are due at one place share the message that is on its way there.

Ringing never waits: the first one gets a message at once. What becomes due before a worker has
answered it would only make the queue longer, so it waits in a list that the worker takes along.
All of this is hints: what is lost here is queued in `queuedZ`, and the reconciler rings again.
"""

from __future__ import annotations

from collections.abc import Sequence

from datp_tasks.live.scripts import Call, call, script
from datp_tasks.live.store import LiveStore

Pair = tuple[str, int]

#: A message that was not answered for so long counts as lost, or its queue is so long that one
#: more message does not matter.
RINGING_MS = 1_000
#: What waits for so long has been rung again by the reconciler.
WAITING_MS = 600_000
#: The reconciler rings again for what waits at a group without workers, so the list would grow.
WAITING_MAX = 10_000


class Doorbells:
    """By place: "<group>|<priority>|<step type>|<pipeline/step index>"."""

    def __init__(self, live: LiveStore) -> None:
        self._live = live

    def ring(self, place: str, pairs: Sequence[Pair]) -> bool:
        """True if the caller must send a message for these pairs; else they go with another."""
        texts = [f"{tx_id} {sequence}" for tx_id, sequence in pairs]
        order = call(
            script("ring"), self._keys(place), (RINGING_MS, WAITING_MS, WAITING_MAX, *texts)
        )
        return bool(self._live.run([order])[0][0] == "SEND")

    def answering(self, place: str, take_max: int, next_max: int) -> Call:
        """The call by which a worker answers; `answered` reads its reply."""
        return call(script("answer"), self._keys(place), (take_max, next_max, RINGING_MS))

    @staticmethod
    def answered(reply: Sequence[list[str]]) -> tuple[list[Pair], list[Pair]]:
        """What the worker takes along, and what the next message must carry."""
        return _pairs(reply[1]), _pairs(reply[2])

    def _keys(self, place: str) -> tuple[str, str]:
        of_bells = self._live.keys.in_shard
        return of_bells("bells", f"ringing:{place}"), of_bells("bells", f"waitingL:{place}")


def _pairs(texts: Sequence[str]) -> list[Pair]:
    return [(tx_id, int(sequence)) for tx_id, _, sequence in (t.partition(" ") for t in texts)]
