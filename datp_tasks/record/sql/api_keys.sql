-- :name create
-- Add a key; of its secret only the hash is stored.
INSERT INTO api_key (id, owner, scope, role, grants, name, secret_hash, created_at, expires_at)
SELECT %(id)s, %(owner)s, %(scope)s, %(role)s, %(grants)s::json, %(name)s, %(secret_hash)s, t.now,
       t.now + make_interval(secs => %(expires_in_s)s)
FROM (SELECT coalesce(%(now)s, now()) AS now) t
RETURNING *

-- :name find
-- A key by its id, and whether it may be used now.
SELECT *, revoked_at IS NULL AND coalesce(expires_at > coalesce(%(now)s, now()), true) AS is_live
FROM api_key WHERE id = %(id)s

-- :name owners
-- Whose these keys are; revoked ones too.
SELECT id, owner FROM api_key WHERE id = ANY(%(ids)s)

-- :name list_keys
-- The keys of one owner or of all, the oldest first, also those that are revoked.
SELECT * FROM api_key
WHERE coalesce(owner = %(owner)s, true)
  AND (created_at, id) > (coalesce(%(after)s::timestamptz, '-infinity'), %(after_id)s)
ORDER BY created_at, id LIMIT %(limit)s

-- :name revoke
-- End a key; no row changes if it was revoked before.
UPDATE api_key SET revoked_at = coalesce(%(now)s, now())
WHERE id = %(id)s AND revoked_at IS NULL

-- :name note_used
-- Note that a key is in use, once a minute at most, so that a busy key is not written with each
-- request.
UPDATE api_key SET last_used_at = t.now FROM (SELECT coalesce(%(now)s, now()) AS now) t
WHERE id = %(id)s AND coalesce(last_used_at < t.now - interval '1 minute', true)

-- :name limits
-- What an owner may do where that differs from the settings.
SELECT * FROM owner_limit WHERE owner = %(owner)s

-- :name set_limits
-- Set what an owner may do; NULL means what the settings say.
INSERT INTO owner_limit (owner, requests_per_s, burst_max, in_flight_max, changed_at)
VALUES (%(owner)s, %(requests_per_s)s, %(burst_max)s, %(in_flight_max)s,
        coalesce(%(now)s, now()))
ON CONFLICT (owner) DO UPDATE
SET requests_per_s = excluded.requests_per_s, burst_max = excluded.burst_max,
    in_flight_max = excluded.in_flight_max, changed_at = excluded.changed_at

-- :name in_flight
-- How many transactions and batches of an owner have not ended. Counting stops at the limit: more
-- than that need not be known.
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM tx_summary WHERE owner = %(owner)s AND completed_at IS NULL
            LIMIT %(limit)s) t)
     + (SELECT count(*) FROM (
            SELECT 1 FROM ledger_batch WHERE owner = %(owner)s AND final_at IS NULL
            LIMIT %(limit)s) b)

-- :name follow_pepper
-- Keep the hash of a key under the current pepper, unless another process just did.
UPDATE api_key SET secret_hash = %(secret_hash)s, followed_at = coalesce(%(now)s, now())
WHERE id = %(id)s AND secret_hash = %(stored)s

-- :name followed
-- Live keys whose end was made under an earlier pepper.
SELECT id FROM api_key
WHERE followed_at IS NOT NULL AND revoked_at IS NULL
  AND coalesce(expires_at > coalesce(%(now)s, now()), true)
