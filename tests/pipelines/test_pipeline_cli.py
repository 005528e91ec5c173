"""`datp pipelines …` as people type it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from redis import Redis
from typer.testing import CliRunner

from datp_tasks.cli import pipelines as cli
from datp_tasks.errors import PipelineInvalid, PipelineUnknown, VersionMismatch
from datp_tasks.live.keys import Keys
from datp_tasks.live.nodes import registered_key
from datp_tasks.pipelines.files import load_definitions
from datp_tasks.pipelines.step_availability import offered_step_types
from datp_tasks.pipelines.version_store import PipelineStore
from datp_tasks.settings import Settings

Run = Callable[..., str]

TRANSFER = "pipeline: transfer\nsteps:\n- {type: bank/reserve, params: {limit: 100}}\n"


@pytest.fixture
def run(
    pipeline_store: PipelineStore,
    redis: Redis,
    keys: Keys,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Runs a command line and returns what it printed, on both channels."""
    connected = SimpleNamespace(
        steps_of_stack=None,
        settings=settings,
        pipelines=pipeline_store,
        offered_step_types=lambda: offered_step_types(redis, keys),
    )
    monkeypatch.setattr(cli, "_connect", lambda: connected)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: object) -> str:
        words = [str(each) for each in arguments]
        result = CliRunner().invoke(cli.app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "transfer.yaml"
    path.write_text(TRANSFER)
    return path


def version_of(path: Path) -> str:
    return load_definitions([path])[0].version


def change(path: Path) -> str:
    path.write_text(TRANSFER.replace("100", "200"))
    return version_of(path)


def test_apply_commit_and_use_in_one_line(run: Run, file: Path) -> None:
    version = version_of(file)
    assert run("apply", file) == f"transfer {version}: new version\n"
    said = run("apply", file, "--commit", "as agreed", "--use")
    assert said == f"transfer {version}: unchanged, committed, in use\n"
    assert run("apply", file, "--commit", "again") == f"transfer {version}: unchanged\n"


def test_apply_commit_and_use_one_by_one(run: Run, file: Path) -> None:
    version = version_of(file)
    run("apply", file)
    assert run("use", "transfer", version[:8]) == f"transfer {version}: in use (a draft)\n"
    said = run("commit", "transfer", "-m", "as agreed")
    assert said == f"transfer {version}: committed: as agreed\n"
    assert run("use", "transfer", version) == f"transfer {version}: in use\n"
    assert run("disable", "transfer") == "transfer: disabled\n"


def test_apply_warns_of_steps_that_no_live_node_offers(
    run: Run, file: Path, redis: Redis, keys: Keys
) -> None:
    redis.set(keys.node("master", "n1"), json.dumps({"stepTypes": ["util/delay"]}))
    redis.zadd(registered_key(keys), {"master/n1": int(redis.time()[0]) * 1_000})
    assert "warning: transfer: steps[0] (bank/reserve): no live node offers" in run("apply", file)


def test_list_is_a_table_or_json(run: Run, file: Path) -> None:
    version = version_of(file)
    run("apply", file, "--use")
    assert version in run("list") and "in use" in run("list")
    (found,) = json.loads(run("list", "--json"))
    assert (found["name"], found["versionInUse"], found["drafts"]) == ("transfer", version, 1)
    run("disable", "transfer")
    assert "disabled" in run("list")


def test_show_has_the_content_and_all_versions(run: Run, file: Path) -> None:
    one = version_of(file)
    run("apply", file, "--commit", "[bold]first[/bold]", "--use")
    two = change(file)
    run("apply", file)
    shown = run("show", "transfer")
    assert one in shown and two in shown and "limit: 100" in shown
    assert "[bold]first[/bold]" in shown
    assert "limit: 200" in run("show", "transfer", "--version", two[:10])
    found = json.loads(run("show", "transfer", "--json"))
    assert found["version"] == one and found["inUse"]
    assert found["definition"]["steps"][0]["params"] == {"limit": 100}
    assert [each["version"] for each in found["versions"]] == [two, one]


def test_show_says_who_may_do_what_also_by_default(run: Run, file: Path) -> None:
    run("apply", file)
    usual = "Who may: submit client, cancel client, wake granted, all switches granted\n"
    assert usual in run("show", "transfer")
    file.write_text(file.read_text() + "access: {wake: operator, switches: {kyc: operator}}\n")
    run("apply", file)
    version = version_of(file)
    assert (
        "Who may: submit client, cancel client, wake operator, switch kyc operator, other switches "
        "granted\n"
    ) in run("show", "transfer", "--version", version)
    found = json.loads(run("show", "transfer", "--version", version, "--json"))
    assert found["access"]["switches"] == {"kyc": "operator", "*": "granted"}


def test_what_show_prints_can_be_applied(run: Run, file: Path, tmp_path: Path) -> None:
    run("apply", file)
    shown = run("show", "transfer")
    copy = tmp_path / "copy.yaml"
    copy.write_text(shown[shown.index("pipeline:") :])
    assert version_of(copy) == version_of(file)


def test_export_and_import(run: Run, file: Path, tmp_path: Path) -> None:
    version = version_of(file)
    run("apply", file)
    target = tmp_path / "transfer.json"
    assert "written to" in run("export", "transfer", "-o", target)
    assert json.loads(run("export", "transfer")) == json.loads(target.read_text())
    assert run("import", target) == f"transfer {version}: unchanged\n"
    target.write_text(target.read_text().replace("100", "999"))
    with pytest.raises(VersionMismatch):
        run("import", target)
    with pytest.raises(PipelineInvalid, match="cannot be written"):
        run("export", "transfer", "-o", tmp_path)


def test_diff_shows_what_changed(run: Run, file: Path) -> None:
    one = version_of(file)
    run("apply", file)
    two = change(file)
    run("apply", file)
    shown = run("diff", "transfer", one[:8], two[:8])
    assert "-    limit: 100" in shown and "+    limit: 200" in shown
    assert run("diff", "transfer", one, one) == "no difference\n"


def test_mistakes_reach_the_top(run: Run, tmp_path: Path) -> None:
    with pytest.raises(PipelineUnknown):
        run("show", "nope")
    with pytest.raises(PipelineInvalid, match=r"x\.yaml: cannot be read"):
        run("apply", tmp_path / "x.yaml")


def test_a_file_with_a_mistake_leaves_all_as_it_was(run: Run, file: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("pipeline: wrong\n")
    with pytest.raises(PipelineInvalid):
        run("apply", tmp_path)
    assert json.loads(run("list", "--json")) == []
