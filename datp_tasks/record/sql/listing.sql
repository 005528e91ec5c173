-- :name of_owner
-- A page of the transactions of one owner, the newest first; NULL means any.
SELECT tx_id, owner, external_id, pipeline, version, status, fence, input, metadata, output,
       progress, note, created_at, completed_at, expires_at, webhook, progress_reports,
       cancel_webhook_on_poll, event_count, notified_at, trace, submitted_by, origin, erased_at,
       no_return_at, forwarded_at
FROM tx_summary
WHERE owner = %(owner)s
  AND coalesce(status = ANY(%(statuses)s::text[]), true)
  AND coalesce(pipeline = %(pipeline)s, true)
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s::timestamptz)
  AND (%(after)s::timestamptz IS NULL
       OR (created_at, tx_id) < (%(after)s::timestamptz, %(after_id)s))
ORDER BY created_at DESC, tx_id DESC LIMIT %(limit)s

-- :name of_all
-- The same for all owners. The index begins with the owner; so the owners are taken from it one
-- after the other, and the newest of each. That is a short read for each owner, however many
-- transactions there are.
WITH RECURSIVE owners AS (
    (SELECT owner FROM tx_summary ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT s.owner FROM tx_summary s WHERE s.owner > o.owner ORDER BY s.owner LIMIT 1)
    FROM owners o WHERE o.owner IS NOT NULL
)
SELECT found.* FROM owners o CROSS JOIN LATERAL (
    SELECT tx_id, owner, external_id, pipeline, version, status, fence, input, metadata, output,
           progress, note, created_at, completed_at, expires_at, webhook, progress_reports,
           cancel_webhook_on_poll, event_count, notified_at, trace, submitted_by, origin, erased_at,
           no_return_at, forwarded_at
    FROM tx_summary
    WHERE owner = o.owner
      AND coalesce(status = ANY(%(statuses)s::text[]), true)
      AND coalesce(pipeline = %(pipeline)s, true)
      AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
      AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s::timestamptz)
      AND (%(after)s::timestamptz IS NULL
           OR (created_at, tx_id) < (%(after)s::timestamptz, %(after_id)s))
    ORDER BY created_at DESC, tx_id DESC LIMIT %(limit)s
) found
WHERE o.owner IS NOT NULL ORDER BY created_at DESC, tx_id DESC LIMIT %(limit)s

-- :name open_ones
-- A page of what has not ended, of one owner or of all, the newest first.
SELECT tx_id, owner, external_id, pipeline, version, status, fence, input, metadata, output,
       progress, note, created_at, completed_at, expires_at, webhook, progress_reports,
       cancel_webhook_on_poll, event_count, notified_at, trace, submitted_by, origin, erased_at,
       no_return_at, forwarded_at
FROM tx_summary
WHERE completed_at IS NULL
  AND status = ANY(%(statuses)s::text[])
  AND coalesce(owner = %(owner)s, true)
  AND coalesce(pipeline = %(pipeline)s, true)
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s::timestamptz)
  AND (%(after)s::timestamptz IS NULL
       OR (created_at, tx_id) < (%(after)s::timestamptz, %(after_id)s))
ORDER BY created_at DESC, tx_id DESC LIMIT %(limit)s

-- :name unsuccessful
-- A page of what has ended in another way than success, the newest first.
SELECT tx_id, owner, external_id, pipeline, version, status, fence, input, metadata, output,
       progress, note, created_at, completed_at, expires_at, webhook, progress_reports,
       cancel_webhook_on_poll, event_count, notified_at, trace, submitted_by, origin, erased_at,
       no_return_at, forwarded_at
FROM tx_summary
WHERE completed_at IS NOT NULL AND status <> 'success'
  AND status = ANY(%(statuses)s::text[])
  AND coalesce(owner = %(owner)s, true)
  AND coalesce(pipeline = %(pipeline)s, true)
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s::timestamptz)
  AND (%(after)s::timestamptz IS NULL
       OR (created_at, tx_id) < (%(after)s::timestamptz, %(after_id)s))
ORDER BY created_at DESC, tx_id DESC LIMIT %(limit)s

-- :name pipelines_of
-- Of which pipelines transactions are.
SELECT DISTINCT pipeline FROM tx_summary WHERE tx_id = ANY(%(tx_id)s) ORDER BY pipeline

-- :name sequences
-- The number of the last event of each transaction; 0 if nothing was reported yet.
SELECT tx_id, event_count + (completed_at IS NOT NULL)::integer AS sequence
FROM tx_summary WHERE tx_id = ANY(%(tx_id)s)

-- :name by_version
-- Of the newest that go on and of those that ended last: how many there are of each version of a
-- pipeline. Both are read from the end of an index, so the cost is the same at any size.
SELECT pipeline, version, count(*) FILTER (WHERE completed_at IS NULL) AS in_flight,
       count(completed_at) AS ended,
       count(*) FILTER (WHERE completed_at IS NOT NULL AND status <> 'success') AS unsuccessful
FROM (
    (SELECT pipeline, version, status, completed_at FROM tx_summary
     WHERE completed_at IS NULL ORDER BY created_at DESC LIMIT %(limit)s)
    UNION ALL
    (SELECT pipeline, version, status, completed_at FROM tx_summary
     WHERE completed_at IS NOT NULL ORDER BY completed_at DESC LIMIT %(limit)s)
) AS lately
GROUP BY pipeline, version
