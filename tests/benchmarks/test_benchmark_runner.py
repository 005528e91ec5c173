"""The parts of the benchmark do not depend on each other; figures get into the pages."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.__main__ import run_all
from benchmarks.http_load import post_paced
from benchmarks.process_times import below_s, own_s, snapshot
from benchmarks.report import Figures, Report
from benchmarks.rounds import Rounds
from benchmarks.tables import BEGIN, END, filled, with_figures

BURN_S = 0.3
REQUESTS, PER_S = 20, 200


@pytest.fixture
def report() -> Report:
    return Report(Console(file=io.StringIO(), width=200))


def shown(report: Report) -> str:
    assert isinstance(report.console.file, io.StringIO)
    return report.console.file.getvalue()


def test_a_part_that_fails_is_named_and_the_others_are_measured(
    report: Report, tmp_path: Path
) -> None:
    def run(name: str) -> Figures:
        if name == "bad":
            raise TimeoutError("600 webhooks [are not] delivered")
        return {name: 1.5}

    output = tmp_path / "figures.json"
    assert run_all(["first", "bad", "last"], run, report, output) == ["bad"]
    assert json.loads(output.read_text()) == {"first": 1.5, "last": 1.5}
    text = shown(report)
    assert "600 webhooks [are not] delivered" in text
    # At the end, with the place, when the line above has scrolled away.
    assert text.rindex("Traceback") > text.rindex("s in all")


def test_a_part_that_is_interrupted_ends_the_run(report: Report, tmp_path: Path) -> None:
    def run(name: str) -> Figures:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(["first"], run, report, tmp_path / "figures.json")


def test_ratios_are_taken_within_a_round() -> None:
    rounds = Rounds({"ours": [10, 100, 40], "theirs": [5, 50, 10]})
    assert rounds.ratios("ours", "theirs") == [2, 2, 4]
    # The ratio of the medians would be 4.
    assert rounds.ratio("ours", "theirs") == 2


def test_the_time_of_a_child_that_has_ended_is_counted() -> None:
    me = snapshot_of_children()
    code = f"import time\nwhile time.process_time() < {BURN_S}: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert snapshot_of_children() - me >= BURN_S * 0.9


def test_the_time_of_a_living_child_is_counted() -> None:
    code = (
        f"import sys, time\nwhile time.process_time() < {BURN_S}: pass\n"
        "print('burnt', flush=True)\nsys.stdin.read()"
    )
    before = snapshot_of_children()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == b"burnt\n"
        assert snapshot_of_children() - before >= BURN_S * 0.9
        assert own_s(snapshot(), child.pid) >= BURN_S * 0.9


def snapshot_of_children() -> float:
    return below_s(snapshot(), os.getpid())


def test_paced_requests_do_not_wait_for_answers() -> None:
    """None is answered before all have arrived."""
    found = asyncio.run(asyncio.wait_for(_paced_to_a_slow_server(), timeout=30))
    assert len(set(found["tx_ids"])) == REQUESTS
    assert len(found["accepted_s"]) == REQUESTS
    # The first left first, and has waited for the last.
    assert max(found["accepted_s"]) > (REQUESTS - 1) / PER_S


async def _paced_to_a_slow_server() -> dict[str, Any]:
    arrived = 0
    all_are_here = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0]))
        arrived += 1
        body = json.dumps({"txId": f"t{arrived}"}).encode()
        if arrived == REQUESTS:
            all_are_here.set()
        await all_are_here.wait()
        writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        order = {"port": server.sockets[0].getsockname()[1], "key": "k", "path": "/"}
        pace = {"bodies": ["{}"] * REQUESTS, "per_s": PER_S, "poll_every": 2 * REQUESTS}
        return await post_paced({**order, **pace, "poll_s": 1})


def test_figures_replace_those_of_the_last_run() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = with_figures(page, "new")
    assert once == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert with_figures(once, "new") == once
    with pytest.raises(ValueError, match="figures"):
        with_figures("a page without a place for them", "new")


def test_a_figure_that_was_not_measured_leaves_a_gap() -> None:
    assert filled("{one:,.0f}/s, {two:.1f}", {"one": 1234.5}) == "1,234/s, –"
