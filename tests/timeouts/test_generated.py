"""The generator of the seed's dataset."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from datp_tasks import Pipeline
from datp_tasks.cli import timeouts as cli
from datp_tasks.errors import SettingsError
from datp_tasks.record.generated import Dataset
from datp_tasks.record.timeouts import Timeouts
from datp_tasks.testing import Kit


@pytest.fixture
def run(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> Any:
    connected = SimpleNamespace(
        settings=datp.settings,
        engine=datp.connections.engine,
        pipelines=datp.connections.pipelines,
        record=datp.connections.record,
    )
    monkeypatch.setattr(cli, "connect", lambda: connected)
    app = typer.Typer()
    cli.add_commands(app)
    return lambda *words: CliRunner().invoke(app, ["timeouts", "generate", *words])


def count(kit: Kit, where: str) -> int:
    with kit.connections.engine.connect() as connection:
        query = f"SELECT count(*) FROM tx_summary WHERE {where}"
        return int(connection.exec_driver_sql(query).scalar_one())


def test_the_handler_finds_exactly_the_overdue_ones(run: Any, datp: Kit) -> None:
    done = run("--total", "150", "--expired", "20", "--currency", "EUR", "--hours", "1", "5")
    assert done.exit_code == 0, done.output
    assert "150 transfers generated, 20 of them overdue" in done.output
    ended = count(datp, "completed_at IS NOT NULL")
    assert 50 < ended < 130
    timeouts = Timeouts(datp.connections.engine, datp.clock)
    window, due = timeouts.run_pass(rows_max=10_000, batch_max=1_000, again_s=60)
    assert window.rows == 150 + 3 * ended
    assert (window.added, len(due)) == (150 - ended, 20)
    assert timeouts.peek().is_due is False
    with datp.connections.engine.connect() as connection:
        amounts = connection.exec_driver_sql(
            "SELECT DISTINCT input ->> 'currency', (input ->> 'amount')::numeric BETWEEN 1 AND 100 "
            "FROM tx_summary"
        )
        assert [tuple(row) for row in amounts] == [("EUR", True)]


def test_a_database_with_real_transactions_is_left_alone(run: Any, datp: Kit) -> None:
    datp.use(Pipeline("p").step("util/fixed-reply", params={"output": {}}).build())
    datp.run("p", {})
    refused = run("--total", "10", "--expired", "1")
    assert isinstance(refused.exception, SettingsError)
    assert "real transactions" in str(refused.exception)
    assert count(datp, "owner = 'generated'") == 0
    assert run("--total", "10", "--expired", "1", "--force").exit_code == 0
    assert count(datp, "owner = 'generated'") == 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"total_count": 0, "expired_count": 0},
        {"total_count": 5_000_001},
        {"expired_count": 100_001},
        {"amount": (5, 1)},
        {"hours_diff": (-1, 5)},
        {"currency_list": ()},
    ],
)
def test_a_dataset_has_limits(wrong: dict[str, Any]) -> None:
    assert len(Dataset(**wrong).mistakes()) == 1
