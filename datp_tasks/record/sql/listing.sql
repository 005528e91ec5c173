-- :part owners
-- One owner, or all. The indexes begin with the owner, so the owners are taken from them one after
-- the other: a short read for each owner, however many transactions there are.
WITH RECURSIVE owners AS (
    SELECT coalesce(%(owner)s, (SELECT owner FROM tx_summary ORDER BY owner LIMIT 1)) AS owner
    UNION ALL
    SELECT (SELECT s.owner FROM tx_summary s WHERE s.owner > o.owner ORDER BY s.owner LIMIT 1)
    FROM owners o WHERE o.owner IS NOT NULL AND %(owner)s::text IS NULL
)

-- :name newest
-- Ids of an owner's transactions, the newest first; without an owner, the newest of each.
-- :use owners
SELECT found.* FROM owners o CROSS JOIN LATERAL (
    SELECT created_at AS place, tx_id FROM tx_summary
    WHERE owner = o.owner
      AND created_at >= %(since)s::timestamptz AND created_at < %(until)s::timestamptz
      AND (created_at, tx_id) < (%(after)s::timestamptz, %(after_id)s)
    ORDER BY created_at DESC, tx_id DESC LIMIT %(limit)s
) found
WHERE o.owner IS NOT NULL ORDER BY place DESC, tx_id DESC LIMIT %(limit)s

-- :name oldest
-- The same, the oldest first.
-- :use owners
SELECT found.* FROM owners o CROSS JOIN LATERAL (
    SELECT created_at AS place, tx_id FROM tx_summary
    WHERE owner = o.owner
      AND created_at >= %(since)s::timestamptz AND created_at < %(until)s::timestamptz
      AND (created_at, tx_id) > (%(after)s::timestamptz, %(after_id)s)
    ORDER BY created_at, tx_id LIMIT %(limit)s
) found
WHERE o.owner IS NOT NULL ORDER BY place, tx_id LIMIT %(limit)s

-- :name open_newest
-- Ids of what has not ended, of one owner or of all, the newest first.
SELECT created_at AS place, tx_id FROM tx_summary
WHERE completed_at IS NULL
  AND status = ANY(%(statuses)s::text[]) AND coalesce(owner = %(owner)s, true)
  AND created_at >= %(since)s::timestamptz AND created_at < %(until)s::timestamptz
  AND (created_at, tx_id) < (%(after)s::timestamptz, %(after_id)s)
ORDER BY created_at DESC, tx_id DESC LIMIT %(limit)s

-- :name unsuccessful_newest
-- Ids of what has ended in another way than success, the newest first.
SELECT created_at AS place, tx_id FROM tx_summary
WHERE completed_at IS NOT NULL AND status <> 'success'
  AND status = ANY(%(statuses)s::text[]) AND coalesce(owner = %(owner)s, true)
  AND created_at >= %(since)s::timestamptz AND created_at < %(until)s::timestamptz
  AND (created_at, tx_id) < (%(after)s::timestamptz, %(after_id)s)
ORDER BY created_at DESC, tx_id DESC LIMIT %(limit)s

-- :name attribute_up
-- Ids of what has a search attribute, by its value.
-- :use owners
SELECT found.* FROM owners o CROSS JOIN LATERAL (
    SELECT value AS place, tx_id FROM tx_attribute
    WHERE owner = o.owner AND name = %(name)s AND value >= %(low)s AND value < %(high)s
      AND (value, tx_id) > (%(after)s, %(after_id)s)
    ORDER BY value, tx_id LIMIT %(limit)s
) found
WHERE o.owner IS NOT NULL ORDER BY place, tx_id LIMIT %(limit)s

-- :name attribute_down
-- The same, the largest first.
-- :use owners
SELECT found.* FROM owners o CROSS JOIN LATERAL (
    SELECT value AS place, tx_id FROM tx_attribute
    WHERE owner = o.owner AND name = %(name)s AND value >= %(low)s AND value < %(high)s
      AND (value, tx_id) < (%(after)s, %(after_id)s)
    ORDER BY value DESC, tx_id DESC LIMIT %(limit)s
) found
WHERE o.owner IS NOT NULL ORDER BY place DESC, tx_id DESC LIMIT %(limit)s

-- :name external_ids
-- The transactions that have an external id: one for each owner at most.
-- :use owners
SELECT s.tx_id FROM owners o
JOIN tx_summary s ON s.owner = o.owner AND s.external_id = %(external_id)s
WHERE o.owner IS NOT NULL LIMIT %(limit)s

-- :name open_ids
-- Ids of transactions that go on, up to a number that is still few.
SELECT tx_id FROM tx_summary
WHERE completed_at IS NULL AND (%(owner)s::text IS NULL OR owner = %(owner)s) LIMIT %(limit)s

-- :name attribute_ids
-- Ids of what has a search attribute within one of the ranges, up to a number that is still few.
-- :use owners
SELECT a.tx_id FROM owners o
CROSS JOIN unnest(%(low)s::text[], %(high)s::text[]) AS r (low, high)
JOIN tx_attribute a ON a.owner = o.owner AND a.name = %(name)s
     AND a.value >= r.low AND a.value < r.high
WHERE o.owner IS NOT NULL LIMIT %(limit)s

-- :name matching
-- Which of these transactions fit; NULL means any. Each numbered condition is a list of ranges, of
-- which the attribute must be in one.
SELECT s.created_at, s.tx_id FROM tx_summary s
WHERE s.tx_id = ANY(%(tx_id)s)
  AND (%(external_id)s::text IS NULL OR s.external_id = %(external_id)s)
  AND coalesce(s.status = ANY(%(statuses)s::text[]), true)
  AND coalesce(s.pipeline = ANY(%(pipelines)s::text[]), true)
  AND (%(since)s::timestamptz IS NULL OR s.created_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR s.created_at < %(until)s::timestamptz)
  AND (%(completed_since)s::timestamptz IS NULL
       OR s.completed_at >= %(completed_since)s::timestamptz)
  AND (%(completed_until)s::timestamptz IS NULL
       OR s.completed_at < %(completed_until)s::timestamptz)
  AND (%(text)s::text IS NULL OR strpos(lower(s.tx_id), lower(%(text)s)) > 0
       OR strpos(lower(s.external_id), lower(%(text)s)) > 0)
  AND NOT EXISTS (
      SELECT 1 FROM unnest(%(keys)s::text[], %(values)s::text[]) AS m (key, value)
      WHERE (s.metadata ->> m.key) IS DISTINCT FROM m.value)
  AND NOT EXISTS (
      SELECT 1 FROM unnest(%(number)s::integer[], %(name)s::text[]) AS c (number, name)
      WHERE NOT EXISTS (
          SELECT 1 FROM tx_attribute a
          JOIN unnest(%(number)s::integer[], %(low)s::text[], %(high)s::text[])
               AS r (number, low, high) ON r.number = c.number
          WHERE a.tx_id = s.tx_id AND a.name = c.name
            AND a.value >= r.low AND a.value < r.high))

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
