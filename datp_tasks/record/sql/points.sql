-- :name pass_point
-- Record points of no return ('final'), or that another system decides for a while ('forward'), on
-- behalf of the holders of fences. A stop that was recorded first wins; so does the clock: what is
-- late cannot pass, unless it was forwarded in time. It can be repeated. The row is the one that
-- expiries and cancels are recorded in, so that this decides the race. What passes for good leaves
-- the list of timeouts here; a row that the handler holds is removed when it reads the log.
WITH v AS (
    SELECT * FROM unnest(%(tx_id)s::text[], %(fence)s::bigint[], %(kind)s::text[])
             AS v (tx_id, fence, kind)
), locked AS MATERIALIZED (
    SELECT tx_id, fence, expires_at, expiring_at, stop_request, no_return_at, forwarded_at
    FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
    ORDER BY tx_id FOR NO KEY UPDATE
), passed AS (
    UPDATE tx_summary s
    SET fence = v.fence,
        no_return_at = CASE WHEN v.kind = 'final' THEN coalesce(s.no_return_at, %(now)s, now())
                            ELSE s.no_return_at END,
        forwarded_at = CASE WHEN v.kind = 'forward' AND s.no_return_at IS NULL
                            THEN coalesce(s.forwarded_at, %(now)s, now()) END
    FROM locked l JOIN v ON v.tx_id = l.tx_id
    WHERE s.tx_id = l.tx_id AND s.fence <= v.fence
      AND s.expiring_at IS NULL AND s.stop_request IS NULL
      AND (s.no_return_at IS NOT NULL OR s.forwarded_at IS NOT NULL OR s.expires_at IS NULL
           OR s.expires_at > coalesce(%(now)s, now()))
    RETURNING s.tx_id, s.status, s.expires_at, v.kind,
              l.no_return_at IS NULL AND (v.kind = 'final' OR l.forwarded_at IS NULL) AS is_new
), logged AS (
    INSERT INTO tx_state_change (tx_id, status, created_at, expires_at, detail)
    SELECT tx_id, status, coalesce(%(now)s, now()), expires_at,
           CASE kind WHEN 'final' THEN 'RECEIVED_FULFIL' ELSE 'RESERVED_FORWARDED' END
    FROM passed WHERE is_new
), forgotten AS (
    DELETE FROM tx_timeout WHERE tx_id = ANY(ARRAY(
        SELECT tx_id FROM tx_timeout
        WHERE tx_id = ANY(ARRAY(SELECT tx_id FROM passed WHERE kind = 'final'))
        FOR UPDATE SKIP LOCKED))
)
SELECT l.tx_id, p.tx_id IS NOT NULL AS is_passed, l.fence, l.stop_request,
       CASE WHEN l.expiring_at IS NOT NULL THEN l.expires_at END AS expired_at
FROM locked l LEFT JOIN passed p ON p.tx_id = l.tx_id

-- :name end_forward
-- The other system has answered: transactions may expire and be cancelled again. The log tells the
-- handler to watch them once more.
WITH locked AS MATERIALIZED (
    SELECT tx_id FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
    ORDER BY tx_id FOR NO KEY UPDATE
), ended AS (
    UPDATE tx_summary s SET forwarded_at = NULL
    FROM locked
    JOIN unnest(%(tx_id)s::text[], %(fence)s::bigint[]) AS v (tx_id, fence)
      ON v.tx_id = locked.tx_id
    WHERE s.tx_id = locked.tx_id AND s.fence <= v.fence AND s.forwarded_at IS NOT NULL
    RETURNING s.tx_id, s.status, s.expires_at
)
INSERT INTO tx_state_change (tx_id, status, created_at, expires_at, detail)
SELECT tx_id, status, coalesce(%(now)s, now()), expires_at, 'RESERVED' FROM ended

-- :name confirm_stop
-- Before a worker turns transactions around that were asked to stop: the request is recorded,
-- unless a point of no return came first. Nothing is said of those that have ended or are another
-- worker's.
WITH locked AS MATERIALIZED (
    SELECT tx_id, no_return_at, forwarded_at FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
    ORDER BY tx_id FOR NO KEY UPDATE
), stopped AS (
    UPDATE tx_summary s SET stop_request = coalesce(s.stop_request, v.request)
    FROM locked
    JOIN unnest(%(tx_id)s::text[], %(fence)s::bigint[], %(request)s::text[])
         AS v (tx_id, fence, request) ON v.tx_id = locked.tx_id
    WHERE s.tx_id = locked.tx_id AND s.fence <= v.fence
      AND s.no_return_at IS NULL AND s.forwarded_at IS NULL
)
SELECT tx_id FROM locked WHERE no_return_at IS NOT NULL OR forwarded_at IS NOT NULL

-- :name bound
-- Which transactions cannot expire, for good or for now.
SELECT tx_id, CASE WHEN no_return_at IS NULL THEN 'forward' ELSE 'final' END AS kind
FROM tx_summary
WHERE tx_id = ANY(%(tx_id)s) AND (no_return_at IS NOT NULL OR forwarded_at IS NOT NULL)

-- :name ask_to_stop
-- Record a cancel in the row of the transaction, unless a point of no return came first. The
-- request before it, if there was one, counts; only a new one may be taken back.
WITH locked AS MATERIALIZED (
    SELECT tx_id, no_return_at, forwarded_at, stop_request FROM tx_summary
    WHERE tx_id = %(tx_id)s AND coalesce(completed_at, 'infinity') = 'infinity'
    FOR NO KEY UPDATE
), stopped AS (
    UPDATE tx_summary s SET stop_request = coalesce(s.stop_request, %(value)s)
    FROM locked WHERE s.tx_id = locked.tx_id AND s.no_return_at IS NULL AND s.forwarded_at IS NULL
)
SELECT no_return_at, forwarded_at, stop_request IS NULL AS is_new FROM locked

-- :name ask_many_to_stop
-- The same for many, without a wait: rows that are locked are left out. What is in doubt refuses a
-- cancel, so nothing is recorded for it.
WITH locked AS MATERIALIZED (
    SELECT tx_id, status, no_return_at, forwarded_at, stop_request FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
    ORDER BY tx_id FOR NO KEY UPDATE SKIP LOCKED
), stopped AS (
    UPDATE tx_summary s SET stop_request = coalesce(s.stop_request, %(value)s)
    FROM locked
    WHERE s.tx_id = locked.tx_id AND s.status <> 'in-doubt'
      AND s.no_return_at IS NULL AND s.forwarded_at IS NULL
)
SELECT tx_id, no_return_at, forwarded_at,
       stop_request IS NULL AND status <> 'in-doubt' AS is_new
FROM locked

-- :name take_back
-- A cancel was refused by Redis: the transaction may pass its point of no return after all.
UPDATE tx_summary SET stop_request = NULL
WHERE tx_id = %(tx_id)s AND stop_request = %(value)s
  AND coalesce(completed_at, 'infinity') = 'infinity'

-- :name limit_wait
-- A cancel does not wait long for a row that a step holds.
SET LOCAL lock_timeout = %(lock_ms)s
