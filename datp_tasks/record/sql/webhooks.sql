-- :name list_deliveries
-- A page of deliveries, the newest first; NULL means any.
SELECT id, tx_id, sequence, kind, owner, url, state, attempts, next_at, held, created_at,
       first_attempt_at, finished_at, last_status, last_error, endpoint_id
FROM webhook_delivery
WHERE (%(state)s::text IS NULL OR state = %(state)s) AND (%(owner)s::text IS NULL
       OR owner = %(owner)s) AND (%(tx_id)s::text IS NULL OR tx_id = %(tx_id)s)
  AND (%(before)s::timestamptz IS NULL
       OR (created_at, id) < (%(before)s::timestamptz, %(before_id)s))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s

-- :name of_endpoint
-- The newest deliveries to an endpoint.
SELECT id, tx_id, sequence, kind, owner, url, state, attempts, next_at, held, created_at,
       first_attempt_at, finished_at, last_status, last_error, endpoint_id
FROM webhook_delivery
WHERE endpoint_id = %(endpoint_id)s
  AND (created_at, id) < (coalesce(%(before)s::timestamptz, 'infinity'), %(before_id)s)
ORDER BY created_at DESC, id DESC LIMIT %(limit)s

-- :name find
-- A delivery by its id, with an owner only if it is that owner's.
SELECT id, tx_id, sequence, kind, owner, url, state, attempts, next_at, held, created_at,
       first_attempt_at, finished_at, last_status, last_error, endpoint_id
FROM webhook_delivery
WHERE id = %(id)s AND (%(owner)s::text IS NULL OR owner = %(owner)s)

-- :name payload
-- The body that each attempt of a delivery sends.
SELECT payload FROM webhook_delivery WHERE id = %(id)s

-- :name attempts
-- The last attempts of a delivery, the newest first.
SELECT attempt, sender, begun_at, ended_at, http_status, error, took_ms
FROM webhook_attempt WHERE delivery_id = %(id)s ORDER BY attempt DESC LIMIT %(limit)s

-- :name redeliver
-- Make a delivery due again, with a full number of tries; no row while it is due. Also one that was
-- delivered: its receiver may have lost it. It keeps its id. What was erased has nothing to say.
UPDATE webhook_delivery
SET state = 'pending', finished_at = NULL, attempts_before = attempts, held = false,
    begun_at = coalesce(%(now)s, now()), next_at = coalesce(%(now)s, now())
WHERE id = %(id)s AND (state <> 'pending' OR next_at > coalesce(%(now)s, now()))
  AND payload <> ''
RETURNING tx_id, sequence, owner, target

-- :name redeliver_dead
-- Make dead letters due again, the oldest first; what was erased has nothing to say.
WITH chosen AS (
    SELECT id FROM webhook_delivery
    WHERE state = 'dead' AND payload <> '' AND (%(owner)s::text IS NULL OR owner = %(owner)s)
    ORDER BY created_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE webhook_delivery d
SET state = 'pending', finished_at = NULL, attempts_before = attempts, held = false,
    begun_at = coalesce(%(now)s, now()), next_at = coalesce(%(now)s, now())
FROM chosen WHERE d.id = chosen.id
RETURNING d.tx_id, d.sequence, d.owner, d.target

-- :name active_secrets
-- The secrets that sign now, the newest of each owner first.
SELECT owner, secret FROM webhook_secret
WHERE owner = ANY(%(owner)s)
  AND (retired_at IS NULL OR retired_at > coalesce(%(now)s, now()))
ORDER BY owner, created_at DESC, id DESC

-- :name add_secrets
-- Give owners a current secret. Two processes that need the first one at once get the same.
INSERT INTO webhook_secret (owner, secret, created_at)
SELECT owner, secret, coalesce(%(now)s, now())
FROM unnest(%(owner)s::text[], %(secret)s::text[]) AS v (owner, secret)
ON CONFLICT (owner) WHERE retired_at IS NULL DO NOTHING

-- :name retire_secrets
-- Let the secrets of an owner end after an overlap.
UPDATE webhook_secret
SET retired_at = coalesce(%(now)s, now()) + make_interval(secs => %(overlap_s)s)
WHERE owner = %(owner)s
  AND (retired_at IS NULL
       OR retired_at > coalesce(%(now)s, now()) + make_interval(secs => %(overlap_s)s))

-- :name retire_surplus
-- Each secret costs every webhook a signature: only the newest sign.
UPDATE webhook_secret SET retired_at = coalesce(%(now)s, now())
WHERE id IN (
    SELECT id FROM webhook_secret
    WHERE owner = %(owner)s AND (retired_at IS NULL OR retired_at > coalesce(%(now)s, now()))
    ORDER BY created_at DESC, id DESC OFFSET %(secrets_max)s)

-- :name secrets
-- All secrets of an owner, the newest first, also those that are retired.
SELECT secret, created_at, retired_at FROM webhook_secret
WHERE owner = %(owner)s ORDER BY created_at DESC, id DESC LIMIT 100

-- :name lag
-- How many seconds the most overdue delivery has been due; 0 if none is.
SELECT coalesce(greatest(extract(epoch FROM coalesce(%(now)s, now()) - min(next_at)), 0), 0)
FROM webhook_delivery WHERE state = 'pending'
