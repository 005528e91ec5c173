"""Dramatiq: sends pipelines and waits for their ends; its own command runs the workers."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from dramatiq import pipeline  # type: ignore[import-not-found]

from benchmarks.peers import dramatiq_app as app
from benchmarks.peers.orders import NO_OP, own_stdout, serve

POLL_S = 0.01
GIVE_UP_S = 120.0
#: As many processes as on every other side, and as many threads in each as DBOS has.
PROCESSES, THREADS = 2, 4


def work(what: str, mark: str, wanted: list[dict[str, Any]]) -> None:
    app.redis().delete(app.DONE)
    for number, data in enumerate(wanted):
        if what == NO_OP:
            steps = [app.pass_on.message(data), app.pass_on.message(), app.last.message()]
        else:
            first = app.validate.message((f"{mark}-{number}", data))
            steps = [first, app.reserve.message(), app.commit.message()]
        pipeline(steps).run()
    ends_s = time.monotonic() + GIVE_UP_S
    while app.redis().llen(app.DONE) < len(wanted):
        if time.monotonic() > ends_s:
            raise TimeoutError(f"the pipelines have not ended after {GIVE_UP_S:g} s")
        time.sleep(POLL_S)


def main() -> None:
    answers = own_stdout()
    workers = subprocess.Popen(
        [
            *(sys.executable, "-m", "dramatiq", app.__name__),
            *("--processes", str(PROCESSES), "--threads", str(THREADS)),
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        serve(work, answers)
    finally:
        workers.terminate()
        workers.wait()


if __name__ == "__main__":
    main()
