"""docs/seeds.md names what is there: every path of code, every test; and leaves no word out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "seeds.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w./-]+\.(?:py|lua|sql)(?:::\w+)?)`", PAGE)))
ROWS = [
    line
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("|---", "| key", "| script", "| rule"))
]
#: Keys, scripts, settings and states of the seeds.
WORDS = (
    *("pipelineH:", "stateH:", "processingZ", "qInL:", "qOutL:", "qAdminL:", "externalId:"),
    *("stats1H:", "stats2H:", "stats3H:", "metric1H:", "sleepingZ:", "toArchiveZ", "datp-notify"),
    *("toArchiveLock1", "toArchiveLock2", "webhooksZ", "webhookCounter:", "webhookFail:"),
    *("Enqueue", "Dequeue", "getState", "completeTransaction", "transactionsToArchive"),
    *("webhooksToProcess", "EXTERNALID_UNIQUENESS_PERIOD", "MAX_WEBHOOK_RETRIES", "segment"),
    *("TX_MEMORY_CACHE_DURATION", "TX_REDIS_CACHE_DURATION", "transferTimeout", "RECEIVED_PREPARE"),
    *("RECEIVED_FULFIL", "RESERVED_FORWARDED", "RESERVED_TIMEOUT", "EXPIRED_PREPARED"),
    *("EXPIRED_RESERVED", "COMMITTED", "ABORTED", "REJECTED", "SERIALIZABLE", "service_id"),
    *("UNKNOWN", "PENDING", "INVALID", "webhookPauseBusy", "archiveBatchSize", "webhookPauseIdle"),
    *("node-registration", "nodeGroupH:", "DELAY_BEFORE_ARCHIVING", "CHANNEL_NOTIFY", "expiry_1"),
    *("PERSISTING_PERMISSION_LOCK1_PERIOD", "PERSISTING_PERMISSION_LOCK2_PERIOD", "expiry_2"),
    *("KEYSPACE_WEBHOOK_FAIL_LIMIT", "KEYSPACE_WEBHOOK_FAIL_PERIOD", "webhookWorkers"),
    *("KEYSPACE_WEBHOOK_DISABLE_PERIOD", "markAsReplied", "cancelWebhook", "notifiedTime"),
    *("PIPELINE_START", "PIPELINE_CONTINUE", "PIPELINE_COMPLETE", "atp_transaction2", "batch_id"),
    *("atp-transaction-state", "transferStateChange", "totalCount", "expiredCount", "hoursDiff"),
)


@pytest.mark.parametrize("named", NAMED)
def test_what_the_page_names_is_there(named: str) -> None:
    path, _, test = named.partition("::")
    elsewhere = path.startswith(("tests/", "benchmarks/"))
    file = ROOT / path if elsewhere else ROOT / "datp_tasks" / path
    assert file.is_file()
    if test:
        assert re.search(rf"^(async )?def {test}\(", file.read_text(), re.MULTILINE)


def test_every_row_names_its_test_and_no_word_of_the_seeds_is_left_out() -> None:
    assert len(ROWS) > 125
    assert [row for row in ROWS if "`tests/" not in row.rsplit("|", 2)[1]] == []
    assert [word for word in WORDS if word not in PAGE] == []
