"""What calls of a script share, for transactions of one shard; with one frame they go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from datp_tasks.live.keys import SHARED_LISTS, Keys
from datp_tasks.live.scripts import Argument, Frame, ScriptCall, script

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
    ) -> list[ScriptCall]:
        """One for each of these, whose own arguments begin with its id; its shard is asked once."""
        known: dict[str, tuple[Frame, str, str]] = {}
        calls = []
        for each in own:
            tx_id = each[0]
            shard = tx_id[1:3]
            if shard not in known:
                frame = self.frame(name, tx_id, node, shared)
                known[shard] = (frame, *self._keys.own_prefixes(shard))
            frame, state, deltas = known[shard]
            calls.append(ScriptCall(frame, (state + tx_id, deltas + tx_id), each))
        return calls
