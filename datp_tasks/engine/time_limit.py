"""A time limit for code in this thread.

In a main thread an alarm interrupts even a blocking system call. Elsewhere (a thread pool) the
exception is delivered between two bytecodes, so a blocking call ends first.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from types import FrameType, TracebackType

from datp_tasks.errors import StepTimeout

_NEVER = float("inf")


class TimeLimit:
    """Raises StepTimeout inside a `with` block that takes longer than its seconds.

    The alarm of a main thread is set once for many blocks: it looks at the deadline of the block
    it meets and is set again if that is later. So a block without trouble costs no system call.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._deadline_s = _NEVER
        #: When the alarm comes, by the monotonic clock.
        self._alarm_s = _NEVER
        self._timer: threading.Timer | None = None

    def __call__(self, seconds: float) -> TimeLimit:
        self._seconds = seconds
        return self

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self._timer = threading.Timer(self._seconds, _inject, [threading.get_ident()])
            self._timer.daemon = True
            self._timer.start()
            return
        deadline_s = time.monotonic() + self._seconds
        if deadline_s < self._alarm_s:
            signal.signal(signal.SIGALRM, self._ring)
            self._alarm_s = deadline_s
            signal.setitimer(signal.ITIMER_REAL, self._seconds)
        self._deadline_s = deadline_s

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._deadline_s = _NEVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def disarm(self) -> None:
        """No block follows for now: take the alarm back."""
        if self._alarm_s != _NEVER:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._alarm_s = _NEVER

    def _ring(self, _signal: int, _frame: FrameType | None) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            self._alarm_s = self._deadline_s = _NEVER
            raise StepTimeout
        if left_s == _NEVER:
            self._alarm_s = _NEVER
        else:
            self._alarm_s = self._deadline_s
            signal.setitimer(signal.ITIMER_REAL, left_s)


def _inject(thread_id: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), ctypes.py_object(StepTimeout)
    )
