"""Named points at which a test can make the process crash, stop or fail.

Without anything armed a point costs one look into an empty dict. A worker process arms points
from DATP_FAILPOINTS, such as `hop.before_final=kill` or `hop.before_final=kill@3` (the third
time); actions are `kill`, `stop`, `raise` and `crash`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

#: Every point there is; a test checks that each one exists in the code.
POINTS = (
    "submit.before_accept",
    "submit.after_accept",
    "submit.after_create",
    "hop.after_claim",
    "hop.after_begin",
    "hop.after_step",
    "hop.after_checkpoint",
    "hop.after_hand_over",
    "hop.before_final",
    "hop.after_final",
    "hop.after_finish",
    "effect.before_commit",
    "effect.after_commit",
    "cancel.after_seize",
    "seized.before_final",
    "seized.after_final",
    "timeouts.in_pass",
    "timeouts.after_pass",
    "timeouts.after_seize",
    "timeouts.after_mark",
    "timeouts.after_ask",
    "timeouts.after_fence",
    "reaper.after_fence",
    "sleeper.before_ring",
    "ledger.after_renew",
    "ledger.after_claim",
    "ledger.after_begin",
    "ledger.before_send",
    "ledger.before_finish",
    "ledger.after_finish",
)

_armed: dict[str, Callable[[], None]] = {}


class SimulatedCrash(BaseException):
    """The process died here, as far as the code around is concerned."""


class FailpointError(Exception):
    """An error that a test asked for."""


def reach(name: str) -> None:
    """Called by the code at each point."""
    if _armed:
        action = _armed.get(name)
        if action is not None:
            action()


def arm(name: str, action: str | Callable[[], None], *, nth: int = 1) -> None:
    """Let the action happen the nth time the point is reached, and only then."""
    if name not in POINTS:
        raise ValueError(f"there is no failpoint {name!r}; there are {', '.join(POINTS)}")
    perform = _ACTIONS[action] if isinstance(action, str) else action
    left = nth

    def once() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            perform()

    _armed[name] = once


def disarm_all() -> None:
    _armed.clear()


def arm_from_env(env: Mapping[str, str] = os.environ) -> None:
    for part in filter(None, env.get("DATP_FAILPOINTS", "").split(",")):
        name, _, action = part.strip().partition("=")
        action, _, nth = action.partition("@")
        arm(name, action, nth=int(nth or 1))


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _raise() -> None:
    raise FailpointError("a failpoint raised this")


def _crash() -> None:
    raise SimulatedCrash


_ACTIONS: dict[str, Callable[[], None]] = {
    "kill": _kill,
    "stop": _stop,
    "raise": _raise,
    "crash": _crash,
}
