-- :part ended_long_ago
-- A page of transactions that ended long ago, and those of them that no rule is about.
WITH page AS (
    SELECT tx_id AS key, completed_at AS moment FROM tx_summary
    WHERE completed_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND (completed_at, tx_id) > (%(moment)s::timestamptz, %(key)s)
    ORDER BY completed_at, tx_id LIMIT %(limit)s
), free AS (
    SELECT page.key FROM page JOIN tx_summary t ON t.tx_id = page.key
    WHERE NOT EXISTS (SELECT 1 FROM retention_rule r
                      WHERE (r.kind, r.name) IN (('owner', t.owner), ('pipeline', t.pipeline)))
),

-- :part dropped
-- How many rows of the page were looked at and dropped, and where the next page begins.
SELECT (SELECT count(*) FROM page) AS looked, (SELECT count(*) FROM gone) AS dropped,
       last.moment, last.key
FROM page last ORDER BY last.moment DESC, last.key DESC LIMIT 1

-- :name states
-- Archived states of transactions that ended long ago, by the time when they were archived.
WITH page AS (
    SELECT tx_id AS key, archived_at AS moment FROM tx_state
    WHERE archived_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND (archived_at, tx_id) > (%(moment)s::timestamptz, %(key)s)
    ORDER BY archived_at, tx_id LIMIT %(limit)s
), gone AS (
    DELETE FROM tx_state s USING page, tx_summary t
    WHERE s.tx_id = page.key AND t.tx_id = page.key
      AND t.completed_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND NOT EXISTS (SELECT 1 FROM retention_rule r
                      WHERE (r.kind, r.name) IN (('owner', t.owner), ('pipeline', t.pipeline)))
    RETURNING 1
)
-- :use dropped

-- :name journals
-- Journals of transactions that ended long ago, whole, by the time of their rows.
WITH page AS (
    SELECT tx_id AS key, recorded_at AS moment FROM tx_journal
    WHERE recorded_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND (recorded_at, tx_id) > (%(moment)s::timestamptz, %(key)s)
    ORDER BY recorded_at, tx_id LIMIT %(limit)s
), old AS (
    SELECT DISTINCT t.tx_id FROM page JOIN tx_summary t ON t.tx_id = page.key
    WHERE t.completed_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND NOT EXISTS (SELECT 1 FROM retention_rule r
                      WHERE (r.kind, r.name) IN (('owner', t.owner), ('pipeline', t.pipeline)))
), begun AS (
    DELETE FROM step_begun b USING old WHERE b.tx_id = old.tx_id
), gone AS (
    DELETE FROM tx_journal j USING old WHERE j.tx_id = old.tx_id RETURNING 1
)
-- :use dropped

-- :name state_changes
-- The history of transactions that ended long ago.
-- :use ended_long_ago
gone AS (
    DELETE FROM tx_state_change c USING free WHERE c.tx_id = free.key RETURNING 1
)
-- :use dropped

-- :name effects
-- Outputs and begun steps of transactions that ended long ago.
-- :use ended_long_ago
begun AS (
    DELETE FROM step_begun b USING free WHERE b.tx_id = free.key
), gone AS (
    DELETE FROM step_effect e USING free WHERE e.tx_id = free.key RETURNING 1
)
-- :use dropped

-- :name events
-- Events of transactions that ended long ago.
-- :use ended_long_ago
gone AS (
    DELETE FROM tx_event e USING free WHERE e.tx_id = free.key RETURNING 1
)
-- :use dropped

-- :name webhooks
-- Deliveries that ended long ago, with their attempts, if their transaction ended long ago, too.
WITH page AS (
    SELECT id AS key, created_at AS moment FROM webhook_delivery
    WHERE created_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND (created_at, id) > (%(moment)s::timestamptz, %(key)s)
    ORDER BY created_at, id LIMIT %(limit)s
), gone AS (
    DELETE FROM webhook_delivery d USING page
    WHERE d.id = page.key
      AND d.finished_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND NOT EXISTS (
        SELECT 1 FROM tx_summary t WHERE t.tx_id = d.tx_id
          AND (coalesce(t.completed_at, 'infinity')
                   >= coalesce(%(now)s, now()) - make_interval(days => %(days)s)
               OR EXISTS (SELECT 1 FROM retention_rule r
                          WHERE (r.kind, r.name)
                                IN (('owner', t.owner), ('pipeline', t.pipeline)))))
    RETURNING d.id
), attempts AS (
    DELETE FROM webhook_attempt a USING gone WHERE a.delivery_id = gone.id
)
-- :use dropped

-- :name batches
-- Batches that ended long ago, with their attempts and sightings, unless a transaction waits for
-- them: of an owner that has a rule, or of all that have none.
WITH page AS (
    SELECT service_id || ' ' || batch_id AS key, final_at AS moment FROM ledger_batch
    WHERE final_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND (final_at, service_id || ' ' || batch_id) > (%(moment)s::timestamptz, %(key)s)
    ORDER BY final_at, service_id || ' ' || batch_id LIMIT %(limit)s
), gone AS (
    DELETE FROM ledger_batch b USING page
    WHERE b.service_id || ' ' || b.batch_id = page.key AND b.final_at = page.moment
      AND NOT EXISTS (SELECT 1 FROM tx_summary t
                      WHERE t.tx_id = b.tx_id AND t.completed_at IS NULL)
      AND (%(owner)s::text IS NULL OR b.owner = %(owner)s)
      AND (%(owner)s::text IS NOT NULL OR NOT EXISTS (
              SELECT 1 FROM retention_rule r WHERE r.kind = 'owner' AND r.name = b.owner))
    RETURNING b.service_id, b.batch_id
), attempts AS (
    DELETE FROM batch_attempt a USING gone
    WHERE a.service_id = gone.service_id AND a.batch_id = gone.batch_id
), log AS (
    DELETE FROM batch_status l USING gone
    WHERE l.service_id = gone.service_id AND l.batch_id = gone.batch_id
)
-- :use dropped

-- :name ended
-- A page of transactions that ended long ago.
SELECT completed_at, tx_id FROM tx_summary t
WHERE completed_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
  AND (completed_at, tx_id) > (%(moment)s::timestamptz, %(key)s)
  AND NOT EXISTS (SELECT 1 FROM retention_rule r
                      WHERE (r.kind, r.name) IN (('owner', t.owner), ('pipeline', t.pipeline)))
ORDER BY completed_at, tx_id LIMIT %(limit)s

-- :name ruled
-- A page of what ended long ago; what the rule is about, if no rule about it says longer, is due.
SELECT completed_at, tx_id,
       CASE %(kind)s WHEN 'owner' THEN owner ELSE pipeline END = %(name)s
       AND NOT EXISTS (SELECT 1 FROM retention_rule r
                       WHERE (r.kind, r.name) IN (('owner', t.owner), ('pipeline', t.pipeline))
                         AND r.days > %(days)s) AS is_due
FROM tx_summary t
WHERE completed_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
  AND (completed_at, tx_id) > (%(moment)s::timestamptz, %(key)s)
ORDER BY completed_at, tx_id LIMIT %(limit)s

-- :name alerts
-- Alerts that were cleared long ago.
WITH page AS (
    SELECT id::text AS key, cleared_at AS moment FROM alert
    WHERE cleared_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND (cleared_at, id::text) > (%(moment)s::timestamptz, %(key)s)
    ORDER BY cleared_at, id::text LIMIT %(limit)s
), gone AS (
    DELETE FROM alert a USING page WHERE a.id::text = page.key RETURNING 1
)
-- :use dropped

-- :name summaries
-- Transactions that ended long ago, with everything that belongs to them. One whose webhook is
-- still to be delivered stays: its receiver will ask for the transaction.
WITH old AS MATERIALIZED (
    SELECT tx_id FROM tx_summary t
    WHERE tx_id = ANY(%(tx_id)s)
      AND completed_at < coalesce(%(now)s, now()) - make_interval(days => %(days)s)
      AND NOT EXISTS (
        SELECT 1 FROM webhook_delivery d WHERE d.tx_id = t.tx_id AND d.state = 'pending')
    ORDER BY tx_id FOR UPDATE
), states AS (DELETE FROM tx_state r USING old WHERE r.tx_id = old.tx_id
), journals AS (DELETE FROM tx_journal r USING old WHERE r.tx_id = old.tx_id
), changes AS (DELETE FROM tx_state_change r USING old WHERE r.tx_id = old.tx_id
), effects AS (DELETE FROM step_effect r USING old WHERE r.tx_id = old.tx_id
), begun AS (DELETE FROM step_begun r USING old WHERE r.tx_id = old.tx_id
), events AS (DELETE FROM tx_event r USING old WHERE r.tx_id = old.tx_id
), attributes AS (DELETE FROM tx_attribute r USING old WHERE r.tx_id = old.tx_id
), signals AS (DELETE FROM tx_signal r USING old WHERE r.tx_id = old.tx_id
), timeouts AS (DELETE FROM tx_timeout r USING old WHERE r.tx_id = old.tx_id
), deliveries AS (DELETE FROM webhook_delivery r USING old WHERE r.tx_id = old.tx_id RETURNING r.id
), attempts AS (DELETE FROM webhook_attempt r USING deliveries d WHERE r.delivery_id = d.id
), alerts AS (
    DELETE FROM alert r USING old WHERE r.subject = old.tx_id AND r.cleared_at IS NOT NULL)
DELETE FROM tx_summary r USING old WHERE r.tx_id = old.tx_id

-- :name mark
-- Where the last run of a kind ended; the row is locked until the commit.
SELECT moment, tx_id FROM job_mark WHERE name = %(name)s FOR UPDATE

-- :name set_mark
-- Where the next run of a kind goes on.
INSERT INTO job_mark (name, moment, tx_id) VALUES (%(name)s, %(moment)s, %(tx_id)s)
ON CONFLICT (name) DO UPDATE SET moment = excluded.moment, tx_id = excluded.tx_id
