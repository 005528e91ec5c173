"""A process that runs test cases of a pipeline: JSON in, JSON out.

The API starts it, so that neither the servers of the cases nor what their steps do is in the
process that serves clients.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from typing import Any

from datp_tasks.engine.registry import discover
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.testing.case_runner import run_on_own_servers


def main() -> None:
    # A polite end lets the servers be stopped and their folder be removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    asked: dict[str, Any] = json.load(sys.stdin)
    # What steps print must not get into the answer.
    answer, sys.stdout = sys.stdout, sys.stderr
    discover(asked["steps"])
    definition, *others = (PipelineDefinition.from_json(text) for text in asked["definitions"])
    outcomes = run_on_own_servers(definition, others, asked["cases"])
    json.dump([asdict(each) for each in outcomes], answer)


if __name__ == "__main__":
    main()
