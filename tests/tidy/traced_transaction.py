"""Prints as JSON: the files of which a function is called while a transaction runs."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import datp_tasks
from datp_tasks import Pipeline
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

PACKAGE = f"{Path(datp_tasks.__file__).parent}/"


def files_entered(datp: Kit) -> set[str]:
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        datp.submit("two", {"amount": 1})
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    own = {path.removeprefix(PACKAGE) for path in entered if path.startswith(PACKAGE)}
    return {path for path in own if not path.startswith("testing/")}


def main() -> None:
    datp = Kit(Servers(*json.loads(os.environ["TRACED_PLACES"])))

    @datp.step("t/add")
    def add(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "added": True}

    datp.use(Pipeline("two").step("t/add").step("t/add").build())
    # The first one fills caches; workers are warm afterwards.
    assert datp.status(datp.submit("two", {"amount": 1})).status == "success"
    print(json.dumps(sorted(files_entered(datp))))  # noqa: T201
    datp.close()


if __name__ == "__main__":
    main()
