-- :name all_groups
-- The groups that operators decided something about.
SELECT name, concurrency, archive_batch_size, webhook_workers, wakeup_batch_size, ledger,
       webhook_pause_ms, webhook_pause_busy_ms, webhook_pause_idle_ms, long_running_s, queue_age_s
FROM node_group ORDER BY name

-- :name set_group
-- Set all values of a group; NULL means the default.
INSERT INTO node_group (name, concurrency, archive_batch_size, webhook_workers, wakeup_batch_size,
                        ledger, webhook_pause_ms, webhook_pause_busy_ms, webhook_pause_idle_ms,
                        long_running_s, queue_age_s, updated_at)
VALUES (%(name)s, %(concurrency)s, %(archive_batch_size)s, %(webhook_workers)s,
        %(wakeup_batch_size)s, %(ledger)s, %(webhook_pause_ms)s, %(webhook_pause_busy_ms)s,
        %(webhook_pause_idle_ms)s, %(long_running_s)s, %(queue_age_s)s, coalesce(%(now)s, now()))
ON CONFLICT (name) DO UPDATE
SET concurrency = excluded.concurrency, archive_batch_size = excluded.archive_batch_size,
    webhook_workers = excluded.webhook_workers, wakeup_batch_size = excluded.wakeup_batch_size,
    ledger = excluded.ledger, webhook_pause_ms = excluded.webhook_pause_ms,
    webhook_pause_busy_ms = excluded.webhook_pause_busy_ms,
    webhook_pause_idle_ms = excluded.webhook_pause_idle_ms,
    long_running_s = excluded.long_running_s, queue_age_s = excluded.queue_age_s,
    updated_at = excluded.updated_at

-- :name lock_groups
-- One change of groups at a time, until the commit.
SELECT pg_advisory_xact_lock(hashtext('datp node groups'))
