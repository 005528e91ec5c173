-- Linked transactions: legs that pass their point of no return together, or not at all.

-- :name serialize
-- One at a time decides about a link.
SELECT pg_advisory_xact_lock(hashtextextended('link:' || %(owner)s || ':' || %(link)s, 0))

-- :name limit_wait
-- A leg in the middle of a transactional step holds its row; that is not waited for.
SET LOCAL lock_timeout = %(lock_ms)s

-- :name join
-- Make a transaction a leg of a link; no row if it has ended, or another worker has it.
UPDATE tx_summary SET link_id = %(link)s, link_size = %(size)s
WHERE tx_id = %(tx_id)s AND completed_at IS NULL AND fence <= %(fence)s
RETURNING tx_id

-- :name ready
-- A leg has come to where it commits; no row if it has ended, or another worker has it.
UPDATE tx_summary SET link_ready_at = coalesce(link_ready_at, %(now)s, now())
WHERE tx_id = %(tx_id)s AND completed_at IS NULL AND fence <= %(fence)s
RETURNING link_id

-- :name members
-- The legs of a link, locked in the order of their ids, as every ending locks them.
SELECT tx_id, status, completed_at, expires_at, expiring_at, stop_request, no_return_at, link_size,
       link_ready_at, expires_at <= coalesce(%(now)s, now()) AS is_overdue,
       coalesce(%(now)s, now()) AS now
FROM tx_summary WHERE owner = %(owner)s AND link_id = %(link)s
ORDER BY tx_id FOR NO KEY UPDATE

-- :name share_deadline
-- All legs expire with the one that expires first.
WITH late AS (
    UPDATE tx_summary SET expires_at = %(expires_at)s
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
      AND no_return_at IS NULL
      AND coalesce(expires_at, 'infinity') > %(expires_at)s
    RETURNING tx_id, status
), logged AS (
    INSERT INTO tx_state_change (tx_id, status, created_at, expires_at)
    SELECT tx_id, status, coalesce(%(now)s, now()), %(expires_at)s FROM late
)
INSERT INTO tx_timeout (tx_id, expires_at, due_at, created_at)
SELECT tx_id, %(expires_at)s, %(expires_at)s, coalesce(%(now)s, now()) FROM late
ON CONFLICT (tx_id) DO UPDATE
SET expires_at = excluded.expires_at, due_at = least(tx_timeout.due_at, excluded.due_at)

-- :name pass_together
-- Every leg is past its point of no return from this commit on: it cannot expire or be cancelled.
WITH passed AS (
    UPDATE tx_summary SET no_return_at = coalesce(%(now)s, now())
    WHERE tx_id = ANY(%(tx_id)s) AND no_return_at IS NULL
    RETURNING tx_id, status, expires_at
), logged AS (
    INSERT INTO tx_state_change (tx_id, status, created_at, expires_at, detail)
    SELECT tx_id, status, coalesce(%(now)s, now()), expires_at, 'RECEIVED_FULFIL' FROM passed
)
DELETE FROM tx_timeout WHERE tx_id = ANY(ARRAY(
    SELECT tx_id FROM tx_timeout WHERE tx_id = ANY(%(tx_id)s) FOR UPDATE SKIP LOCKED))
