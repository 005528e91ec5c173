"""Our side of transfers: the payments example's steps, flat and as its whole pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.books import Data
from benchmarks.engine import System
from benchmarks.stack import Stack
from datp_tasks import Pipeline, Request
from datp_tasks.pipelines.files import load_definitions
from examples.payments import PIPELINES_FOLDER, STEPS_MODULE

#: The three steps that every other side does.
FLAT = "bench-transfer"
FLAT_STEPS = ("payments/validate", "payments/reserve", "payments/commit")
#: The example's: those, a child pipeline on the nodes of group kyc, and a delay of nothing.
WHOLE = "transfer"
WHOLE_PARTS = (WHOLE, "kyc")
GROUPS = ("master", "kyc")


class TransferSystem(System):
    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, steps=STEPS_MODULE, groups=GROUPS)
        flat = Pipeline(FLAT, on_error="rollback")
        for step_type in FLAT_STEPS:
            flat.step(step_type)
        self.use(flat.build())
        for definition in load_definitions([PIPELINES_FOLDER]):
            if definition.name in WHOLE_PARTS:
                self.use(definition)

    def transfer(self, pipeline: str, wanted: Sequence[Data]) -> float:
        """Transfers a second, from one client, until all are final in SQL."""
        return self.run([Request(pipeline=pipeline, input=data) for data in wanted])
