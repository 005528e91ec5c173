-- :name add
-- Keep a signal for a transaction that has not ended; the one of that name before it, if any.
WITH added AS (
    INSERT INTO tx_signal (tx_id, name, value, created_at)
    SELECT tx_id, %(name)s, %(value)s, coalesce(%(now)s, now()) FROM tx_summary
    WHERE tx_id = %(tx_id)s AND coalesce(completed_at, 'infinity') = 'infinity'
    ON CONFLICT (tx_id, name) DO UPDATE
    SET value = excluded.value, created_at = excluded.created_at, replaced_seq = NULL
)
SELECT tx_id, name, value, replaced_seq FROM tx_signal WHERE tx_id = %(tx_id)s AND name = %(name)s

-- :name add_many
-- A cancel of many, all by one commit; in one order, so that two of these do not wait for each
-- other. None is kept for what would refuse it: it could be said again when that is over.
WITH added AS (
    INSERT INTO tx_signal (tx_id, name, value, created_at)
    SELECT tx_id, %(name)s, %(value)s, coalesce(%(now)s, now()) FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
      AND no_return_at IS NULL AND forwarded_at IS NULL AND status <> 'in-doubt'
    ORDER BY tx_id
    ON CONFLICT (tx_id, name) DO UPDATE
    SET value = excluded.value, created_at = excluded.created_at, replaced_seq = NULL
)
SELECT tx_id, name, value, replaced_seq FROM tx_signal
WHERE tx_id = ANY(%(tx_id)s) AND name = %(name)s

-- :name unmoved
-- Hold the row of a transaction, if it has the number of events and the fence that a caller saw.
SELECT tx_id FROM tx_summary
WHERE tx_id = %(tx_id)s AND fence = %(fence)s
  AND event_count + (completed_at IS NOT NULL)::integer = %(sequence)s
FOR NO KEY UPDATE

-- :name put_back
-- Withdraw a signal in favour of the one before it. Only if it still
-- holds: another client may have set something else since.
UPDATE tx_signal SET value = %(before)s, replaced_seq = %(replaced_seq)s
WHERE tx_id = %(tx_id)s AND name = %(name)s AND value = %(value)s

-- :name replace
-- A step has put another value in the place of a switch, under this number.
UPDATE tx_signal SET replaced_seq = %(replaced_seq)s
WHERE tx_id = %(tx_id)s AND name = %(name)s AND value = %(value)s

-- :name withdraw
-- Withdraw a signal that had none before it.
DELETE FROM tx_signal WHERE tx_id = %(tx_id)s AND name = %(name)s AND value = %(value)s

-- :name of_transactions
-- The signals of transactions, in the order in which they came.
SELECT tx_id, name, value, replaced_seq FROM tx_signal
WHERE tx_id = ANY(%(tx_id)s) ORDER BY created_at

-- :name asked_to_stop
-- Those that are asked to stop: a cancel is kept, and their row has it. One without the other was
-- lost on its way, and may be asked again.
SELECT g.tx_id FROM tx_signal g JOIN tx_summary t ON t.tx_id = g.tx_id
WHERE g.tx_id = ANY(%(tx_id)s) AND g.name = %(name)s AND t.stop_request IS NOT NULL

-- :name recent
-- A page of the signals of the last while to transactions that go on, which the reconciler repeats
-- after a loss of Redis.
SELECT g.tx_id, g.name, g.value, g.replaced_seq, g.created_at
FROM tx_signal g JOIN tx_summary t ON t.tx_id = g.tx_id
WHERE g.created_at >= %(since)s
  AND (g.created_at, g.tx_id, g.name)
      > (coalesce(%(after_at)s, %(since)s), %(after_id)s, %(after_name)s)
  AND coalesce(t.completed_at, 'infinity') = 'infinity'
ORDER BY g.created_at, g.tx_id, g.name LIMIT %(limit)s

-- :name cancels
-- A page of the cancels of a while whose transactions go on and can be stopped, the oldest first.
SELECT g.tx_id, g.name, g.value, g.created_at
FROM tx_signal g JOIN tx_summary t ON t.tx_id = g.tx_id
WHERE g.created_at >= %(since)s AND g.created_at <= %(until)s
  AND (g.created_at, g.tx_id) > (coalesce(%(after_at)s, %(since)s), %(after_id)s)
  AND g.name = %(name)s AND coalesce(t.completed_at, 'infinity') = 'infinity'
  AND t.no_return_at IS NULL AND t.forwarded_at IS NULL
ORDER BY g.created_at, g.tx_id LIMIT %(limit)s

-- :name forget_ended
-- Drop some signals of transactions that have ended.
DELETE FROM tx_signal WHERE (tx_id, name) IN (
    SELECT g.tx_id, g.name FROM tx_signal g JOIN tx_summary t ON t.tx_id = g.tx_id
    WHERE t.completed_at IS NOT NULL LIMIT %(limit)s)
