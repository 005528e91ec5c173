-- READ COMMITTED throughout; what must not race is locked. Rows are locked claim before batch,
-- several claims in the order of their ids or with SKIP LOCKED, so that no two can wait for each
-- other in a circle.
--
-- The time is `coalesce(%(now)s, clock_timestamp())`, read when a row is looked at, which is right
-- for a check under a lock that was waited for; `(SELECT ...)` of it is read once, so that an index
-- can use it.

-- :name join
-- Begin the lease of an instance.
INSERT INTO ledger_instance (instance, expiry, slow_expiry, joined_at)
VALUES (%(me)s, coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(ttl)s),
        coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(slow)s),
        coalesce(%(now)s, clock_timestamp()))

-- :name renew
-- Prolong a lease; no row if it has run out. Never revives: a lease that has run out stays so.
UPDATE ledger_instance
SET expiry = coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(ttl)s),
    slow_expiry = coalesce(%(now)s, clock_timestamp()) + make_interval(secs => %(slow)s)
WHERE instance = %(me)s AND expiry > coalesce(%(now)s, clock_timestamp())
RETURNING instance

-- :name leave
-- End a lease now.
UPDATE ledger_instance SET expiry = coalesce(%(now)s, clock_timestamp())
WHERE instance = %(me)s AND expiry > coalesce(%(now)s, clock_timestamp())

-- :name forget_instances
-- Drop instances whose lease has run out and that hold nothing.
DELETE FROM ledger_instance i
WHERE i.expiry <= coalesce(%(now)s, clock_timestamp())
  AND NOT EXISTS (SELECT 1 FROM service_claim c WHERE c.claimant = i.instance)

-- :name mark_late
-- Attempts whose end was not recorded in time become UNKNOWN. The sender should have recorded the
-- end by now, and the claimant lives. The process that sends and the one that claims may differ, so
-- this is not a matter of claims. With a dead claimant the takeover does it, which the second phase
-- may hold up on purpose.
WITH late AS (
    SELECT b.service_id, b.batch_id
    FROM ledger_batch b
    JOIN service_claim c ON c.service_id = b.service_id
    JOIN ledger_instance i
      ON i.instance = c.claimant AND i.expiry > (SELECT coalesce(%(now)s, clock_timestamp()))
    WHERE b.state = 'SUBMITTING' AND b.next_at <= (SELECT coalesce(%(now)s, clock_timestamp()))
    ORDER BY b.next_at LIMIT %(limit)s
    FOR NO KEY UPDATE OF b SKIP LOCKED
), marked AS (
    UPDATE ledger_batch b
    SET state = 'UNKNOWN', next_at = coalesce(%(now)s, clock_timestamp()),
        polls = 0, unknown_seen = 0
    FROM late WHERE b.service_id = late.service_id AND b.batch_id = late.batch_id
    RETURNING b.service_id, b.batch_id
)
INSERT INTO batch_status (service_id, batch_id, state, source, note, seen_at)
SELECT service_id, batch_id, 'UNKNOWN', 'queuer', 'no instance has recorded how the attempt ended',
       coalesce(%(now)s, clock_timestamp())
FROM marked RETURNING batch_id

-- :name survey
-- All instances, and whether there are services, claimed or not.
SELECT i.instance, i.expiry > coalesce(%(now)s, clock_timestamp()) AS is_live,
       EXISTS (SELECT 1 FROM service_claim WHERE claimant IS NULL) AS unclaimed,
       (SELECT service_id FROM service_claim ORDER BY service_id LIMIT 1) IS NOT NULL AS any_service
FROM (SELECT 1) AS one LEFT JOIN ledger_instance i ON true

-- :name counts
-- How many services each instance has claimed.
SELECT claimant, count(*) AS services FROM service_claim GROUP BY claimant

-- :name take_unclaimed
-- Claim services that are not claimed, those with something to do first. SKIP LOCKED: two that
-- claim at the same time take different services and never wait.
WITH pick AS MATERIALIZED (
    SELECT c.service_id FROM service_claim c
    WHERE c.claimant IS NULL
      AND EXISTS (SELECT 1 FROM ledger_instance
                  WHERE instance = %(me)s AND expiry > coalesce(%(now)s, clock_timestamp()))
    ORDER BY c.due_at LIMIT %(limit)s
    FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE service_claim c
SET claimant = %(me)s, epoch = c.epoch + 1, claimed_at = coalesce(%(now)s, clock_timestamp()),
    due_at = CASE WHEN c.due_at < 'infinity' THEN coalesce(%(now)s, clock_timestamp())
                  ELSE c.due_at END
FROM pick WHERE c.service_id = pick.service_id
RETURNING c.service_id, c.epoch

-- :name take_former
-- Claim services of an instance whose lease has run out. With one phase both expiries are the same,
-- and an attempt that was begun under a lease ends before it. So one that still has time belongs to
-- an instance that left early, and is let be. With two phases an attempt may take longer than the
-- first, and protects its service until the second. (A subquery instead of NOT EXISTS: it is asked
-- for one service at a time, in the order of the index, until there are enough.)
WITH pick AS MATERIALIZED (
    SELECT c.service_id FROM service_claim c
    WHERE c.claimant = %(former)s
      AND EXISTS (SELECT 1 FROM ledger_instance
                  WHERE instance = %(me)s AND expiry > coalesce(%(now)s, clock_timestamp()))
      AND EXISTS (SELECT 1 FROM ledger_instance
                  WHERE instance = %(former)s AND expiry <= coalesce(%(now)s, clock_timestamp()))
      AND (SELECT b.batch_id FROM ledger_batch b, ledger_instance i
           WHERE b.service_id = c.service_id AND b.state = 'SUBMITTING' AND i.instance = c.claimant
             AND (b.next_at > coalesce(%(now)s, clock_timestamp())
                  OR i.slow_expiry > coalesce(%(now)s, clock_timestamp()))) IS NULL
    ORDER BY c.due_at LIMIT %(limit)s
    FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE service_claim c
SET claimant = %(me)s, epoch = c.epoch + 1, claimed_at = coalesce(%(now)s, clock_timestamp()),
    due_at = CASE WHEN c.due_at < 'infinity' THEN coalesce(%(now)s, clock_timestamp())
                  ELSE c.due_at END
FROM pick WHERE c.service_id = pick.service_id
RETURNING c.service_id, c.epoch

-- :name mark_orphans
-- What a former claimant had begun is UNKNOWN from the commit of the takeover on.
WITH marked AS (
    UPDATE ledger_batch b
    SET state = 'UNKNOWN', next_at = coalesce(%(now)s, clock_timestamp()),
        polls = 0, unknown_seen = 0
    FROM service_claim c
    WHERE c.service_id = ANY(%(services)s) AND b.service_id = c.service_id
      AND b.state = 'SUBMITTING' AND b.claim_epoch < c.epoch
    RETURNING b.service_id, b.batch_id
)
INSERT INTO batch_status (service_id, batch_id, state, source, note, seen_at)
SELECT service_id, batch_id, 'UNKNOWN', 'takeover', 'its claimant is gone',
       coalesce(%(now)s, clock_timestamp())
FROM marked

-- :name release
-- Give services up, idle ones first; those in the middle of a submission stay.
WITH pick AS MATERIALIZED (
    SELECT c.service_id FROM service_claim c
    WHERE c.claimant = %(me)s
      AND (SELECT b.batch_id FROM ledger_batch b
           WHERE b.service_id = c.service_id AND b.state = 'SUBMITTING') IS NULL
    ORDER BY c.due_at DESC LIMIT %(limit)s
    FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE service_claim c
SET claimant = NULL, claimed_at = NULL, epoch = c.epoch + 1,
    due_at = CASE WHEN c.due_at < 'infinity' THEN coalesce(%(now)s, clock_timestamp())
                  ELSE c.due_at END
FROM pick WHERE c.service_id = pick.service_id
RETURNING c.service_id

-- :name any_due
-- Whether an instance has a service that is due, without a lock.
SELECT 1 FROM service_claim c
WHERE c.claimant = %(me)s AND c.due_at <= (SELECT coalesce(%(now)s, clock_timestamp()))
ORDER BY c.due_at LIMIT 1

-- :name lock_due
-- Lock the services of an instance that are due.
SELECT c.service_id FROM service_claim c
JOIN ledger_instance i
  ON i.instance = c.claimant AND i.expiry > (SELECT coalesce(%(now)s, clock_timestamp()))
WHERE c.claimant = %(me)s AND c.due_at <= (SELECT coalesce(%(now)s, clock_timestamp()))
ORDER BY c.due_at LIMIT %(limit)s
FOR NO KEY UPDATE OF c SKIP LOCKED

-- :name lock_claimed
-- Lock these services, whichever live instance has claimed them.
SELECT c.service_id FROM service_claim c
JOIN ledger_instance i
  ON i.instance = c.claimant AND i.expiry > (SELECT coalesce(%(now)s, clock_timestamp()))
WHERE c.service_id = ANY(%(services)s)
ORDER BY c.service_id
FOR NO KEY UPDATE OF c SKIP LOCKED

-- :name look
-- The first batch in line of each service, and when the service is due next. `due_at` follows from
-- the first batch in line. Every other statement that makes a batch final, new or delayed sets it
-- too; what needs the ledger to answer, or a person, is not due.
WITH head AS (
    SELECT s.service_id, h.batch_id, h.next_at, h.state IN ('NEW', 'DELAYED') AS is_ready
    FROM unnest(%(services)s::text[]) AS s (service_id)
    LEFT JOIN LATERAL (
        SELECT b.batch_id, b.state, b.next_at FROM ledger_batch b
        WHERE b.service_id = s.service_id AND b.final_at IS NULL
        ORDER BY b.seq LIMIT 1
    ) AS h ON true
)
UPDATE service_claim c
SET due_at = CASE WHEN h.is_ready IS NOT TRUE THEN 'infinity'
                  WHEN h.next_at > (SELECT coalesce(%(now)s, clock_timestamp())) THEN h.next_at
                  ELSE (SELECT coalesce(%(now)s, clock_timestamp()))
                       + make_interval(secs => %(again)s) END
FROM head h WHERE c.service_id = h.service_id
RETURNING c.service_id, c.epoch, h.batch_id,
          h.is_ready AND h.next_at <= (SELECT coalesce(%(now)s, clock_timestamp())) AS rings

-- :name claims
-- Which instance has claimed which service, for people.
SELECT c.service_id, c.claimant, c.epoch, i.expiry,
       i.expiry > coalesce(%(now)s, clock_timestamp()) AS is_live,
       (SELECT count(*) FROM ledger_batch b
        WHERE b.service_id = c.service_id AND b.final_at IS NULL) AS waiting,
       h.batch_id AS head, h.state AS head_state
FROM service_claim c
LEFT JOIN ledger_instance i ON i.instance = c.claimant
LEFT JOIN LATERAL (
    SELECT b.batch_id, b.state FROM ledger_batch b
    WHERE b.service_id = c.service_id AND b.final_at IS NULL ORDER BY b.seq LIMIT 1
) AS h ON true
WHERE coalesce(c.service_id = %(service)s, true) AND c.service_id > coalesce(%(after)s, '')
ORDER BY c.service_id LIMIT %(limit)s
