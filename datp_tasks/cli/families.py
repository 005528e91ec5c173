"""The commands of `datp`, by the module that holds them, each with the first sentence of its help.

`datp --help` reads this table and imports none of the modules; a command imports its own module
when it is called. `tests/cli/test_cli_families.py` compares the table with the modules.
"""

from __future__ import annotations

from typing import Final

#: Module of `datp_tasks.cli` → command → first sentence of its help, in the order of `--help`.
FAMILIES: Final[dict[str, dict[str, str]]] = {
    "up": {
        "up": "Run everything here: servers, workers for every node group, and beat.",
        "demo": "Run a few hundred transfers of all kinds and check the books.",
        "migrate": "Create the tables in PostgreSQL, or bring them up to date.",
    },
    "env": {
        "env": 'Print the addresses of a running `datp up` for a shell: `eval "$(datp env)"`.',
    },
    "transactions": {
        "submit": "Hand in a transaction.",
        "status": "Show a transaction as its client sees it.",
        "watch": "Follow a transaction until it has ended, a line for each change.",
        "switch": "Set a switch; a transaction that waits for it wakes up.",
        "cancel": "Take a transaction back; what was done is rolled back.",
        "wake": "End a sleep early.",
    },
    "bulk_transfers": {
        "bulk-transfers": "Bulk transfers: one deadline, and one report of many.",
    },
    "operator": {
        "why": "Tell what a transaction waits for, which node has it and when it moves.",
        "list": "List transactions, the newest first.",
        "alerts": "Show what needs a person.",
        "clear-alert": "Close an alert that was dealt with.",
        "retry": "Make a transaction go on now.",
        "bulk": "Act on many transactions at once.",
    },
    "resolve": {
        "doctor": "Show what is in flight and in doubt, and check all.",
        "resolve": "Decide what became of the step of a transaction that is in doubt.",
        "replay": "Rebuild a transaction from its journal.",
        "audit": "Replay many transactions and report what does not fit.",
    },
    "transaction_logs": {
        "logs": "Show what the steps of a transaction have logged.",
    },
    "approvals": {
        "approvals": "What waits for a second person, and deciding.",
    },
    "erase": {
        "erase": "Erase what transactions were about; ids, status, times and hashes stay.",
    },
    "retention": {
        "retention": "How long what an owner or a pipeline has is kept.",
    },
    "timeouts": {
        "timeouts": "Show what expires next.",
    },
    "top": {
        "top": "Watch groups, queues, rates and long-runners.",
    },
    "nodes": {
        "nodes": "Show the live nodes.",
    },
    "step_types": {
        "steps": "Step types: what they are for and what params they take.",
    },
    "groups": {
        "groups": "Node groups: concurrency, roles and pauses of running workers.",
    },
    "pipelines": {
        "pipelines": "Pipelines and their versions.",
    },
    "mappings": {
        "mappings": "Mappings that pipelines share, and their versions.",
    },
    "endpoints": {
        "endpoints": "Webhook endpoints of owners.",
    },
    "webhooks": {
        "webhooks": "Webhooks: deliveries, dead letters, secrets.",
    },
    "api_keys": {
        "keys": "API keys, and the limits of their owners.",
    },
    "db": {
        "db": "The database: rights of its roles.",
    },
    "sealing": {
        "unmask": "Show what a sealed transaction holds; the audit table keeps who looked.",
        "keyring": "The key ring: make, change, and seal anew.",
        "secrets": "Secrets that parameters of pipelines name.",
    },
    "api": {
        "api": "Serve the HTTP API, until Ctrl-C or SIGTERM.",
    },
    "ledger": {
        "claims": "Show which instance has claimed which ledger service, and until when.",
        "ledger-sim": "Run a stand-in for Sawtooth and scabbard ledgers.",
        "batches": "Batches for ledgers: look at them, decide.",
        "services": "Ledger services: where batches go.",
    },
}
