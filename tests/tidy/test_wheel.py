"""The wheel carries what the package reads at run time and is no Python."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]


def test_queries_and_scripts_are_in_the_wheel(tmp_path: Path) -> None:
    [built] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    carried = set(ZipFile(built).namelist())
    read = [*ROOT.glob("datp_tasks/record/sql/*.sql"), *ROOT.glob("datp_tasks/live/lua/*.lua")]
    wanted = {str(path.relative_to(ROOT)) for path in read}
    assert len(wanted) > 40
    assert wanted - carried == set()
