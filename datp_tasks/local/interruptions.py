"""Ctrl-C and its relatives, as flags: the first asks to stop, Ctrl-C again forces it."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruptions:
    """Inside `with`, the signals are only noted; afterwards they do what they did before."""

    def __init__(self) -> None:
        self._asked = False
        self._forced = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruptions:
        for number in SIGNALS:
            before = signal.getsignal(number)
            # `nohup` has SIGHUP ignored, and means it.
            if number == signal.SIGHUP and before == signal.SIG_IGN:
                continue
            self._before[number] = before
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def asked(self) -> bool:
        return self._asked

    def forced(self) -> bool:
        return self._forced

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Nothing is printed here: the signal may have interrupted a print.
        self._forced = self._forced or (self._asked and number == signal.SIGINT)
        self._asked = True
