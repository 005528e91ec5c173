"""Everything is broken under load, for a minute: whatever was accepted ends, once, by itself.

`DATP_CHAOS_SECONDS` of trouble and `DATP_CHAOS_SEED` lengthen or repeat it; see `make chaos`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.record.database import migrate
from tests.chaos.chaos import QUICK, Chaos
from tests.chaos.transfer_steps import BANK_URL
from tests.chaos.troubles import KINDS, plan
from tests.support.bank_process import running_bank
from tests.support.house import House

TROUBLE_S = float(os.environ.get("DATP_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("DATP_CHAOS_SEED", random.randrange(1_000_000)))

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600 + 3 * TROUBLE_S)]


@pytest.fixture
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chaos]:
    folder: Path = tmp_path_factory.mktemp("chaos")
    folder.chmod(0o711)
    # A commit that was answered survives a kill of the server, if not a loss of power.
    postgres = PostgresServer(folder / "postgres", durable=False)
    redis = RedisServer(folder / "redis", appendfsync="everysec")
    with running_bank(folder / "bank") as bank, pytest.MonkeyPatch.context() as patch:
        patch.setenv(BANK_URL, bank.url)
        try:
            postgres.start()
            redis.start()
            migrate(postgres.url)
            house = House(redis.url, postgres.url, folder, **QUICK)
            try:
                yield Chaos(house, redis, postgres, bank, seed=SEED, console=Console(width=110))
            finally:
                house.close()
        finally:
            redis.destroy()
            postgres.destroy()


def test_whatever_is_broken_everything_accepted_ends_once_and_no_money_is_lost(
    chaos: Chaos,
) -> None:
    found = chaos.run(TROUBLE_S)
    repeat = f"make chaos SECONDS={TROUBLE_S:g} SEED={SEED}"
    assert not found, f"{repeat} repeats the plan; logs are in {chaos.house.folder}\n" + "\n".join(
        found
    )
    assert len(chaos.healed_s) >= len(KINDS)
    # A run in which nothing was hit proves nothing.
    assert chaos.load.retries > 0


def test_a_seed_gives_the_same_plan_each_time_and_every_kind_is_in_it() -> None:
    first, second = (list(islice(plan(7), 40)) for _ in range(2))
    assert first == second
    assert first != list(islice(plan(8), 40))
    assert sorted(kind for each in first[: len(KINDS)] for kind in each.kinds) == sorted(KINDS)
