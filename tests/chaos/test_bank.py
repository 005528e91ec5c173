"""The outside bank: once per key, and a log that forgets nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.bank import Bank, BankRefused, moved, problems
from tests.support.bank_process import running_bank


def lines_of(bank: Bank, reference: str) -> list[tuple[str, str]]:
    lines = [line for line in bank.log() if line["reference"] == reference]
    return [(line["kind"], line["key"]) for line in lines]


def test_a_transfer_that_comes_again_gets_the_same_answer_and_moves_nothing(
    datp_bank: Bank,
) -> None:
    first = datp_bank.transfer("again", "a", "b", 5, reference="r1")
    assert datp_bank.transfer("again", "a", "b", 5, reference="r1") == first
    assert lines_of(datp_bank, "r1") == [("transfer", "again"), ("repeat", "again")]
    assert moved(datp_bank.log(), "r1") == {"a": -5, "b": 5}


def test_many_at_once_with_one_key_move_it_once(datp_bank: Bank) -> None:
    receipts: list[int] = []

    def transfer() -> None:
        receipts.append(datp_bank.transfer("crowd", "a", "b", 1, reference="r2"))

    threads = [threading.Thread(target=transfer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(receipts) == 8
    assert len(set(receipts)) == 1
    assert moved(datp_bank.log(), "r2") == {"a": -1, "b": 1}


def test_a_key_cannot_be_used_for_another_transfer(datp_bank: Bank) -> None:
    datp_bank.transfer("other", "a", "b", 5, reference="r3")
    with pytest.raises(BankRefused, match="used before, for another"):
        datp_bank.transfer("other", "a", "b", 6, reference="r3")


@pytest.mark.parametrize("amount", [0, -1, True, 1.5])
def test_only_whole_amounts_move(datp_bank: Bank, amount: int) -> None:
    with pytest.raises(BankRefused, match="whole number"):
        datp_bank.transfer(f"amount-{amount}", "a", "b", amount, reference="r4")


def test_an_undo_moves_it_back_once(datp_bank: Bank) -> None:
    datp_bank.transfer("there", "a", "b", 5, reference="r5")
    assert datp_bank.undo("back", "there", reference="r5")
    assert datp_bank.undo("back", "there", reference="r5")
    assert moved(datp_bank.log(), "r5") == {}
    kinds = [kind for kind, _ in lines_of(datp_bank, "r5")]
    assert kinds == ["transfer", "undo", "repeat"]


def test_what_was_undone_before_it_came_never_comes(datp_bank: Bank) -> None:
    assert not datp_bank.undo("early", "late", reference="r6")
    with pytest.raises(BankRefused, match="undone before it came"):
        datp_bank.transfer("late", "a", "b", 5, reference="r6")
    assert datp_bank.find("late") is None


def test_the_log_outlives_the_process(tmp_path: Path) -> None:
    with running_bank(tmp_path) as bank:
        receipt = bank.transfer("kept/1", "a", "b", 5, reference="r")
    with running_bank(tmp_path) as bank:
        assert bank.transfer("kept/1", "a", "b", 5, reference="r") == receipt
        found = bank.find("kept/1")
        assert found is not None
        assert found["amount"] == 5
        assert problems(bank.log(), bank.balances()) == []


def test_whatever_is_wrong_is_told(tmp_path: Path) -> None:
    with running_bank(tmp_path) as bank:
        for _ in range(2):
            bank.transfer("blind", "a", "b", 5, reference="r", blind=True)
        bank.transfer("second", "a", "c", 5, reference="s")
        bank.transfer("third", "a", "c", 5, reference="s")
        bank.undo("u1", "second", reference="s")
        bank.undo("u2", "second", reference="s")
        found = problems(bank.log(), {**bank.balances(), "b": 11})
    assert found == [
        "the transfer blind happened 2 times",
        "second was undone 2 times",
        "r sent money from a to b 2 times",
        "s sent money from a to c 2 times",
        "the accounts add up to 1, not to 0",
        "the accounts do not say what the log says",
    ]
