"""What calls of a script share, for transactions of one shard; and calls of many transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from datp_tasks.live.keys import SHARED_LISTS, Keys
from datp_tasks.live.scripts import (
    Argument,
    Frame,
    ScriptCalls,
    Vector,
    are_long,
    script,
    size_of,
)

#: Frames kept for reuse: some for each shard, script and node, and one for each place at which
#: transactions of a shard begin or go on.
FRAMES_MAX = 10_000


class Frames:
    def __init__(self, keys: Keys, given_now: Callable[[], Argument]) -> None:
        self._keys = keys
        self._given_now = given_now
        #: By script, shard, node, time and arguments.
        self._known: dict[tuple[str, str, str, Argument, tuple[Argument, ...]], Frame] = {}

    def frame(
        self, name: str, tx_id: str, node: str = "", arguments: tuple[Argument, ...] = ()
    ) -> Frame:
        """That of a transaction's shard; time comes first among the arguments."""
        shard, now = tx_id[1:3], self._given_now()
        wanted = (name, shard, node, now, arguments)
        frame = self._known.get(wanted)
        if frame is None:
            if len(self._known) >= FRAMES_MAX:
                self._known.clear()
            lists = [
                f"{each}:{node}" if each == "runningS" else each for each in SHARED_LISTS[name]
            ]
            keys = tuple(self._keys.in_shard(shard, each) for each in lists)
            frame = self._known[wanted] = Frame(script(name), keys, (now, *arguments))
        return frame

    def calls(
        self, name: str, own: Sequence[tuple[str, ...]], node: str, shared: tuple[Argument, ...]
    ) -> ScriptCalls:
        """Of these, whose own arguments begin with their ids: a vector for those of each shard, or
        several if one would be too large."""
        vectors: list[Vector] = []
        filled: dict[str, tuple[Vector, str, str]] = {}
        is_long = are_long(own)
        for place, arguments in enumerate(own):
            tx_id = arguments[0]
            shard = tx_id[1:3]
            if shard not in filled or filled[shard][0].is_full:
                vector = Vector.of(self.frame(name, tx_id, node, shared), [])
                vectors.append(vector)
                filled[shard] = (vector, *self._keys.own_prefixes(shard))
            vector, state, deltas = filled[shard]
            vector.add(place, (state + tx_id, deltas + tx_id), arguments)
            if is_long:
                vector.size += size_of(arguments)
        return ScriptCalls(script(name), own, vectors)
