"""The Celery task of a step type: takes a bell, checks it, and runs a hop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery import Task

from datp_tasks.engine.registry import StepType
from datp_tasks.live.keys import shard_of_tx

log = logging.getLogger("datp.hop")

#: Runs a hop for a step type, (id, sequence) pairs, and the place of the doorbell it answers.
RunHop = Callable[[StepType, list[tuple[str, int]], str], int]


class StepTask(Task):  # type: ignore[misc]
    """`datp.step.<type>`: one message, one vector of transactions."""

    abstract = True
    ignore_result = True
    step_type: StepType
    run_hop: RunHop

    def run(self, pairs: Any = None, answers: Any = "", *_: Any, **__: Any) -> int:
        """A forged or garbled bell is at worst a bell for nothing."""
        good = readable_pairs(pairs)
        place = readable_place(answers, self.step_type)
        return self.run_hop(self.step_type, good, place) if good else 0


def make_task(step_type: StepType, run_hop: RunHop) -> StepTask:
    kind = type(
        "StepTask",
        (StepTask,),
        {
            "name": step_type.task_name,
            "step_type": step_type,
            "run_hop": staticmethod(run_hop),
            "__doc__": step_type.description,
        },
    )
    task: StepTask = kind()
    return task


def readable_place(answers: Any, step_type: StepType) -> str:
    """The line of a doorbell, if it can be one of this step type."""
    match answers.split("|") if isinstance(answers, str) else ():
        case [_, "in" | "out" | "admin", name, _, *owner] if (
            name == step_type.name and len(owner) <= 1
        ):
            return str(answers)
    return ""


def readable_pairs(pairs: Any) -> list[tuple[str, int]]:
    """The pairs that can be meant; anything else is dropped with a line in the log."""
    if not isinstance(pairs, list | tuple):
        log.warning("a bell without a list of transactions was dropped: %.100r", pairs)
        return []
    good = {}
    for pair in pairs:
        match pair:
            case [str() as tx_id, int() as sequence] if shard_of_tx(tx_id):
                good[tx_id] = int(sequence)
            case _:
                log.warning("a bell for something that is no transaction was dropped: %.100r", pair)
    return list(good.items())
