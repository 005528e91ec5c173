"""The statements of claims. READ COMMITTED throughout; what must not race is locked.

Rows are locked claim before batch, several claims in the order of their ids or with SKIP LOCKED,
so that no two can wait for each other in a circle.
"""

from __future__ import annotations

from datp_tasks.ledger.sql import timed

JOIN = timed("""
INSERT INTO ledger_instance (instance, expiry, slow_expiry, joined_at)
VALUES (%(me)s, <now> + make_interval(secs => %(ttl)s), <now> + make_interval(secs => %(slow)s),
        <now>)
""")

# Never revives: a lease that has run out stays so.
RENEW = timed("""
UPDATE ledger_instance
SET expiry = <now> + make_interval(secs => %(ttl)s),
    slow_expiry = <now> + make_interval(secs => %(slow)s)
WHERE instance = %(me)s AND expiry > <now>
RETURNING instance
""")

LEAVE = timed(
    "UPDATE ledger_instance SET expiry = <now> WHERE instance = %(me)s AND expiry > <now>"
)

FORGET = timed("""
DELETE FROM ledger_instance i
WHERE i.expiry <= <now>
  AND NOT EXISTS (SELECT 1 FROM service_claim c WHERE c.claimant = i.instance)
""")

# Its sender should have recorded the end by now, though its claimant lives. Who sends and who
# claims are different processes, so this is not a matter of claims. With a dead claimant the
# takeover does it, which the second phase may hold up on purpose.
MARK_LATE = timed("""
WITH late AS (
    SELECT b.service_id, b.batch_id
    FROM ledger_batch b
    JOIN service_claim c ON c.service_id = b.service_id
    JOIN ledger_instance i ON i.instance = c.claimant AND i.expiry > <moment>
    WHERE b.state = 'SUBMITTING' AND b.next_at <= <moment>
    ORDER BY b.next_at LIMIT %(limit)s
    FOR NO KEY UPDATE OF b SKIP LOCKED
), marked AS (
    UPDATE ledger_batch b SET state = 'UNKNOWN', next_at = <now>, polls = 0, unknown_seen = 0
    FROM late WHERE b.service_id = late.service_id AND b.batch_id = late.batch_id
    RETURNING b.service_id, b.batch_id
)
INSERT INTO batch_status (service_id, batch_id, state, source, note, seen_at)
SELECT service_id, batch_id, 'UNKNOWN', 'queuer', 'nobody has recorded how the attempt ended', <now>
FROM marked RETURNING batch_id
""")

SURVEY = timed("""
SELECT i.instance, i.expiry > <now> AS is_live,
       EXISTS (SELECT 1 FROM service_claim WHERE claimant IS NULL) AS unclaimed,
       (SELECT service_id FROM service_claim ORDER BY service_id LIMIT 1) IS NOT NULL AS any_service
FROM (SELECT 1) AS one LEFT JOIN ledger_instance i ON true
""")

COUNTS = "SELECT claimant, count(*) AS services FROM service_claim GROUP BY claimant"

# SKIP LOCKED: two that claim at the same time take different services and never wait.
TAKE_NOBODYS = timed("""
WITH pick AS MATERIALIZED (
    SELECT c.service_id FROM service_claim c
    WHERE c.claimant IS NULL
      AND EXISTS (SELECT 1 FROM ledger_instance WHERE instance = %(me)s AND expiry > <now>)
    ORDER BY c.due_at LIMIT %(limit)s
    FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE service_claim c
SET claimant = %(me)s, epoch = c.epoch + 1, claimed_at = <now>,
    due_at = CASE WHEN c.due_at < 'infinity' THEN <now> ELSE c.due_at END
FROM pick WHERE c.service_id = pick.service_id
RETURNING c.service_id, c.epoch
""")

# With one phase both expiries are the same, and an attempt that was begun under a lease ends before
# it. So one that still has time belongs to an instance that left early, and is let be. With two
# phases an attempt may take longer than the first, and protects its service until the second.
# (A subquery instead of NOT EXISTS: it is asked for one service at a time, in the order of the
# index, until there are enough.)
TAKE_FORMER = timed("""
WITH pick AS MATERIALIZED (
    SELECT c.service_id FROM service_claim c
    WHERE c.claimant = %(former)s
      AND EXISTS (SELECT 1 FROM ledger_instance WHERE instance = %(me)s AND expiry > <now>)
      AND EXISTS (SELECT 1 FROM ledger_instance WHERE instance = %(former)s AND expiry <= <now>)
      AND (SELECT b.batch_id FROM ledger_batch b, ledger_instance i
           WHERE b.service_id = c.service_id AND b.state = 'SUBMITTING' AND i.instance = c.claimant
             AND (b.next_at > <now> OR i.slow_expiry > <now>)) IS NULL
    ORDER BY c.due_at LIMIT %(limit)s
    FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE service_claim c
SET claimant = %(me)s, epoch = c.epoch + 1, claimed_at = <now>,
    due_at = CASE WHEN c.due_at < 'infinity' THEN <now> ELSE c.due_at END
FROM pick WHERE c.service_id = pick.service_id
RETURNING c.service_id, c.epoch
""")

MARK_ORPHANS = timed("""
WITH marked AS (
    UPDATE ledger_batch b SET state = 'UNKNOWN', next_at = <now>, polls = 0, unknown_seen = 0
    FROM service_claim c
    WHERE c.service_id = ANY(%(services)s) AND b.service_id = c.service_id
      AND b.state = 'SUBMITTING' AND b.claim_epoch < c.epoch
    RETURNING b.service_id, b.batch_id
)
INSERT INTO batch_status (service_id, batch_id, state, source, note, seen_at)
SELECT service_id, batch_id, 'UNKNOWN', 'takeover', 'its claimant is gone', <now> FROM marked
""")

RELEASE = timed("""
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
    due_at = CASE WHEN c.due_at < 'infinity' THEN <now> ELSE c.due_at END
FROM pick WHERE c.service_id = pick.service_id
RETURNING c.service_id
""")

ANY_DUE = timed("""
SELECT 1 FROM service_claim c WHERE c.claimant = %(me)s AND c.due_at <= <moment>
ORDER BY c.due_at LIMIT 1
""")

LOCK_DUE = timed("""
SELECT c.service_id FROM service_claim c
JOIN ledger_instance i ON i.instance = c.claimant AND i.expiry > <moment>
WHERE c.claimant = %(me)s AND c.due_at <= <moment>
ORDER BY c.due_at LIMIT %(limit)s
FOR NO KEY UPDATE OF c SKIP LOCKED
""")

LOCK_CLAIMED = timed("""
SELECT c.service_id FROM service_claim c
JOIN ledger_instance i ON i.instance = c.claimant AND i.expiry > <moment>
WHERE c.service_id = ANY(%(services)s)
ORDER BY c.service_id
FOR NO KEY UPDATE OF c SKIP LOCKED
""")

# `due_at` follows from the first batch in line. Every other statement that makes a batch final,
# new or delayed sets it too; what needs the ledger to answer, or a person, is not due.
LOOK = timed("""
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
                  WHEN h.next_at > <moment> THEN h.next_at
                  ELSE <moment> + make_interval(secs => %(again)s) END
FROM head h WHERE c.service_id = h.service_id
RETURNING c.service_id, c.epoch, h.batch_id, h.is_ready AND h.next_at <= <moment> AS rings
""")

CLAIMS = timed("""
SELECT c.service_id, c.claimant, c.epoch, i.expiry, i.expiry > <now> AS is_live,
       (SELECT count(*) FROM ledger_batch b
        WHERE b.service_id = c.service_id AND b.final_at IS NULL) AS waiting,
       h.batch_id AS head, h.state AS head_state
FROM service_claim c
LEFT JOIN ledger_instance i ON i.instance = c.claimant
LEFT JOIN LATERAL (
    SELECT b.batch_id, b.state FROM ledger_batch b
    WHERE b.service_id = c.service_id AND b.final_at IS NULL ORDER BY b.seq LIMIT 1
) AS h ON true
WHERE coalesce(c.service_id = %(service)s, true)
ORDER BY c.service_id LIMIT %(limit)s
""")
