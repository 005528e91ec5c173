"""What stands around the transactions of a console: batches, webhooks, nodes, drafts, alerts."""

from __future__ import annotations

import json
from typing import Any

from datp_tasks import Pipeline
from datp_tasks.ledger.batch_list import derived_id, unsigned_batch_list
from datp_tasks.ledger.batch_types import Service
from datp_tasks.live.nodes import NodeRegister
from datp_tasks.model.actor import LOCAL
from datp_tasks.model.mapping import MappingDefinition
from datp_tasks.pipelines.mapping_store import MappingStore
from datp_tasks.record.alerts import Alerts
from datp_tasks.testing import Kit

#: The examples that the pipeline `transfer` carries.
CASES = [
    {
        "name": "a small one",
        "input": {"from": "ann", "to": "bob", "amount": 2_500, "currency": "EUR"},
        "expect": {"status": "success"},
    },
    {
        "name": "too much",
        "input": {"from": "ann", "to": "bob", "amount": 9_999_999, "currency": "EUR"},
        "expect": {"status": "failed", "note": "not enough money"},
    },
]
HOOK = "https://shop.example.com/hooks/payments"


class Surroundings:
    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._alerts = Alerts(kit.connections.engine, kit.connections.clock)

    def fill(self, data: dict[str, Any]) -> dict[str, str]:
        """One of each; the names of those that pages are about."""
        kit = self._kit
        self.draft()
        self.node("worker-1@node", ["bank/reserve", "bank/check", "mail/send"])
        kit.connections.groups.set("kyc", {"concurrency": 0}, actor=LOCAL, reason="maintenance")
        kit.submit("transfer", {**data, "kyc": True}, owner="shop", expires_in_s=3_600)
        found = {
            "batch": self.parked_batch("saw", "7"),
            "webhook": self.webhook(data),
            "endpoint": self.endpoint(),
            "version": kit.connections.pipelines.show("transfer").info.version,
            **self.mapping("bank-codes"),
        }
        self.parked_batch("saw", "8", is_parked=False)
        self._alerts.raise_alert(
            "ledger-batch-parked", f"saw/{found['batch']}", "a person must decide about it"
        )
        for job in ("timeout_handler", "audit_sealer"):
            kit.run_job(job)
        return found

    def draft(self, description: str = "Moves money, and tells both") -> None:
        made = (
            Pipeline("transfer", description=description, tests=CASES)
            .step("bank/reserve", name="reserve the money")
            .step("bank/check")
            .step("bank/check", name="check again")
            .step("bank/notify", name="tell both")
        )
        self._kit.connections.pipelines.apply(made.build())

    def node(self, name: str, step_types: list[str], group: str = "master") -> None:
        live = self._kit.connections.live
        now_ms = live.server_now_ms()
        load = {"busy": 1, "slots": 4, "busyShare": 0.25, "transactionsPerS": 12.5}
        record = {"node": name, "host": "node", "version": "1.0", "joinedMs": now_ms - 60_000}
        NodeRegister(live, stale_ms=60_000, grace_ms=1_000).write(
            name, [group], {**record, "stepTypes": step_types, "load": load}
        )

    def parked_batch(self, service: str, name: str, *, is_parked: bool = True) -> str:
        ledger = self._kit.connections.ledger
        ledger.batches.add_service(
            Service(service_id=service, kind="sawtooth", url="http://ledger:8008")
        )
        batch_id = derived_id(name)
        ledger.intake.submit_many([(service, unsigned_batch_list(batch_id, b"{}"), None)])
        if is_parked:
            ledger.operator.park(service, batch_id, actor=LOCAL, reason="looks odd")
        return batch_id

    def webhook(self, data: dict[str, Any]) -> str:
        """A delivery that was given up."""
        kit = self._kit
        tx_id = kit.submit("transfer", data, owner="shop", webhook=HOOK)
        [delivery] = kit.connections.webhooks.store.deliveries(tx_id=tx_id)
        with kit.connections.engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE webhook_delivery SET state = 'dead', attempts = 12, last_status = 503, "
                "last_error = 'the receiver answered 503', finished_at = now() WHERE id = %s",
                (delivery.id,),
            )
        return delivery.id

    def endpoint(self, description: str = "Bookkeeping") -> str:
        endpoints = self._kit.connections.webhooks.endpoints
        made, _ = endpoints.add("shop", f"{HOOK}/events", description=description)
        return made.id

    def mapping(self, name: str, description: str = "") -> dict[str, str]:
        """A shared mapping with a version in use and a draft; their versions."""
        store = MappingStore(self._kit.connections.engine, self._kit.connections.pipelines)
        made = {
            key: store.apply(
                MappingDefinition(
                    name=name, description=description, fields={"iban": source, "kind": source}
                )
            )[0]
            for key, source in (("map-a", "account"), ("map-b", "account.iban"))
        }
        store.commit(name, made["map-a"], description or "the first one")
        store.use(name, made["map-a"])
        return made

    def hostile(self, bad: str) -> list[str]:
        """Whatever these pages show tries to be markup; their paths."""
        kit = self._kit
        self.draft(bad)
        case = {"name": bad, "input": {bad: bad}, "expect": {"note": bad}}
        made = Pipeline("markup", description=bad, tests=[case]).step("bank/check", name=bad[:40])
        version = kit.connections.pipelines.apply(made.build()).version
        kit.connections.pipelines.commit("markup", version, bad)
        kit.connections.pipelines.use("markup", version, reason=bad)
        self.node(bad, [bad], group="odd")
        kit.connections.groups.set("odd", {"concurrency": 1}, actor=LOCAL, reason=bad)
        batch_id = self.parked_batch("odd", "9")
        webhook, endpoint = self.webhook({"amount": 1}), self.endpoint(bad)
        self.mapping("odd-mapping", bad)
        values = {"bad": bad, "batch": batch_id, "webhook": webhook, "json": json.dumps({bad: bad})}
        values["endpoint"] = endpoint
        with kit.connections.engine.begin() as connection:
            for sql in (
                "UPDATE ledger_batch SET note = %(bad)s, owner = %(bad)s "
                "WHERE batch_id = %(batch)s",
                "UPDATE ledger_service SET url = %(bad)s WHERE service_id = 'odd'",
                "UPDATE batch_status SET note = %(bad)s WHERE batch_id = %(batch)s",
                "UPDATE webhook_delivery SET url = %(bad)s, last_error = %(bad)s, owner = %(bad)s "
                "WHERE id = %(webhook)s",
                "UPDATE operator_action SET details = %(json)s::jsonb, actor = %(bad)s, "
                "reason = %(bad)s, subject = %(bad)s, "
                "address = %(bad)s WHERE id = (SELECT max(id) FROM operator_action)",
                "UPDATE webhook_endpoint SET url = %(bad)s, disabled_reason = %(bad)s, "
                "enabled = false WHERE id = %(endpoint)s",
                "INSERT INTO ledger_service (service_id, kind, url, created_at) "
                "VALUES (%(bad)s, 'sawtooth', %(bad)s, now())",
            ):
                connection.exec_driver_sql(sql, values)
        return [
            *("/alerts", "/pipelines", "/pipelines/markup", "/drafts?pipeline=markup", "/groups"),
            *("/mappings", "/mappings/odd-mapping", "/mappings/odd-mapping/diff"),
            *("/groups/odd", "/webhooks", f"/webhooks/{webhook}", f"/ledgers/odd/{batch_id}"),
            *("/ledgers?ended=yes", f"/ledgers/odd/{batch_id}/act/resolve", "/audit"),
            *(
                "/try?pipeline=markup",
                f"/endpoints/{endpoint}",
                f"/endpoints/{endpoint}/act/delete",
            ),
        ]
