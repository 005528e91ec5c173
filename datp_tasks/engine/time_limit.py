"""A time limit for code in this thread.

In a main thread an alarm interrupts even a blocking system call. Elsewhere (a thread pool) the
exception is delivered between two bytecodes, so a blocking call ends first.

Either may come while Python runs a callback of a weak reference, a `__del__` or the like, from
which no exception gets out: Python tells `sys.unraisablehook` of it and goes on. Then it is raised
once more.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from datp_tasks.errors import StepTimeout

_NEVER = float("inf")
#: The callback in which it was lost is over by then.
_AGAIN_S = 0.01

#: By thread: raises once more what was lost in the block of that thread.
_again: dict[int, Callable[[], None]] = {}


class TimeLimit:
    """Raises StepTimeout inside a `with` block that takes longer than its seconds; for blocks of
    the thread that makes it.

    The alarm of a main thread is set once for many blocks: it looks at the deadline of the block
    it meets and is set again if that is later. So a block without trouble costs no system call.
    """

    def __init__(self) -> None:
        self._is_main = threading.current_thread() is threading.main_thread()
        self._seconds = 0.0
        self._deadline_s = _NEVER
        #: When the alarm comes, by the monotonic clock.
        self._alarm_s = _NEVER
        self._injection: _Injection | None = None

    def __call__(self, seconds: float) -> TimeLimit:
        self._seconds = seconds
        return self

    def __enter__(self) -> None:
        if not self._is_main:
            self._injection = _Injection(self._seconds)
            return
        # Known before the alarm is set, which may come at once.
        self._deadline_s = deadline_s = time.monotonic() + self._seconds
        if deadline_s < self._alarm_s:
            _watch_for_losses(self._ring_again)
            signal.signal(signal.SIGALRM, self._ring)
            self._alarm_s = deadline_s
            signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._deadline_s = _NEVER
        if self._injection is not None:
            self._injection.end()
            self._injection = None

    def disarm(self) -> None:
        """No block follows for now: take the alarm back."""
        if self._alarm_s != _NEVER:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._alarm_s = _NEVER

    def _ring(self, _signal: int, _frame: FrameType | None) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            self._alarm_s = _NEVER
            raise StepTimeout
        if left_s == _NEVER:
            self._alarm_s = _NEVER
        else:
            self._alarm_s = self._deadline_s
            signal.setitimer(signal.ITIMER_REAL, left_s)

    def _ring_again(self) -> None:
        if self._deadline_s != _NEVER:
            self._alarm_s = time.monotonic() + _AGAIN_S
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


class _Injection:
    """Raises StepTimeout in the thread that makes it, unless that thread ends it in time."""

    def __init__(self, seconds: float) -> None:
        self._thread_id = ctypes.c_ulong(threading.get_ident())
        #: The exception may be lost while this thread holds it, which is then asked for again.
        self._lock = threading.RLock()
        self._is_over = self._is_raised = False
        _watch_for_losses(self._start_again)
        self._start(seconds)

    def _start(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._raise)
        self._timer.daemon = True
        self._timer.start()

    def _start_again(self) -> None:
        with self._lock:
            if not self._is_over:
                self._start(_AGAIN_S)

    def end(self) -> None:
        """From now on nothing is raised, also not what was set and not yet delivered."""
        with self._lock:
            self._is_over = True
            if self._is_raised:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(self._thread_id, None)
        self._timer.cancel()
        _again.pop(threading.get_ident(), None)

    def _raise(self) -> None:
        with self._lock:
            if not self._is_over:
                self._is_raised = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    self._thread_id, ctypes.py_object(StepTimeout)
                )


def _watch_for_losses(again: Callable[[], None]) -> None:
    """Call this, should a StepTimeout of the current thread be lost."""
    _again[threading.get_ident()] = again
    _Losses.install()


class _Losses:
    """What Python tells of exceptions that it cannot raise; all but ours goes to the hook before.

    Each installation knows its own: a hook that replaced ours may call ours in turn.
    """

    _installing = threading.RLock()

    def __init__(self, before: Callable[[Any], Any]) -> None:
        self._before = before

    @classmethod
    def install(cls) -> None:
        if isinstance(sys.unraisablehook, cls):
            return
        with cls._installing:
            before = sys.unraisablehook
            if not isinstance(before, cls):
                sys.unraisablehook = cls(before)

    def __call__(self, unraisable: Any) -> None:
        again = _again.get(threading.get_ident())
        if again is not None and issubclass(unraisable.exc_type, StepTimeout):
            again()
        else:
            self._before(unraisable)
