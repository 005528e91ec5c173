"""The parts of the benchmark, one module each: `run(bench)` measures, reports, returns figures."""

#: What a run without `--only` does, in this order.
DEFAULT = (
    *("throughput", "latency", "costs", "cpu", "transfers", "sustained", "backlog", "steady"),
    *("memory", "timeouts", "ledger", "resume", "webhooks", "tenants", "http", "events", "archive"),
    "console",
)
#: Everything that `--only` can name.
PARTS = (*DEFAULT, "vectors", "cluster", "peers")
