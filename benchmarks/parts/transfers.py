"""Real work: transfers between 500 accounts, by the same SQL on the same books for every side.

Validate, reserve and commit; the last two change the books in a transaction of their own. Sides
take turns, each ratio is taken within a round, and after each turn the books are audited.
"""

from __future__ import annotations

from contextlib import ExitStack, closing

from benchmarks.audited import AuditedBooks
from benchmarks.bare_sql import BATCH, BareSql, one_by_one, set_by_set
from benchmarks.bench import Bench
from benchmarks.books import ACCOUNTS, open_books
from benchmarks.report import Figures
from benchmarks.rounds import Rounds, counts_for, take_turns
from benchmarks.stack import PROCESSES
from benchmarks.transfer_chain import TransferChain
from benchmarks.transfer_system import FLAT, WHOLE, TransferSystem

#: Side -> what it is called in the table.
TITLES = {
    "flat": "ours, validate → reserve → commit",
    "whole": "ours, the whole pipeline with its child on another group",
    "chain": "a Celery chain of the three",
    "bare": "a bare loop, one transaction per step",
    "set": f"bare SQL, {BATCH} per statement and commit",
}
COUNT_MAX = 5_000


def run(bench: Bench) -> Figures:
    rounds = bench.choose(7, 1)
    open_books(bench.stack.engine)
    with ExitStack() as exits:
        ours = exits.enter_context(closing(TransferSystem(bench.stack)))
        chain = exits.enter_context(closing(TransferChain(bench.stack)))
        bare = exits.enter_context(closing(BareSql(bench.stack.database_url, PROCESSES)))
        books = AuditedBooks(bench.stack)
        sides = {
            "flat": books.audited(lambda _, wanted: ours.transfer(FLAT, wanted)),
            "whole": books.audited(lambda _, wanted: ours.transfer(WHOLE, wanted)),
            "chain": books.audited(chain.transfer),
            "bare": books.audited(lambda mark, wanted: bare.run(one_by_one, mark, wanted)),
            "set": books.audited(lambda mark, wanted: bare.run(set_by_set, mark, wanted)),
        }
        with bench.report.progress("transfers", rounds * len(sides)) as step:
            step.doing("workers warm up")
            ours.start_worker()
            chain.start_worker()
            first = bench.choose(200, 20)
            counts = counts_for(sides, first, bench.choose(COUNT_MAX, first))
            found = take_turns(sides, counts, rounds, step)
    return _report(bench, found, counts, rounds)


def _report(bench: Bench, found: Rounds, counts: dict[str, int], rounds: int) -> Figures:
    ratios = {name: found.ratio("flat", name) for name in TITLES}
    bench.report.table(
        f"Transfers among {ACCOUNTS} accounts: median and range of {rounds} rounds, books audited",
        ("", "transfers/s", "range", "in a round", "flat to this"),
        [
            (title, *found.shown(name), f"{counts[name]:,}", f"{ratios[name]:.2f}")
            for name, title in TITLES.items()
        ],
    )
    return {
        "transfer_flat_per_s": found.middle("flat"),
        "transfer_whole_per_s": found.middle("whole"),
        "transfer_celery_chain_per_s": found.middle("chain"),
        "transfer_bare_sql_per_s": found.middle("bare"),
        "transfer_set_based_per_s": found.middle("set"),
        "transfer_ratio_to_celery_chain": ratios["chain"],
        "transfer_ratio_to_bare_sql": ratios["bare"],
        "transfer_ratio_to_set_based": ratios["set"],
    }
