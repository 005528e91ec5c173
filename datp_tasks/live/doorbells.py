"""Doorbells: transactions that are due at one place share the message that is on its way there.

Ringing never waits: the first one gets a message at once. What becomes due before a worker has
answered it would only make the queue longer, so it waits in a line that the worker takes along.

A place has one line that all owners share, in which each may have one vector. What an owner has
beyond that waits in a line of its own, of which only a few messages are in the queue at a time;
while others have work they are less urgent. So however much one owner has queued, another's finds
the queue short.

All of this is hints: what is lost here is queued in `queuedZ`, and the reconciler rings again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from datp_tasks.live.live_types import PRIORITIES
from datp_tasks.live.scripts import Reply, ScriptCall, call, script
from datp_tasks.live.store import LiveStore

Pair = tuple[str, int]

#: A message that was not answered for so long counts as lost, or its queue is so long that one
#: more message does not matter.
RINGING_MS = 1_000
#: What waits for so long has been rung again by the reconciler.
WAITING_MS = 600_000
#: The reconciler rings again for what waits at a group without workers, so a line would grow.
WAITING_MAX = 100_000
#: What one call of a script may hold.
CALL_PAIRS_MAX = 1_000
#: Messages of an owner's own line that are under way: enough for a dozen processes, since each is
#: replaced as soon as a worker has it.
OWN_MESSAGES_MAX = 8


class Waits(NamedTuple):
    """A transaction that is due, and whose it is."""

    tx_id: str
    sequence: int
    owner: str = ""

    @property
    def pair(self) -> Pair:
        return self.tx_id, self.sequence


class Message(NamedTuple):
    """An entry of a list that is a queue of Celery's."""

    queue: str
    text: str


#: What became of a bell: the caller must send a message; that was sent with it; or those for which
#: there is no room, because their owner has so many there, while the others go with a message.
Rung = Literal["SEND", "SENT"] | list[Waits]


class Line(NamedTuple):
    """Where bells wait: a place, for all owners or for one."""

    group: str
    priority: str
    step_type: str
    #: pipeline/step index.
    place: str
    owner: str = ""

    @classmethod
    def parsed(cls, name: str) -> Line:
        return cls(*name.split("|"))

    @property
    def name(self) -> str:
        return "|".join(self if self.owner else self[:4])

    @property
    def later_priority(self) -> str:
        """Of what lets others pass; what an operator asks for lets none."""
        later = f"{self.priority}-later"
        return later if later in PRIORITIES else self.priority


class Doorbells:
    def __init__(self, live: LiveStore) -> None:
        self._live = live

    def ring(
        self,
        line: str,
        due: Sequence[Waits],
        *,
        owner_max: int = WAITING_MAX,
        message: Message | None = None,
    ) -> Rung:
        """Ring for these, at most CALL_PAIRS_MAX; the message is for the first of them."""
        return self.rung(self._live.run([self.ringing(line, due, owner_max, message)])[0])

    def ringing(
        self, line: str, due: Sequence[Waits], owner_max: int, message: Message | None
    ) -> ScriptCall:
        """The call by which a line is rung; `rung` reads its reply."""
        texts = [f"{tx_id} {sequence} {owner}" for tx_id, sequence, owner in due]
        queue, text = message or (self._live.keys.in_shard("bells", "noQueue"), "")
        order: tuple[str | int, ...] = (line, RINGING_MS, WAITING_MS, owner_max, text, *texts)
        return call(script("ring"), (*self._keys(line), queue), order)

    @staticmethod
    def rung(reply: Reply) -> Rung:
        word: Literal["SEND", "SENT", "WAIT"] = reply[0]
        return list(map(_waits, reply[1])) if word == "WAIT" else word

    def put(self, messages: Sequence[Message]) -> None:
        """Put messages into their queues, in this order, in one round trip."""
        self._live.send([("LPUSH", each.queue, each.text) for each in messages])

    def answering(
        self, line: str, take_max: int, next_max: int, messages_max: int = OWN_MESSAGES_MAX
    ) -> ScriptCall:
        """The call by which a worker answers; `answered` reads its reply."""
        messages_max = min(messages_max, OWN_MESSAGES_MAX) if Line.parsed(line).owner else 1
        order = (line, RINGING_MS, WAITING_MS, take_max, next_max, messages_max)
        return call(script("answer"), self._keys(line), order)

    @staticmethod
    def answered(reply: Reply) -> tuple[list[Pair], list[list[Pair]]]:
        """What the worker takes along, and what each of the next messages must carry."""
        return _pairs(reply[1]), [_pairs(texts) for texts in reply[2]]

    def waiting(self, group: str) -> int:
        """How many wait in the lines of a node group, beside the messages in its queue."""
        lines = self._live.keys.in_shard("bells", "linesS")
        names = [
            name
            for name in map(str, self._live.redis.smembers(lines))
            if name.startswith(f"{group}|")
        ]
        counts = self._live.send([("LLEN", self._keys(name)[1]) for name in names])
        # That a list expires is not told. Should it get an entry just now, it is counted
        # again once it has been empty.
        gone = [name for name, count in zip(names, counts, strict=True) if not count]
        if gone:
            self._live.send([("SREM", lines, *gone)])
        return sum(counts)

    def _keys(self, line: str) -> tuple[str, str, str, str]:
        of_bells = self._live.keys.in_shard
        return (
            of_bells("bells", f"ringN:{line}"),
            of_bells("bells", f"lineL:{line}"),
            of_bells("bells", f"lineH:{line}"),
            of_bells("bells", "linesS"),
        )


def _pairs(texts: Sequence[str]) -> list[Pair]:
    """Id and sequence of each, without its owner. No `Waits` is made: each transaction of a vector
    comes through here."""
    return [(tx_id, int(number)) for tx_id, number, _ in (each.split(" ", 2) for each in texts)]


def _waits(text: str) -> Waits:
    tx_id, sequence, owner = text.split(" ", 2)
    return Waits(tx_id, int(sequence), owner)
