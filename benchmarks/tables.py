"""Figures into the pages: `python -m benchmarks.tables` writes those of `latest.json` to README.md.

Run it on the machine that measured: the line above the table names it.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from string import Formatter
from typing import Any

from benchmarks.report import LATEST, Figures
from benchmarks.stack import ROOT

README = ROOT / "README.md"
BEGIN, END = "<!-- figures: make bench-table -->", "<!-- end of figures -->"
NOT_MEASURED = "–"
GIBIBYTE = 2**30

HEAD = ("", "DATP Tasks", "beside it, in the same run")
#: What, ours, theirs: the names in braces are those of `latest.json`.
ROWS = (
    (
        "3 steps that do nothing, a second",
        "{three_step_tx_per_s:,.0f}",
        "Celery chain {celery_chain_three_per_s:,.0f}: "
        "ratio {three_step_ratio_to_celery_chain:.1f}",
    ),
    (
        "10 such steps, a second",
        "{ten_step_tx_per_s:,.0f}",
        "Celery chain {celery_chain_ten_per_s:,.0f}: ratio {ten_step_ratio_to_celery_chain:.1f}",
    ),
    (
        "transfers of validate → reserve → commit, a second",
        "{transfer_flat_per_s:,.0f}",
        "Celery chain {transfer_celery_chain_per_s:,.0f}: ratio "
        "{transfer_ratio_to_celery_chain:.1f}; bare SQLAlchemy loop {transfer_bare_sql_per_s:,.0f}:"
        " ratio {transfer_ratio_to_bare_sql:.1f}; set-based SQL by hand "
        "{transfer_set_based_per_s:,.0f}",
    ),
    (
        "whole `transfer` pipeline, with its child on another node group, a second",
        "{transfer_whole_per_s:,.0f}",
        "",
    ),
    (
        "the same beside other systems (`make bench-peers`): 3 empty steps, a second",
        "{peers_ours_three_per_s:,.0f}",
        "DBOS {peers_dbos_three_per_s:,.0f}, Dramatiq {peers_dramatiq_three_per_s:,.0f}",
    ),
    (
        "transfers, a second",
        "{peers_ours_transfer_per_s:,.0f}",
        "DBOS {peers_dbos_transfer_per_s:,.0f}, Dramatiq {peers_dramatiq_transfer_per_s:,.0f}",
    ),
    (
        "one alone, 3 steps, submit to end, median",
        "{one_tx_p50_ms:.1f} ms",
        "Celery chain {celery_chain_one_p50_ms:.1f} ms: ratio {one_tx_p50_ratio_to_chain:.2f}",
    ),
    (
        "transfers over HTTP at 50 a second for a minute, accept to final",
        "p50 {steady_50_p50_ms:,.0f} ms, p99 {steady_50_p99_ms:,.0f} ms",
        "",
    ),
    (
        "the same at 200 a second",
        "p50 {steady_200_p50_ms:,.0f} ms, p99 {steady_200_p99_ms:,.0f} ms",
        "",
    ),
    (
        "100,000 in a row with all jobs of beat, a second",
        "{sustained_tx_per_s:,.0f}",
        "a short peak without beat {sustained_peak_tx_per_s:,.0f}: "
        "ratio {sustained_ratio_to_peak:.2f}",
    ),
    (
        "with 300,000 queued, a second",
        "{backlog_300k_tx_per_s:,.0f}",
        "with 1,000 queued {backlog_1k_tx_per_s:,.0f}: ratio {backlog_300k_ratio:.2f}",
    ),
    (
        "CPU of 3 empty steps, µs",
        "{us_per_tx:,.0f}",
        "worker {worker_us_per_tx:,.0f} + {worker_main_us_per_tx:,.0f}, Redis "
        "{valkey_us_per_tx:,.0f}, client {client_us_per_tx:,.0f}, PostgreSQL "
        "{postgres_us_per_tx:,.0f}",
    ),
    (
        "what they make the servers do, many at once",
        "{scripts_per_tx:.2f} script calls, {redis_calls_per_tx:.1f} Redis commands",
        "{redis_bytes_per_tx:,.0f} bytes to Redis, {commits_per_tx:.3f} commits, "
        "{messages_per_tx:.3f} messages",
    ),
)


class _Gaps(Formatter):
    """A figure that was not measured is a dash, whatever its format."""

    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key), NOT_MEASURED)

    def format_field(self, value: Any, format_spec: str) -> str:
        return value if isinstance(value, str) else format(value, format_spec)


def filled(text: str, figures: Figures) -> str:
    return _Gaps().vformat(text, (), figures)


def table(figures: Figures, when: datetime) -> str:
    cells = [HEAD, ("---",) * len(HEAD), *([filled(cell, figures) for cell in row] for row in ROWS)]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([f"Measured on {when:%Y-%m-%d}, {machine()}.", "", *lines])


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIBIBYTE
    return (
        f"{os.cpu_count()} cores ({_processor()}) and {memory:.0f} GiB for all processes and both "
        f"servers, {platform.system()} {platform.release().partition('-')[0]}, "
        f"Python {platform.python_version()}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def with_figures(page: str, text: str) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for figures, from {BEGIN} to {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main() -> None:
    figures: Figures = json.loads(LATEST.read_text(encoding="utf-8"))
    when = datetime.fromtimestamp(LATEST.stat().st_mtime, UTC)
    page = README.read_text(encoding="utf-8")
    README.write_text(with_figures(page, table(figures, when)), encoding="utf-8")


if __name__ == "__main__":
    main()
