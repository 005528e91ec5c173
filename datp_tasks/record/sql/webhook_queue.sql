-- How webhooks are claimed, settled and held back.

-- :name look
-- Deliveries that have not ended, and what is known of their targets.
SELECT d.id, d.tx_id, d.sequence, d.owner, d.url, d.target, d.attempts,
       greatest(0, extract(epoch FROM d.next_at - coalesce(%(now)s, now())))::float AS wait_s,
       t.target IS NOT NULL AS is_broken,
       greatest(0, extract(epoch FROM t.disabled_until - coalesce(%(now)s, now())))::float
           AS disabled_s,
       extract(epoch FROM coalesce(%(now)s, now()) - d.begun_at)::float AS age_s
FROM webhook_delivery d
LEFT JOIN webhook_breaker t ON t.owner = d.owner AND t.target = d.target
WHERE d.id = ANY(%(id)s) AND d.state = 'pending'
ORDER BY d.next_at, d.id

-- :name claim
-- Take attempts that are due and note that they begin. The number of attempts is compared and set:
-- two senders never send the same attempt.
WITH locked AS MATERIALIZED (
    SELECT d.id FROM webhook_delivery d
    JOIN unnest(%(id)s::text[], %(attempts)s::integer[]) AS v (id, attempts) ON v.id = d.id
    WHERE d.state = 'pending' AND d.attempts = v.attempts
      AND d.next_at <= coalesce(%(now)s, now())
    ORDER BY d.id FOR UPDATE OF d SKIP LOCKED
), claimed AS (
    UPDATE webhook_delivery d
    SET attempts = d.attempts + 1, held = false,
        next_at = coalesce(%(now)s, now()) + make_interval(secs => %(hold_s)s),
        first_attempt_at = coalesce(d.first_attempt_at, %(now)s, now())
    FROM locked WHERE d.id = locked.id
    RETURNING d.id, d.tx_id, d.sequence, d.owner, d.url, d.target, d.payload, d.attempts,
              d.endpoint_id, d.attempts - d.attempts_before AS try
), noted AS (
    INSERT INTO webhook_attempt (delivery_id, attempt, sender, begun_at)
    SELECT id, attempts, %(sender)s, coalesce(%(now)s, now()) FROM claimed
)
SELECT *, coalesce(%(now)s, now()) AS at FROM claimed

-- :name settle
-- Write down what became of attempts. A success counts in any case; a failure only if no other
-- attempt has begun.
WITH v AS MATERIALIZED (
    SELECT * FROM unnest(
        %(id)s::text[], %(attempt)s::integer[], %(state)s::text[], %(wait_s)s::float[],
        %(status)s::integer[], %(error)s::text[], %(took_ms)s::integer[])
        AS v (id, attempt, state, wait_s, http_status, error, took_ms)
), noted AS (
    UPDATE webhook_attempt a
    SET ended_at = coalesce(%(now)s, now()), http_status = v.http_status, error = v.error,
        took_ms = v.took_ms
    FROM v WHERE a.delivery_id = v.id AND a.attempt = v.attempt
), locked AS MATERIALIZED (
    SELECT d.id FROM webhook_delivery d JOIN v ON v.id = d.id
    WHERE d.state = 'pending' AND (d.attempts = v.attempt OR v.state = 'delivered')
    ORDER BY d.id FOR UPDATE OF d
), settled AS (
    UPDATE webhook_delivery d
    SET state = v.state, last_status = v.http_status, last_error = v.error, held = false,
        next_at = coalesce(%(now)s, now()) + make_interval(secs => v.wait_s),
        finished_at = CASE WHEN v.state <> 'pending' THEN coalesce(%(now)s, now()) END
    FROM locked JOIN v ON v.id = locked.id WHERE d.id = locked.id
    RETURNING d.id
)
SELECT id FROM settled

-- :name hold
-- Put off deliveries whose target is disabled, without an attempt.
WITH locked AS MATERIALIZED (
    SELECT d.id FROM webhook_delivery d
    WHERE d.id = ANY(%(id)s) AND d.state = 'pending' AND d.next_at <= coalesce(%(now)s, now())
    ORDER BY d.id FOR UPDATE SKIP LOCKED
)
UPDATE webhook_delivery d
SET held = true, next_at = coalesce(%(now)s, now()) + make_interval(secs => v.wait_s)
FROM locked JOIN unnest(%(id)s::text[], %(wait_s)s::float[]) AS v (id, wait_s) ON v.id = locked.id
WHERE d.id = locked.id

-- :name bury
-- Give up deliveries whose target was disabled for as long as a delivery may take.
UPDATE webhook_delivery
SET state = 'dead', held = false, finished_at = coalesce(%(now)s, now()),
    last_error = 'its target was disabled until its time was over'
WHERE id = ANY(%(id)s) AND state = 'pending' AND next_at <= coalesce(%(now)s, now())

-- :name overdue
-- Deliveries that no sender has taken although they are due: what Redis does not know of, or lost.
-- The oldest of every owner in turn, so that a million of one hide nothing of another. Owners are
-- stepped through in the index of what is pending; no row of one is read to find the next.
WITH RECURSIVE owners AS (
    (SELECT owner FROM webhook_delivery WHERE state = 'pending' ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT d.owner FROM webhook_delivery d
            WHERE d.state = 'pending' AND d.owner > owners.owner ORDER BY d.owner LIMIT 1)
    FROM owners WHERE owners.owner IS NOT NULL
), fair AS (
    SELECT owner, ceil(%(limit)s::float / count(*) OVER ())::bigint AS share
    FROM owners WHERE owner IS NOT NULL
)
SELECT d.tx_id, d.sequence, d.owner FROM fair CROSS JOIN LATERAL (
    SELECT tx_id, sequence, owner FROM webhook_delivery
    WHERE state = 'pending' AND owner = fair.owner
      AND next_at < coalesce(%(now)s, now()) - make_interval(secs => %(overdue_s)s)
    ORDER BY next_at LIMIT fair.share
) AS d
ORDER BY random() LIMIT %(limit)s

-- :name disable
-- Send nothing to a target of an owner for a while. True for the one that disabled it; further
-- failures only prolong it.
INSERT INTO webhook_breaker (owner, target, disabled_at, disabled_until, reason)
VALUES (%(owner)s, %(target)s, coalesce(%(now)s, now()),
        coalesce(%(now)s, now()) + make_interval(secs => %(disable_s)s), %(reason)s)
ON CONFLICT (owner, target) DO UPDATE
SET disabled_until = excluded.disabled_until, reason = excluded.reason
RETURNING xmax = 0 AS is_new

-- :name probe
-- Take the right to try a disabled target; no row if another sender has it. One sender at a time
-- may try whether the target is back; for the others it stays disabled.
UPDATE webhook_breaker
SET disabled_until = coalesce(%(now)s, now()) + make_interval(secs => %(hold_s)s)
WHERE owner = %(owner)s AND target = %(target)s
  AND disabled_until <= coalesce(%(now)s, now())
RETURNING target

-- :name enable
-- The target is back; no row if it was not disabled.
DELETE FROM webhook_breaker WHERE owner = %(owner)s AND target = %(target)s RETURNING target

-- :name release
-- What waited for a target of an owner is due now.
UPDATE webhook_delivery SET held = false, next_at = coalesce(%(now)s, now())
WHERE target = %(target)s AND owner = %(owner)s AND held AND state = 'pending'
RETURNING tx_id, sequence, owner
