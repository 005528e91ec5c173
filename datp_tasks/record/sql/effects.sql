-- :name hold
-- Begin the SQL transaction of steps: hold the summary rows under their fences and read the outputs
-- of earlier tries. Rows are locked in the order of their ids, as by the statement that ends
-- transactions, so that the two cannot wait for each other; for an update, because a point of no
-- return may be recorded in them with the effects. What another worker has by a newer fence is not
-- waited for. `coalesce` keeps the planner from the
-- index of open rows. The limits come first, so that they hold for the rows themselves, too.
SET LOCAL idle_in_transaction_session_timeout = %(idle_ms)s;
SET LOCAL lock_timeout = %(lock_ms)s;
WITH wanted AS (
    SELECT * FROM unnest(%(tx_id)s::text[], %(step_key)s::text[], %(fence)s::bigint[])
                  AS v (tx_id, step_key, fence)
), held AS MATERIALIZED (
    SELECT s.tx_id, s.fence, s.expires_at, s.expiring_at, s.stop_request, s.no_return_at,
           s.forwarded_at
    FROM tx_summary s
    WHERE s.tx_id = ANY(%(tx_id)s) AND coalesce(s.completed_at, 'infinity') = 'infinity'
      AND EXISTS (SELECT FROM wanted w WHERE w.tx_id = s.tx_id AND s.fence <= w.fence)
    ORDER BY s.tx_id FOR NO KEY UPDATE
)
SELECT h.tx_id, e.tx_id IS NOT NULL AS is_recorded, e.output, h.stop_request,
       h.no_return_at IS NOT NULL AS is_past_return,
       CASE WHEN h.expiring_at IS NOT NULL THEN h.expires_at END AS expired_at,
       h.stop_request IS NOT NULL OR h.expiring_at IS NOT NULL
       OR coalesce(h.expires_at <= coalesce(%(now)s, now()) AND h.no_return_at IS NULL
                   AND h.forwarded_at IS NULL, false) AS is_stopped
FROM held h
JOIN wanted v ON v.tx_id = h.tx_id AND h.fence <= v.fence
LEFT JOIN step_effect e ON e.tx_id = v.tx_id AND e.step_key = v.step_key

-- :name save
-- Record the outputs of steps, in the commit of their effects.
INSERT INTO step_effect (tx_id, step_key, fence, output, created_at)
SELECT tx_id, step_key, fence, output::json, coalesce(%(now)s, now())
FROM unnest(%(tx_id)s::text[], %(step_key)s::text[], %(fence)s::bigint[], %(output)s::text[])
     AS v (tx_id, step_key, fence, output)

-- :name is_recorded
-- Whether a step has taken effect.
SELECT EXISTS (
    SELECT 1 FROM step_effect WHERE tx_id = %(tx_id)s AND step_key = %(step_key)s
) AS is_recorded

-- :name open_item
-- Before the first item of a vector, so that it can be undone alone.
SAVEPOINT datp_item

-- :name next_item
-- Between two items of a vector: the one before stays, the next one can be undone alone.
RELEASE SAVEPOINT datp_item; SAVEPOINT datp_item

-- :name undo_item
-- Undo the current item and nothing else.
ROLLBACK TO SAVEPOINT datp_item
