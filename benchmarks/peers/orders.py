"""How a peer program talks to the benchmark."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

#: Where the servers are.
DATABASE = "BENCH_DATABASE_URL"
BROKER = "BENCH_PEER_REDIS_URL"

NO_OP = "three"
TRANSFER = "transfer"

#: What to do, a mark that is new each time, and the data of each transaction.
Work = Callable[[str, str, list[dict[str, Any]]], None]


def own_stdout() -> TextIO:
    """Answers go there; what the library or its children print goes to the log."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def serve(work: Work, answers: TextIO) -> None:
    """Until the benchmark closes our input."""
    _say(answers, "ready")
    for line in sys.stdin:
        order = json.loads(line)
        work(order["what"], order["mark"], order["wanted"])
        _say(answers, "done")


def _say(answers: TextIO, word: str) -> None:
    answers.write(word + "\n")
    answers.flush()
