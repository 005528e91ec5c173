"""Every table is emptied of what is old, or says why it is kept; likewise for what is erased."""

from __future__ import annotations

import re

from datp_tasks.record.queries import load
from datp_tasks.record.tables import metadata

#: Tables that retention leaves alone, each with its reason.
KEPT = {
    "pipeline": "definitions, not transactions; a row for each pipeline",
    "pipeline_version": "transactions name the version that they ran",
    "mapping": "definitions, not transactions; a row for each mapping",
    "mapping_version": "pipelines name the version that they hold",
    "api_key": "the audit names keys by their id, also those that are revoked",
    "owner_limit": "a row for each owner",
    "node_group": "a row for each group",
    "webhook_secret": "a row for each rotation of an owner",
    "webhook_endpoint": "a row for each endpoint, until its owner deletes it",
    "webhook_target": "a row for each target that is disabled now",
    "feed_key": "one row",
    "live_mark": "a row for each shard",
    "live_server": "a row for each Redis",
    "archive_role": "one row",
    "job_mark": "a row for each job that goes through rows by time",
    "segment": "a row for each reader of a log",
    "ledger_service": "a row for each service; its counter gives numbers that must not come again",
    "ledger_instance": "the claim queuer drops instances whose lease is over",
    "service_claim": "a row for each service; its epoch must not fall back",
    "operator_action": "the audit: what operators did is never dropped",
    "audit_seal": "the chain of the audit",
    "approval": "with its decisions and items a part of the audit",
    "approval_decision": "see approval",
    "approval_item": "see approval",
    "webhook_breaker": "a row for each receiver that fails now",
    "data_key": "a row for each owner and month; copies in backups need it until it is erased",
    "retention_rule": "a row for each owner or pipeline that has one",
    "sealed_secret": "a row for each secret that pipelines name",
    "operator_run": "a part of the audit: a row for each audit and erasure that a person started",
    "saved_view": "filters that a person has given a name; at most fifty of each",
}
#: Of those, tables from which a transaction or an owner that is erased disappears all the same.
ERASED = {"alert", "operator_action", "approval", "approval_decision", "approval_item", "data_key"}

#: Tables without a payload of a transaction, each with its reason; those of KEPT beside them.
NOT_ERASED = {
    "step_begun": "ids, fence and time",
    "tx_timeout": "ids and times",
}


def emptied() -> set[str]:
    texts = [
        *load("retention").values(),
        load("signals")["forget_ended"],
        load("idempotency")["drop_old"],
    ]
    return {table for text in texts for table in re.findall(r"DELETE FROM (\w+)", text)}


def test_every_table_is_emptied_of_what_is_old_or_says_why_not() -> None:
    assert emptied() | KEPT.keys() == set(metadata.tables)
    assert not emptied() & KEPT.keys()


def test_every_table_is_erased_or_has_nothing_to_erase() -> None:
    texts = load("erasure").values()
    erased = {
        table for text in texts for table in re.findall(r"(?:UPDATE|DELETE FROM) (\w+) r?j?", text)
    }
    untouched = (KEPT.keys() - ERASED) | NOT_ERASED.keys()
    assert erased | untouched == set(metadata.tables)
    assert not erased & untouched
