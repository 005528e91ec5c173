"""Only a few failures are tried again, and they are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.few_failed import main


@pytest.mark.parametrize(("failed", "code"), [([], 1), (["a"], 0), (["a", "b"], 0), (["a"] * 3, 1)])
def test_only_a_few_failures_are_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], failed: list[str], code: int
) -> None:
    path = tmp_path / "lastfailed"
    path.write_text(json.dumps({f"{name}{n}": True for n, name in enumerate(failed)}))
    assert main(["--max", "2"], path) == code
    assert capsys.readouterr().out.count("failed before: ") == len(failed)


def test_a_run_that_never_came_to_its_tests_is_not_tried_again(tmp_path: Path) -> None:
    assert main(["--max", "2"], tmp_path / "none") == 1
