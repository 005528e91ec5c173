-- What operators do to a batch. Claim before batch, as everywhere.

-- :name lock_claim
-- No claim of this service changes until the commit.
SELECT 1 FROM service_claim WHERE service_id = %(service)s FOR NO KEY UPDATE

-- :name lock_batch
-- A batch as it is, and as it stays until the commit; no row if there is none.
SELECT state, possible, tx_id, switch FROM ledger_batch
WHERE service_id = %(service)s AND batch_id = %(batch)s FOR NO KEY UPDATE

-- :name set_state
-- Bring a batch into another state.
UPDATE ledger_batch
SET state = %(state)s, note = %(note)s, unknown_seen = 0, polls = 0,
    resubmits = CASE WHEN %(anew)s THEN 0 ELSE resubmits END,
    next_at = CASE WHEN %(rests)s THEN 'infinity' ELSE coalesce(%(now)s, clock_timestamp()) END,
    final_at = CASE WHEN %(final)s THEN coalesce(%(now)s, clock_timestamp()) END
WHERE service_id = %(service)s AND batch_id = %(batch)s

-- :name note_state
-- Note in the history of a batch what an operator made of it.
INSERT INTO batch_status (service_id, batch_id, state, source, note, seen_at)
VALUES (%(service)s, %(batch)s, %(state)s, 'operator', %(note)s,
        coalesce(%(now)s, clock_timestamp()))

-- :name note_due
-- The queuer looks at the service again at once.
UPDATE service_claim SET due_at = coalesce(%(now)s, clock_timestamp())
WHERE service_id = %(service)s
