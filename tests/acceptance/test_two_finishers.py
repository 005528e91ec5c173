"""Many who want to end the same transactions: SQL lets exactly one of them win each."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from datp_tasks import Pipeline
from datp_tasks.clock import ServerClock
from datp_tasks.model.status import FINAL, Status
from datp_tasks.record.record_types import Final
from datp_tasks.record.transactions import Record
from tests.support.house import House

pytestmark = pytest.mark.acceptance

FINISHERS = 8
OUTCOMES = sorted(FINAL)


@pytest.fixture
def record(house: House) -> Record:
    """The record of a house with a connection for each finisher."""
    house.use(Pipeline("p").step("acc/mark"))
    return Record(house.connections.engine, ServerClock())


def accepted(house: House, count: int) -> list[str]:
    return [house.submit_silently("p") for _ in range(count)]


def final(tx_id: str, fence: int, who: int) -> Final:
    status = OUTCOMES[who % len(OUTCOMES)]
    output = f'{{"by":{who}}}'
    return Final(tx_id=tx_id, fence=fence, status=status, output_json=output, note=f"by {who}")


def together(*actions: Callable[[], None]) -> None:
    """Run all at the same moment, each in a thread; an error in one is an error here."""
    start = threading.Barrier(len(actions))
    errors: list[BaseException] = []

    def run(action: Callable[[], None]) -> None:
        try:
            start.wait()
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a finisher hangs"
    if errors:
        raise errors[0]


def test_of_many_finishers_one_wins_each_transaction(house: House, record: Record) -> None:
    """Overlapping batches in different orders, again and again: no deadlock either."""
    tx_ids = accepted(house, 60)
    wins: list[tuple[int, set[str]]] = []

    def finisher(who: int) -> Callable[[], None]:
        rng = random.Random(who)

        def finish() -> None:
            for _ in range(10):
                batch = rng.sample(tx_ids, k=30)
                wins.append((who, record.finish_many([final(tx, 100 + who, who) for tx in batch])))

        return finish

    together(*(finisher(who) for who in range(FINISHERS)))
    record.finish_many([final(tx, 100, 0) for tx in tx_ids])
    winner: dict[str, int] = {}
    for who, won in wins:
        for tx_id in won:
            assert winner.setdefault(tx_id, who) == who, f"{tx_id} was won twice"
    for summary in record.summaries(tx_ids):
        who = winner.get(summary.tx_id, 0)
        assert (summary.status, summary.output) == (OUTCOMES[who % len(OUTCOMES)], {"by": who})
        assert summary.fence == 100 + who
        assert house.finals_logged(summary.tx_id) == [summary.status]
    # Otherwise this would have been no race.
    assert len(Counter(winner.values())) > 1


def test_a_raised_fence_shuts_out_the_one_before_even_in_the_same_moment(
    house: House, record: Record
) -> None:
    tx_ids = accepted(house, 40)
    won: set[str] = set()
    raised: dict[str, int] = {}

    def finish() -> None:
        for start in range(0, 40, 5):
            won.update(record.finish_many([final(tx, 7, 1) for tx in tx_ids[start : start + 5]]))

    def raise_fences() -> None:
        for start in range(35, -5, -5):
            raised.update(record.raise_fences([(tx, 7) for tx in tx_ids[start : start + 5]]))

    together(finish, raise_fences)
    assert won.isdisjoint(raised)
    assert set(raised.values()) <= {8}
    # The old fence stays shut out, the new one may end what is left.
    assert record.finish_many([final(tx, 7, 1) for tx in tx_ids]) == won
    left = set(tx_ids) - won
    assert record.finish_many([final(tx, 8, 2) for tx in tx_ids]) == left
    by = {each.tx_id: each.output for each in record.summaries(tx_ids)}
    assert by == {tx: {"by": 1} if tx in won else {"by": 2} for tx in tx_ids}


def test_a_higher_fence_may_end_it_and_a_lower_one_may_not(house: House, record: Record) -> None:
    first, second = accepted(house, 2)
    assert record.raise_fences([(first, 50)]) == {first: 51}
    assert record.finish_many([final(first, 50, 1), final(second, 50, 1)]) == {second}
    assert record.finish_many([final(first, 60, 2), final(second, 60, 2)]) == {first}
    # Repeating a commit whose answer was lost is answered as the first time.
    assert record.finish_many([final(first, 60, 2), final(second, 50, 1)]) == {first, second}
    assert record.raise_fences([(first, 60), (second, 60)]) == {}
    assert house.client.status(first).status is Status(OUTCOMES[2])
    assert house.finals_logged(first) == [OUTCOMES[2]]
