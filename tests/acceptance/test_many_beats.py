"""Several beats by mistake: jobs run as often as with one."""

from __future__ import annotations

import re

import pytest

from datp_tasks import Pipeline
from datp_tasks.local.private_files import text_since
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import House, log_of

pytestmark = pytest.mark.acceptance

BEATS = 3
#: A job that was brought by a message, and what it answered: None if it had just been done.
RUN = re.compile(r"Task datp\.\S*sleeper\S* succeeded in \S+: (.*)")


def test_three_beats_are_as_good_as_one(house: House) -> None:
    house.use(Pipeline("nap").step("util/delay", params={"seconds": 1}).step("acc/mark"))
    worker = house.worker(concurrency=2, sleeper_period_s=1.0)
    beats = [house.beat(name=f"beat{number}") for number in range(BEATS)]
    house.wait_ready(worker)
    for beat in beats:
        eventually(lambda beat=beat: "Sending due task" in text_since(beat.log_path), what="beat")  # type: ignore[misc]
    tx_ids = [house.submit("nap") for _ in range(20)]
    for tx_id in tx_ids:
        assert house.client.wait(tx_id, timeout_s=20).status is Status.SUCCESS
    # Each slept once, was woken once and ran once.
    assert sorted(each["tx"] for each in house.notes("mark")) == sorted(tx_ids)
    assert {house.fields(tx_id)["sequence"] for tx_id in tx_ids} == {"2"}
    # And with three times the messages, jobs do not run three times as often.
    eventually(lambda: len(RUN.findall(log_of(worker))) >= 12, what="messages of all beats")
    answers = RUN.findall(log_of(worker))
    assert answers.count("None") >= len(answers) / 4
