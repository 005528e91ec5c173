"""A test kit for pipelines: real servers, eager tasks, a clock that can be advanced.

The pytest plugin brings the fixture `datp`, a `Kit`:

    def test_transfer(datp):
        datp.use(Pipeline("hello").step("util/fixed-reply", params={"output": {"hi": 1}}).build())
        assert datp.run("hello", {}).output == {"hi": 1}

`crash_sweep` breaks a pipeline at every point it passes; docs/testing.md tells how to use it.
"""

from datp_tasks.testing.kit import Kit
from datp_tasks.testing.sweep import crash_sweep

__all__ = ["Kit", "crash_sweep"]
