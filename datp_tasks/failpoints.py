"""Named points at which a test can make the process crash, stop or fail.

Without anything armed a point costs one look into an empty dict. A worker process arms points
from DATP_FAILPOINTS, such as `hop.before_final=kill` or `hop.before_final=kill@3` (the third
time); actions are `kill`, `stop`, `raise` and `crash`.

Beside the points named here there are boundaries that `testing.boundaries` finds by itself once
it is installed: before and after each script call, commit, message and step.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping

#: Every point there is; a test checks that each one exists in the code.
POINTS = (
    "submit.before_accept",
    "submit.after_accept",
    "submit.after_create",
    "submit_in.after_accept",
    "submit_in.after_commit",
    "hop.after_claim",
    "hop.after_begin",
    "hop.after_begun",
    "hop.after_point",
    "linked.after_commit",
    "bulk_transfer.before_commit",
    "bulk_transfer.after_commit",
    "bulk_cancel.after_sql",
    "hop.after_step",
    "hop.after_checkpoint",
    "hop.after_hand_over",
    "hop.after_park_mark",
    "hop.before_final",
    "hop.after_final",
    "hop.after_finish",
    "effect.before_commit",
    "effect.after_commit",
    "signal.after_sql",
    "switch.after_sql",
    "cancel.after_record",
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
    "archiver.after_role",
    "archiver.before_journal",
    "archiver.after_journal",
    "archiver.before_states",
    "archiver.after_states",
    "resurrect.after_load",
    "locate.after_restore",
    "rebuild.after_fence",
    "rebuild.after_restore",
    "rebuild.before_marks",
    "resolve.after_sql",
    "approval.after_commit",
    "approval.after_act",
    "bulk.after_take",
    "bulk.after_act",
    "erase.before_rename",
    "erase.after_files",
    "erase.before_sql",
    "erase.after_sql",
    "operator_run.after_part",
    "ledger.after_renew",
    "ledger.after_claim",
    "ledger.after_begin",
    "ledger.before_send",
    "ledger.before_finish",
    "ledger.after_finish",
    "endpoints.before_commit",
    "endpoints.after_commit",
    "webhooks.before_place",
    "webhooks.after_take",
    "webhooks.after_claim",
    "webhooks.before_post",
    "webhooks.after_post",
    "webhooks.before_settle",
    "webhooks.after_settle",
)

#: Such as `script:claim:before` or `commit:transactions.finish:after`.
BOUNDARY = re.compile(r"(script|commit|publish|effect|undo|probe):[^:=,]+:(before|after)")
#: Hears of every point for which nothing else is armed.
_EVERY = "*"

_armed: dict[str, Callable[[str], None]] = {}


class SimulatedCrash(BaseException):
    """The process died here, as far as the code around is concerned."""


class FailpointError(Exception):
    """An error that a test asked for."""


def reach(name: str) -> None:
    """Called by the code at each point."""
    if _armed:
        action = _armed.get(name) or _armed.get(_EVERY)
        if action is not None:
            action(name)


def arm(name: str, action: str | Callable[[], None], *, nth: int = 1) -> None:
    """Let the action happen the nth time the point is reached, and only then."""
    if name not in POINTS and not BOUNDARY.fullmatch(name):
        raise ValueError(f"there is no failpoint {name!r}; there are {', '.join(POINTS)}")
    act = _ACTIONS[action] if isinstance(action, str) else action
    left = nth

    def once(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    _armed[name] = once


def watch(listener: Callable[[str], None]) -> None:
    """Let a function hear of every point that is reached; it may act there as it likes."""
    _armed[_EVERY] = listener


def perform(action: str) -> None:
    """Do now what an armed point would do."""
    _ACTIONS[action]()


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
