"""The Python on the pages runs: blocks of a page in order, and the tests in them as tests."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Pipeline
from datp_tasks.engine.registry import registry
from datp_tasks.record.record_types import Summary
from datp_tasks.testing import Kit, crash_sweep
from datp_tasks.testing.servers import Servers
from datp_tasks.testing.sweep import MOVERS
from tests.docs.docs_blocks import Block, pages, run_by

Names = dict[str, Any]
SWEPT = ("hop.after_claim", "script:finish:before", "script:finish:after")
PAGES = [page for page in pages() if run_by("python", page)]


def for_testing(kit: Kit) -> Names:
    """Somebody's steps, pipelines and books."""
    for name in ("bank/reserve", "bank/settle"):
        registry.step(name)(lambda ctx, data: data)
    definition = Pipeline("transfer").step("util/fixed-reply", params={"output": {"ok": 1}})

    def books(summary: Summary) -> list[str]:
        return [] if summary.output == {"ok": 1} else [f"the output is {summary.output}"]

    return {"my_pipelines": [definition.build()], "my_books_are_right": books}


def for_timeouts(kit: Kit) -> Names:
    kit.use(Pipeline("transfer").step("util/fixed-reply", params={"output": {}}).build())
    now = kit.clock.now()
    assert now is not None
    return {
        "client": kit.client,
        "data": {"amount": 5},
        "Pipeline": Pipeline,
        "tomorrow": now + timedelta(days=1),
    }


def for_submit_in(kit: Kit) -> Names:
    kit.use(Pipeline("payment").step("util/fixed-reply", params={"output": {}}).build())
    engine = kit.connections.engine
    with engine.begin() as sql:
        sql.execute(text("CREATE TABLE IF NOT EXISTS orders (id text, amount integer)"))
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with_psycopg = engine.url.set(drivername="postgresql+psycopg")
    return {
        "client": kit.client,
        "engine": engine,
        "database_url": url,
        "async_database_url": with_psycopg.render_as_string(hide_password=False),
    }


#: What a reader of these pages has already; the others begin with nothing.
BEFORE: dict[str, Callable[[Kit], Names]] = {
    "docs/testing.md": for_testing,
    "docs/timeouts.md": for_timeouts,
    "docs/submit-in.md": for_submit_in,
}


@pytest.fixture
def short_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep on a page tries a few points only; the ring `chaos` tries all of them."""
    few = partial(crash_sweep, kinds=["crash"], jobs=MOVERS, where=SWEPT.__contains__)
    monkeypatch.setattr("datp_tasks.testing.crash_sweep", few)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("own_step_types", "short_sweeps")
def test_the_python_of_a_page_runs(
    page: str, datp: Kit, datp_servers: Servers, request: pytest.FixtureRequest
) -> None:
    names: Names = {"__name__": Path(page).stem}
    if page in BEFORE:
        names |= BEFORE[page](datp)
    ran = 0
    for block in run_by("python", page):
        before = set(names)
        execute(block, names)
        tests = [name for name in names if name.startswith("test_") and name not in before]
        for name in tests:
            run_test(names[name], datp_servers, request)
        ran += len(tests)
    whole = "\n".join(block.text for block in run_by("python", page))
    assert ran == whole.count("def test_"), "two tests on the page have the same name"


def execute(block: Block, names: Names) -> None:
    # Blank lines first, so that an error names the line of the page.
    code = compile("\n" * block.line + block.text, block.page, "exec", dont_inherit=True)
    exec(code, names)


def run_test(function: Callable[..., None], servers: Servers, request: Any) -> None:
    """As pytest would, each with a kit of its own that knows the step types declared so far."""
    wanted = list(inspect.signature(function).parameters)
    kit = Kit(servers)
    try:
        others = {name: request.getfixturevalue(name) for name in wanted if name != "datp"}
        function(**({"datp": kit} if "datp" in wanted else {}), **others)
    finally:
        kit.close()
