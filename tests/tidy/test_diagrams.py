"""The pictures of the documentation show what the scripts do now."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import diagrams


@pytest.mark.parametrize(("path", "draw"), diagrams.PICTURES.items())
def test_a_picture_is_current(path: str, draw: Callable[[], str]) -> None:
    assert (diagrams.ROOT / path).read_text() == draw(), "run `make diagrams`"


def test_every_script_that_moves_a_transaction_is_in_the_picture() -> None:
    picture = diagrams.states_svg()
    moving = {script for scripts in diagrams.moves().values() for script in scripts}
    assert len(moving) > 10
    shown = set(re.findall(r"\w+", " ".join(re.findall(r"<text[^>]*>([^<]*)<", picture))))
    assert moving <= shown


def test_a_state_without_a_place_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vanish.lua").write_text("--[[\nX.\n\nMoves:\n  queued -> nowhere\nKEYS:\n]]\n")
    monkeypatch.setattr(diagrams, "LUA", tmp_path)
    with pytest.raises(ValueError, match="vanish: no place for 'nowhere'"):
        diagrams.states_svg()


def test_scripts_that_the_flow_names_exist() -> None:
    named = re.findall(r"(\w+\.lua)", " ".join(what for _, _, what in diagrams.FLOW))
    assert named
    assert [name for name in named if not (diagrams.LUA / name).is_file()] == []
