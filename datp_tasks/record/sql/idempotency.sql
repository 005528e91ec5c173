-- :name begin
-- Take a key that is new, too old to count, or whose first request died with its process.
INSERT INTO idempotency_key AS k (owner, key, request_hash, begun_at, held_until)
SELECT %(owner)s, %(key)s, %(request_hash)s, moment.at,
       moment.at + make_interval(secs => %(hold_s)s)
FROM (SELECT coalesce(%(now)s, clock_timestamp()) AS at) moment
ON CONFLICT (owner, key) DO UPDATE
SET request_hash = excluded.request_hash, begun_at = excluded.begun_at,
    held_until = excluded.held_until, status = NULL, headers = NULL, body = NULL, tx_id = NULL
WHERE k.begun_at < excluded.begun_at - make_interval(hours => %(keep_hours)s)
   OR (k.request_hash = excluded.request_hash AND k.status IS NULL
       AND k.held_until < excluded.begun_at)
RETURNING begun_at

-- :name find
-- What is known of a key.
SELECT request_hash, status, headers::text AS headers, body, tx_id
FROM idempotency_key WHERE owner = %(owner)s AND key = %(key)s

-- :name renew
-- Hold a key for longer, unless the hold was over and another request took it.
UPDATE idempotency_key
SET held_until = greatest(held_until + interval '1 microsecond',
    coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(hold_s)s))
WHERE owner = %(owner)s AND key = %(key)s AND begun_at = %(begun_at)s AND status IS NULL

-- :name keep
-- The answer, unless the hold was over and another request took the key.
UPDATE idempotency_key
SET status = %(status)s, headers = %(headers)s::json, body = %(body)s, tx_id = %(tx_id)s
WHERE owner = %(owner)s AND key = %(key)s AND begun_at = %(begun_at)s AND status IS NULL

-- :name release
-- The key is free again.
DELETE FROM idempotency_key
WHERE owner = %(owner)s AND key = %(key)s AND begun_at = %(begun_at)s AND status IS NULL

-- :name drop_old
-- Keys that do not count any more, the oldest first.
DELETE FROM idempotency_key k USING (
    SELECT owner, key FROM idempotency_key
    WHERE begun_at < coalesce(%(now)s, now()) - make_interval(hours => %(keep_hours)s)
    ORDER BY begun_at LIMIT %(limit)s
) old
WHERE k.owner = old.owner AND k.key = old.key
  AND k.begun_at < coalesce(%(now)s, now()) - make_interval(hours => %(keep_hours)s)
