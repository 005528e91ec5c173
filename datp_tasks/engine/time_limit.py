"""A time limit for code in this thread.

In a main thread an alarm interrupts even a blocking system call. Elsewhere (a thread pool) the
exception is delivered between two bytecodes, so a blocking call ends first.

An exception can get lost: what is raised in a weakref callback or in `__del__` is printed and
dropped, and a handler of the log swallows it too. So it is raised again while the block goes on.
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

    def __init__(self, grace_s: float) -> None:
        #: Time to clean up until the process is killed. A block that goes on is interrupted again
        #: after half of it, in case that the first time was lost.
        self._again_s = grace_s / 2
        self._seconds = 0.0
        self._is_inside = False
        self._deadline_s = _NEVER
        #: When the alarm comes, by the monotonic clock.
        self._alarm_s = _NEVER
        self._injection: _Injection | None = None

    def __call__(self, seconds: float) -> TimeLimit:
        self._seconds = seconds
        return self

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self._injection = _Injection(self._seconds, self._again_s)
            return
        # Known before the alarm is set, which may come at once.
        self._deadline_s = deadline_s = time.monotonic() + self._seconds
        if deadline_s < self._alarm_s:
            signal.signal(signal.SIGALRM, self._ring)
            self._alarm_s = deadline_s
            signal.setitimer(signal.ITIMER_REAL, self._seconds)
        self._is_inside = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._deadline_s = _NEVER
        self._is_inside = False
        if self._injection is not None:
            self._injection.end()
            self._injection = None

    def disarm(self) -> None:
        """No block follows for now: take the alarm back."""
        if self._alarm_s != _NEVER:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._alarm_s = _NEVER

    def _ring(self, _signal: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        left_s = self._deadline_s - now_s
        if left_s == _NEVER:
            self._alarm_s = _NEVER
        elif left_s > 0:
            self._set_alarm(self._deadline_s, left_s)
        elif self._is_over(frame):
            # What is raised here leaves no block, so it cannot come again.
            self._alarm_s = self._deadline_s = _NEVER
            self._is_inside = False
            raise StepTimeout
        else:
            self._set_alarm(now_s + self._again_s, self._again_s)
            raise StepTimeout

    def _is_over(self, frame: FrameType | None) -> bool:
        """Whether the alarm met the block at its very beginning or end."""
        is_ending = frame is not None and frame.f_code is TimeLimit.__exit__.__code__
        return is_ending or not self._is_inside

    def _set_alarm(self, alarm_s: float, seconds: float) -> None:
        self._alarm_s = alarm_s
        signal.setitimer(signal.ITIMER_REAL, seconds)


class _Injection:
    """Raises StepTimeout in the thread that makes it, unless that thread ends it in time."""

    def __init__(self, seconds: float, again_s: float) -> None:
        self._thread_id = ctypes.c_ulong(threading.get_ident())
        self._again_s = again_s
        self._lock = threading.Lock()
        self._is_over = self._is_raised = False
        self._start(seconds)

    def _start(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._raise)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """From now on nothing is raised, also not what was set and not yet delivered."""
        with self._lock:
            self._is_over = True
            if self._is_raised:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(self._thread_id, None)
        self._timer.cancel()

    def _raise(self) -> None:
        with self._lock:
            if not self._is_over:
                self._is_raised = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    self._thread_id, ctypes.py_object(StepTimeout)
                )
                self._start(self._again_s)
