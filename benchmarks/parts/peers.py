"""Beside us: DBOS and Dramatiq, three steps that do nothing and transfers on the same books.

`make bench-peers` installs them into a virtualenv of their own. Two processes on every side (ours
has three in `throughput`, so it is slower here); sides take turns and each ratio is taken within a
round, as in the other parts.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing

from benchmarks.audited import AuditedBooks
from benchmarks.bench import Bench
from benchmarks.books import Data, open_books
from benchmarks.engine import Engine
from benchmarks.peers.orders import BROKER, DATABASE, NO_OP, TRANSFER
from benchmarks.peers.process import PeerProcess
from benchmarks.report import Figures
from benchmarks.rounds import Rounds, Side, counts_for, take_turns
from benchmarks.stack import PROCESSES, Stack
from benchmarks.transfer_system import FLAT, TransferSystem

#: Side -> what it is called in the table.
TITLES = {"ours": "DATP Tasks", "dbos": "DBOS", "dramatiq": "Dramatiq pipeline"}
COUNT_MAX = 5_000
#: The databases of the Redis server that ours and the chain's are not.
DRAMATIQ_DATABASE = 2


class Peer:
    """One other system: as many programs as it takes to have two processes at work."""

    def __init__(self, stack: Stack, module: str, programs: int) -> None:
        env = {
            DATABASE: stack.database_url,
            BROKER: stack.redis_server.url_of(DRAMATIQ_DATABASE),
        }
        log_path = stack.folder / f"{module}.log"
        self._programs = []
        for _ in range(programs):
            # One after the other: the first makes its tables.
            program = PeerProcess(module, env, log_path)
            self._programs.append(program)
            program.wait()
        self._marks = 0

    def close(self) -> None:
        for program in self._programs:
            program.close()

    def run(self, what: str, wanted: list[Data]) -> float:
        """How many a second, until all are done."""
        self._marks += 1
        count = len(self._programs)
        began_s = time.perf_counter()
        for number, program in enumerate(self._programs):
            program.order(what, f"peer{self._marks}", wanted[number::count])
        for program in self._programs:
            program.wait()
        return len(wanted) / (time.perf_counter() - began_s)


def run(bench: Bench) -> Figures:
    rounds = bench.choose(5, 1)
    with ExitStack() as exits:
        dbos = exits.enter_context(closing(Peer(bench.stack, "dbos_peer", PROCESSES)))
        dramatiq = exits.enter_context(closing(Peer(bench.stack, "dramatiq_peer", 1)))
        peers = {"dbos": dbos, "dramatiq": dramatiq}
        with bench.report.progress("peers", 2 * rounds * len(TITLES)) as step:
            step.doing("workers warm up")
            engine = exits.enter_context(closing(Engine(bench.stack)))
            engine.start_worker()
            no_op = _no_op_sides(engine, peers)
            first, count_max = bench.choose((100, COUNT_MAX), (20, 20))
            three = take_turns(no_op, counts_for(no_op, first, count_max), rounds, step)
            engine.stop_worker()
            open_books(bench.stack.engine)
            ours = exits.enter_context(closing(TransferSystem(bench.stack)))
            ours.start_worker()
            moving = _transfer_sides(bench.stack, ours, peers)
            transfer = take_turns(moving, counts_for(moving, first, count_max), rounds, step)
    return _report(bench, three, transfer, rounds)


def _no_op_sides(engine: Engine, peers: dict[str, Peer]) -> dict[str, Side]:
    def side(peer: Peer) -> Side:
        return lambda count: peer.run(NO_OP, [{"n": n} for n in range(count)])

    def ours(count: int) -> float:
        return engine.many("three", count)

    return {"ours": ours, **{name: side(peer) for name, peer in peers.items()}}


def _transfer_sides(stack: Stack, ours: TransferSystem, peers: dict[str, Peer]) -> dict[str, Side]:
    books = AuditedBooks(stack)

    def side(peer: Peer) -> Side:
        return books.audited(lambda _, wanted: peer.run(TRANSFER, wanted))

    return {
        "ours": books.audited(lambda _, wanted: ours.transfer(FLAT, wanted)),
        **{name: side(peer) for name, peer in peers.items()},
    }


def _report(bench: Bench, three: Rounds, transfer: Rounds, rounds: int) -> Figures:
    bench.report.table(
        f"Beside other systems, two processes each: median and range of {rounds} rounds",
        ("", "3 no-op steps/s", "range", "ours to this", "transfers/s", "range", "ours to this"),
        [
            (
                title,
                *three.shown(name),
                f"{three.ratio('ours', name):.1f}",
                *transfer.shown(name),
                f"{transfer.ratio('ours', name):.1f}",
            )
            for name, title in TITLES.items()
        ],
    )
    figures: Figures = {}
    for name in TITLES:
        figures[f"peers_{name}_three_per_s"] = three.middle(name)
        figures[f"peers_{name}_transfer_per_s"] = transfer.middle(name)
        if name != "ours":
            figures[f"three_step_ratio_to_{name}"] = three.ratio("ours", name)
            figures[f"transfer_ratio_to_{name}"] = transfer.ratio("ours", name)
    return figures
