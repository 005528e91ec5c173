-- The feed is two logs in one order: (transaction id of the writer, log, row). A writer's rows
-- become visible together, and none can appear below `pg_snapshot_xmin`, so a page ends there.

-- :part event
-- A row of one of the logs as clients are told of it.
    SELECT f.part, f.id, f.xact, coalesce(f.told, t.owner) AS owner, f.tx_id, f.created_at,
           CASE WHEN f.kind = 'payee' THEN 'payee.completed'
                WHEN f.part = 1 THEN 'transaction.progress'
                WHEN f.status = 'in-doubt' THEN 'transaction.in-doubt'
                WHEN f.status <> 'queued' THEN 'transaction.completed'
                WHEN f.note IS NULL THEN 'transaction.accepted'
                ELSE 'transaction.resumed' END AS type,
           CASE WHEN f.kind = 'payee' THEN nullif(f.payload::text, 'null')
           WHEN t.tx_id IS NOT NULL THEN json_build_object(
               'txId', f.tx_id, 'externalId', t.external_id, 'pipeline', t.pipeline,
               'status', CASE WHEN f.part = 1 THEN 'running' ELSE f.status END,
               'sequence', CASE WHEN f.part = 1 THEN f.number
                                WHEN f.status NOT IN ('queued', 'in-doubt')
                                THEN t.event_count + 1 END,
               'output', CASE WHEN f.status NOT IN ('queued', 'in-doubt') THEN t.output END,
               'progress', CASE WHEN f.part = 1 THEN f.payload
                                WHEN f.status NOT IN ('queued', 'in-doubt') THEN t.progress END,
               'note', f.note, 'metadata', t.metadata, 'createdAt', t.created_at,
               'completedAt', CASE WHEN f.status NOT IN ('queued', 'in-doubt')
                                   THEN t.completed_at END)::text END AS data

-- :name pages
-- The next events of each owner after its own place. Each log is read by its index of (owner, xact,
-- id), so a page costs the same however long the history is.
SELECT v.owner AS asked, s.xmin, s.at, v.xact::xid8 > s.xmax AS is_ahead, e.part, e.id,
       e.xact::text AS xact, e.type, e.owner, e.tx_id, e.created_at, e.data
FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xmin,
             pg_snapshot_xmax(pg_current_snapshot()) AS xmax, now() AS at) AS s
CROSS JOIN unnest(%(owner)s::text[], %(xact)s::text[], %(change)s::bigint[], %(report)s::bigint[])
     AS v (owner, xact, change, report)
LEFT JOIN LATERAL (
-- :use event
    FROM (
        (SELECT 0 AS part, c.id, c.xact, c.tx_id, c.created_at, c.status, c.note,
                NULL::integer AS number, NULL::json AS payload, NULL AS kind, NULL AS told
         FROM tx_state_change c
         WHERE c.owner = v.owner AND (c.xact, c.id) > (v.xact::xid8, v.change)
           AND c.xact < pg_snapshot_xmin(pg_current_snapshot())
         ORDER BY c.xact, c.id LIMIT %(limit)s)
        UNION ALL
        (SELECT 1, r.id, r.xact, r.tx_id, r.created_at, NULL, NULL, r.sequence, r.payload, r.kind,
                CASE WHEN r.kind = 'payee' THEN r.owner END
         FROM tx_event r
         WHERE r.owner = v.owner AND (r.xact, r.id) > (v.xact::xid8, v.report)
           AND r.xact < pg_snapshot_xmin(pg_current_snapshot())
         ORDER BY r.xact, r.id LIMIT %(limit)s)
        ORDER BY xact, part, id LIMIT %(limit)s
    ) AS f
    LEFT JOIN tx_summary t ON t.tx_id = f.tx_id
) AS e ON true
ORDER BY v.owner, e.xact, e.part, e.id

-- :name page_of_all
-- The same for all owners together, by the indexes of (xact, id).
SELECT '' AS asked, s.xmin, s.at, %(xact)s::xid8 > s.xmax AS is_ahead, e.part, e.id,
       e.xact::text AS xact, e.type, e.owner, e.tx_id, e.created_at, e.data
FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xmin,
             pg_snapshot_xmax(pg_current_snapshot()) AS xmax, now() AS at) AS s
LEFT JOIN LATERAL (
-- :use event
    FROM (
        (SELECT 0 AS part, c.id, c.xact, c.tx_id, c.created_at, c.status, c.note,
                NULL::integer AS number, NULL::json AS payload, NULL AS kind, NULL AS told
         FROM tx_state_change c
         WHERE c.owner IS NOT NULL AND (c.xact, c.id) > (%(xact)s::xid8, %(change)s)
           AND c.xact < pg_snapshot_xmin(pg_current_snapshot())
         ORDER BY c.xact, c.id LIMIT %(limit)s)
        UNION ALL
        (SELECT 1, r.id, r.xact, r.tx_id, r.created_at, NULL, NULL, r.sequence, r.payload, r.kind,
                CASE WHEN r.kind = 'payee' THEN r.owner END
         FROM tx_event r
         WHERE r.owner IS NOT NULL AND (r.xact, r.id) > (%(xact)s::xid8, %(report)s)
           AND r.xact < pg_snapshot_xmin(pg_current_snapshot())
         ORDER BY r.xact, r.id LIMIT %(limit)s)
        ORDER BY xact, part, id LIMIT %(limit)s
    ) AS f
    LEFT JOIN tx_summary t ON t.tx_id = f.tx_id
) AS e ON true
ORDER BY e.xact, e.part, e.id

-- :name first_from
-- The first change of an owner whose writer has this transaction id, or a later one.
SELECT xact::text AS xact, created_at FROM tx_state_change
WHERE owner = %(owner)s AND xact >= %(xact)s::xid8 ORDER BY xact, id LIMIT 1

-- :name renumber_changes
-- After a dump was restored into another server: rows whose transaction id this server has not
-- reached yet would not be told. They get that of this transaction.
UPDATE tx_state_change SET xact = pg_current_xact_id()
WHERE id = ANY(ARRAY(
    SELECT id FROM tx_state_change
    WHERE owner IS NOT NULL AND xact >= pg_snapshot_xmax(pg_current_snapshot())
    ORDER BY xact, id LIMIT %(limit)s
))

-- :name renumber_reports
-- The same for progress reports.
UPDATE tx_event r SET xact = pg_current_xact_id()
FROM (SELECT tx_id, sequence FROM tx_event
      WHERE owner IS NOT NULL AND xact >= pg_snapshot_xmax(pg_current_snapshot())
      ORDER BY xact, id LIMIT %(limit)s) AS ahead
WHERE r.tx_id = ahead.tx_id AND r.sequence = ahead.sequence

-- :name head
-- Everything that is committed by now lies below this transaction id, or is still to come.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xmin,
       pg_snapshot_xmax(pg_current_snapshot())::text AS xmax, now() AS at

-- :name rule_days
-- The shortest retention rule by which events that an owner reads are dropped; NULL is all owners.
SELECT min(days) AS days FROM retention_rule
WHERE kind = 'pipeline' OR %(owner)s::text IS NULL OR name = %(owner)s

-- :name key
-- What places are hidden with, and what was handed out before they were.
SELECT key, old_xact::text AS old_xact, old_until, old_change, old_report,
       now() AS now
FROM feed_key
