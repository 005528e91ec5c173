-- Bulk transfers: a transaction and its transfers that are accepted by one commit.

-- :name serialize
-- One at a time accepts a bulk under a name: a second one must find the first, and accept nothing.
SELECT pg_advisory_xact_lock(hashtextextended('bulk:' || %(owner)s || ':' || %(name)s, 0))

-- :name bind
-- A bulk only reports. It neither expires nor is cancelled: its transfers do.
UPDATE tx_summary SET no_return_at = coalesce(%(now)s, now()) WHERE tx_id = %(tx_id)s

-- :name standing
-- What became of transactions of an owner, so far.
SELECT tx_id, status, note, completed_at FROM tx_summary
WHERE tx_id = ANY(%(tx_id)s) AND owner = %(owner)s
