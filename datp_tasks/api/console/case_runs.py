"""Running the test cases of a pipeline in a process and on servers of their own."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from datp_tasks.errors import DatpError
from datp_tasks.model.pipeline import PipelineDefinition

log = logging.getLogger("datp.console")

PROGRAM = "datp_tasks.testing.case_process"
#: Two servers are started for it, which takes some seconds.
RUN_S = 120.0
GRACE_S = 10.0
ANSWER_BYTES_MAX = 1_000_000
TROUBLE_CHARS_MAX = 500


class CasesNotRun(DatpError):
    """Nothing is known of the cases; the text says why."""


@dataclass(frozen=True, slots=True)
class ShownCase:
    status: str
    #: Where it differs from what the case expects; empty: it has passed.
    mistakes: Sequence[str]


class CaseRuns:
    """One run at a time for a process of the API: each costs two servers."""

    def __init__(self) -> None:
        self._is_busy = False

    async def run(
        self, steps: Sequence[str], definitions: Sequence[PipelineDefinition], cases: Sequence[str]
    ) -> dict[str, ShownCase]:
        """What came of each case of the first definition; the others are those it may call."""
        if self._is_busy:
            raise CasesNotRun("Test cases are being run already; wait until they are over.")
        self._is_busy = True
        try:
            asked = {
                "steps": list(steps),
                "definitions": [each.to_json() for each in definitions],
                "cases": list(cases),
            }
            return _results(await _answer(json.dumps(asked).encode()))
        finally:
            self._is_busy = False


async def _answer(asked: bytes) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-m", PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
        start_new_session=True,
    )
    try:
        answer, errors = await asyncio.wait_for(process.communicate(asked), RUN_S)
    except TimeoutError:
        raise _trouble(f"they were not over after {RUN_S:.0f} s") from None
    finally:
        await _end(process)
    if process.returncode or len(answer) > ANSWER_BYTES_MAX:
        said = errors.decode(errors="replace").strip()
        log.warning("test cases could not be run: %s", said)
        raise _trouble(said.rpartition("\n")[2][:TROUBLE_CHARS_MAX])
    return answer


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), GRACE_S)
    except TimeoutError:
        # Its servers end with it.
        process.kill()
        await process.wait()


def _environment() -> dict[str, str]:
    """Without our settings: the cases must not find the servers and secrets of this system."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DATP_") or name.startswith("DATP_TEST_")
    }


def _results(answer: bytes) -> dict[str, ShownCase]:
    found: list[dict[str, Any]] = json.loads(answer)
    return {each["case"]: ShownCase(each["status"], each["mistakes"]) for each in found}


def _trouble(why: str) -> CasesNotRun:
    return CasesNotRun(f"The test cases could not be run: {why}")
