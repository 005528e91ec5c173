-- :name peek
-- Whether a pass would find anything to do, without a lock. `expires_at IS NOT NULL` is the
-- condition of the index that all of this lives on: transactions without an expiry cost nothing
-- here. The smallest `due_at` is asked for instead of EXISTS, so that the index answers, however
-- many are due.
SELECT (n.created_at IS NOT NULL AND n.xact < pg_snapshot_xmin(pg_current_snapshot()))
       OR coalesce(g.xact >= pg_snapshot_xmax(pg_current_snapshot()), false) AS is_new,
       coalesce((SELECT due_at FROM tx_timeout ORDER BY due_at LIMIT 1)
                <= coalesce(%(now)s, now()), false) AS is_due,
       EXISTS (SELECT 1 FROM alert WHERE kind = %(alert)s AND cleared_at IS NULL) AS is_alarmed,
       coalesce(extract(epoch FROM coalesce(%(now)s, now()) - n.created_at), 0)::float AS lag_s
FROM (VALUES (1)) AS one
LEFT JOIN segment g
  ON g.segment_type = %(segment_type)s AND g.enumeration = %(enumeration)s
     AND g.table_name = %(table_name)s
LEFT JOIN LATERAL (
    SELECT c.xact, c.created_at FROM tx_state_change c
    WHERE c.expires_at IS NOT NULL
      AND (c.xact, c.id) > (coalesce(g.xact, '0'), coalesce(g.value, 0))
    ORDER BY c.xact, c.id LIMIT 1
) n ON true

-- :name lock_segment
-- Become the only reader of the log; no row if another pass reads it. Its own statement, so that
-- the next one sees everything that the holder before has committed.
SELECT xact::text, value, xact >= pg_snapshot_xmax(pg_current_snapshot()) AS is_ahead
FROM segment
WHERE segment_type = %(segment_type)s AND enumeration = %(enumeration)s
  AND table_name = %(table_name)s
FOR UPDATE SKIP LOCKED

-- :name first_lock
-- The same where no pass was made before: the row is made, which locks it.
INSERT INTO segment (segment_type, enumeration, table_name, xact, value, changed_at)
VALUES (%(segment_type)s, %(enumeration)s, %(table_name)s, '0', 0, coalesce(%(now)s, now()))
ON CONFLICT DO NOTHING
RETURNING xact::text, value, false AS is_ahead

-- :name renumber
-- After a dump was restored into another server: transaction ids of the log that this server has
-- not reached yet. They become that of this transaction, so that the rows can be read.
UPDATE tx_state_change SET xact = pg_current_xact_id()
WHERE id = ANY(ARRAY(
    SELECT id FROM tx_state_change
    WHERE expires_at IS NOT NULL AND xact >= pg_snapshot_xmax(pg_current_snapshot())
    LIMIT %(rows_max)s
))

-- :name read_from_the_start
-- The log is read once more: what is watched already stays so.
UPDATE segment SET xact = '0', value = 0, changed_at = coalesce(%(now)s, now())
WHERE segment_type = %(segment_type)s AND enumeration = %(enumeration)s
  AND table_name = %(table_name)s

-- :name read_window
-- One pass over the new rows of the log: watch what goes on, forget what is final, advance the
-- segment. A final status is never followed by another one, so "one of its rows is final" is its
-- latest state, in whatever order the rows come. What is past its point of no return, or forwarded,
-- is not watched either: its last row says so. Ids are handed on as arrays: for a join the planner,
-- which cannot know how few they are, would read all of `tx_timeout`.
WITH win AS MATERIALIZED (
    SELECT xact, id, tx_id, status, expires_at, detail FROM tx_state_change
    WHERE expires_at IS NOT NULL
      AND (xact, id) > (%(xact)s::xid8, %(value)s)
      AND xact < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY xact, id LIMIT %(rows_max)s
), latest AS MATERIALIZED (
    SELECT tx_id, min(expires_at) AS expires_at,
           bool_or(status = ANY(%(final)s))
           OR coalesce((array_agg(detail ORDER BY xact DESC, id DESC))[1]
                       IN ('RECEIVED_FULFIL', 'RESERVED_FORWARDED'), false) AS ended
    FROM win GROUP BY tx_id
), added AS (
    INSERT INTO tx_timeout (tx_id, expires_at, due_at, created_at)
    SELECT tx_id, expires_at, expires_at, coalesce(%(now)s, now()) FROM latest WHERE NOT ended
    ON CONFLICT (tx_id) DO NOTHING
    RETURNING 1
), removed AS (
    DELETE FROM tx_timeout WHERE tx_id = ANY(ARRAY(SELECT tx_id FROM latest WHERE ended))
    RETURNING 1
), advanced AS (
    UPDATE segment SET xact = e.xact, value = e.id, changed_at = coalesce(%(now)s, now())
    FROM (SELECT xact, id FROM win ORDER BY xact DESC, id DESC LIMIT 1) e
    WHERE segment_type = %(segment_type)s AND enumeration = %(enumeration)s
      AND table_name = %(table_name)s
)
SELECT (SELECT count(*) FROM win) AS rows, (SELECT count(*) FROM added) AS added,
       (SELECT count(*) FROM removed) AS removed

-- :name take_due
-- Take transactions whose time is over; others do not get them for a while.
WITH due AS MATERIALIZED (
    SELECT tx_id FROM tx_timeout WHERE due_at <= coalesce(%(now)s, now())
    ORDER BY due_at LIMIT %(batch_max)s FOR UPDATE SKIP LOCKED
)
UPDATE tx_timeout
SET due_at = coalesce(%(now)s, now()) + make_interval(secs => %(again_s)s)
WHERE tx_id = ANY(ARRAY(SELECT tx_id FROM due))
RETURNING tx_id, expires_at, asked,
          extract(epoch FROM coalesce(%(now)s, now()) - asked_at)::float AS asked_ago_s

-- :name note_asked
-- Remember what workers had done when they were first asked to stop. Of all statements that touch
-- many rows, only the reader of the window ever waits for a row: so no two of them can wait for
-- each other.
WITH free AS MATERIALIZED (
    SELECT tx_id FROM tx_timeout WHERE tx_id = ANY(%(tx_id)s) AND asked IS NULL
    FOR UPDATE SKIP LOCKED
)
UPDATE tx_timeout t SET asked = v.asked, asked_at = coalesce(%(now)s, now())
FROM free JOIN unnest(%(tx_id)s::text[], %(asked)s::text[]) AS v (tx_id, asked)
  ON v.tx_id = free.tx_id
WHERE t.tx_id = free.tx_id

-- :name standing
-- Where the handler stands, for people.
SELECT coalesce(max(value), 0) AS value, coalesce(max(xact), '0')::text AS xact,
       max(changed_at) AS changed_at, (SELECT count(*) FROM tx_timeout) AS watched,
       (SELECT count(*) FROM tx_timeout WHERE due_at <= coalesce(%(now)s, now())) AS due
FROM segment
WHERE segment_type = %(segment_type)s AND enumeration = %(enumeration)s
  AND table_name = %(table_name)s

-- :name next_due
-- The transactions that the handler looks at next.
SELECT t.tx_id, s.pipeline, s.owner, t.expires_at, s.expiring_at, c.status, c.detail,
       extract(epoch FROM t.expires_at - coalesce(%(now)s, now()))::float AS left_s
FROM tx_timeout t JOIN tx_summary s ON s.tx_id = t.tx_id
CROSS JOIN LATERAL (
    SELECT status, detail FROM tx_state_change WHERE tx_id = t.tx_id ORDER BY id DESC LIMIT 1
) c
ORDER BY t.due_at, t.tx_id LIMIT %(rows_max)s

-- :name look_again
-- Look at transactions again sooner than others.
UPDATE tx_timeout
SET due_at = greatest(expires_at, coalesce(%(now)s, now()) + make_interval(secs => %(again_s)s))
WHERE tx_id = ANY(ARRAY(
    SELECT tx_id FROM tx_timeout WHERE tx_id = ANY(%(tx_id)s) FOR UPDATE SKIP LOCKED))

-- :name forget
-- Watch transactions no longer that turned out to be final.
DELETE FROM tx_timeout WHERE tx_id = ANY(ARRAY(
    SELECT tx_id FROM tx_timeout WHERE tx_id = ANY(%(tx_id)s) FOR UPDATE SKIP LOCKED))

-- :name forget_past_return
-- Watch transactions no longer that passed their point of no return. One that is forwarded stays:
-- it is the log that says when it may expire again.
DELETE FROM tx_timeout WHERE tx_id = ANY(ARRAY(
    SELECT t.tx_id FROM tx_timeout t JOIN tx_summary s ON s.tx_id = t.tx_id
    WHERE t.tx_id = ANY(%(tx_id)s) AND s.no_return_at IS NOT NULL
    FOR UPDATE OF t SKIP LOCKED))
