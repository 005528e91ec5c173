"""A process that runs test cases of a pipeline: JSON in, JSON out.

The API starts it, so that neither the servers of the cases nor what their steps do is in the
process that serves clients.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from typing import Any, TextIO

from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.testing.case_runner import run_on_own_servers

#: Longer than the API waits for it: this is for an API that has ended in the middle.
TIME_LIMIT_S = 150.0
GRACE_S = 10.0


def main() -> None:
    # A polite end lets the servers be stopped and their folder be removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # A thread, because the time limits of steps use the one alarm that a process has.
    threading.Thread(target=_end_in_time, daemon=True).start()
    answer = _answer_alone()
    asked: dict[str, Any] = json.load(sys.stdin)
    definition, *others = (PipelineDefinition.from_json(text) for text in asked["definitions"])
    outcomes = run_on_own_servers(definition, others, asked["cases"])
    with answer:
        json.dump([asdict(each) for each in outcomes], answer)


def _answer_alone() -> TextIO:
    """Where the answer goes; what steps and their programs print goes to the errors instead."""
    sys.stdout.flush()
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answer


def _end_in_time() -> None:
    time.sleep(TIME_LIMIT_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
