"""A time limit for code in this thread.

In a main thread an alarm interrupts even a blocking system call. Elsewhere (a thread pool) the
exception is delivered between two bytecodes, so a blocking call ends first.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from types import FrameType, TracebackType

from datp_tasks.errors import StepTimeout


class TimeLimit:
    """Raises StepTimeout inside a `with` block that takes longer than its seconds.

    Made to be cheap: a block without trouble costs two system calls.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._timer: threading.Timer | None = None
        self._handler_is_set = False

    def __call__(self, seconds: float) -> TimeLimit:
        self._seconds = seconds
        return self

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            if not self._handler_is_set:
                signal.signal(signal.SIGALRM, _ring)
                self._handler_is_set = True
            signal.setitimer(signal.ITIMER_REAL, self._seconds)
        else:
            self._timer = threading.Timer(self._seconds, _inject, [threading.get_ident()])
            self._timer.daemon = True
            self._timer.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        else:
            self._timer.cancel()
            self._timer = None


def _ring(_signal: int, _frame: FrameType | None) -> None:
    raise StepTimeout


def _inject(thread_id: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), ctypes.py_object(StepTimeout)
    )
