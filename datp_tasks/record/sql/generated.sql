-- Transfers that no client asked for, to try the timeout handler on a large log.

-- :name has_others
-- Whether there are transactions that were not generated.
SELECT EXISTS (SELECT 1 FROM tx_summary WHERE owner <> %(owner)s)

-- :name generate
-- A batch of transfers with their history: some overdue, some that have ended, some under way.
WITH drawn AS MATERIALIZED (
    SELECT 't' || lpad((n %% %(shards)s::bigint)::text, 2, '0') || '-'
               || md5(%(seed)s::text || ':' || n) AS tx_id,
           n <= %(expired)s::bigint AS is_expired, random() < 0.7 AS is_final,
           coalesce(%(now)s, now()) - make_interval(secs => 3600 * (%(hours_min)s::float
               + random() * (%(hours_max)s::float - %(hours_min)s::float)) + 60) AS created_at,
           make_interval(secs => 3600 * (%(hours_min)s::float
               + random() * (%(hours_max)s::float - %(hours_min)s::float)) + 60) AS ahead,
           json_build_object(
               'amount', trim(to_char(
                   %(amount_min)s::float
                   + random() * (%(amount_max)s::float - %(amount_min)s::float),
                   'FM9999999990.00')),
               'currency', (%(currencies)s::text[])[
                   1 + floor(random() * cardinality(%(currencies)s::text[]))::int]) AS input
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
), rows AS MATERIALIZED (
    SELECT tx_id, input, created_at, NOT is_expired AND is_final AS is_final,
           CASE WHEN is_expired
                THEN greatest(created_at, coalesce(%(now)s, now()) - interval '30 seconds')
                ELSE coalesce(%(now)s, now()) + ahead END AS expires_at
    FROM drawn
), added AS (
    INSERT INTO tx_summary (tx_id, owner, fingerprint, pipeline, version, status, input, created_at,
                            completed_at, expires_at)
    SELECT tx_id, %(owner)s, md5(tx_id), %(pipeline)s, %(version)s,
           CASE WHEN is_final THEN 'success' ELSE 'queued' END, input, created_at,
           CASE WHEN is_final THEN created_at + interval '3 seconds' END, expires_at
    FROM rows
), logged AS (
    INSERT INTO tx_state_change (tx_id, status, detail, created_at, expires_at)
    SELECT tx_id, step.status, step.detail, created_at + make_interval(secs => step.place),
           expires_at
    FROM rows CROSS JOIN (VALUES
        (0, 'queued', NULL, false), (1, 'running', 'RESERVED', true),
        (2, 'running', 'RECEIVED_FULFIL', true), (3, 'success', NULL, true))
        AS step (place, status, detail, of_final)
    WHERE rows.is_final OR NOT step.of_final
    ORDER BY step.place
)
SELECT count(*) FROM rows
