-- :name copy_in
-- Add rows to journals from a stream; all or none.
COPY tx_journal (tx_id, number, first_version, last_version, entries, hash, recorded_at)
FROM STDIN (ENCODING 'UTF8')

-- :name insert_rows
-- Add rows to journals; those that are there already are not returned.
INSERT INTO tx_journal (tx_id, number, first_version, last_version, entries, hash, recorded_at)
SELECT v.tx_id, v.number, v.first_version, v.last_version, v.entries, v.hash,
       coalesce(%(now)s, now())
FROM unnest(%(tx_id)s::text[], %(number)s::int[], %(first_version)s::bigint[],
            %(last_version)s::bigint[], %(entries)s::text[], %(hash)s::text[])
     AS v (tx_id, number, first_version, last_version, entries, hash)
ON CONFLICT (tx_id, number) DO NOTHING
RETURNING tx_id

-- :name heads
-- The last row of each journal. One row of the index each, however long a journal is.
SELECT v.tx_id, j.number, j.last_version, j.hash
FROM unnest(%(tx_id)s::text[]) AS v (tx_id)
CROSS JOIN LATERAL (
    SELECT number, last_version, hash FROM tx_journal r
    WHERE r.tx_id = v.tx_id ORDER BY number DESC LIMIT 1
) j

-- :name rows
-- All rows of journals, in order.
SELECT tx_id, number, first_version, last_version, entries, hash, content_hash, erased_hash
FROM tx_journal WHERE tx_id = ANY(%(tx_id)s) ORDER BY tx_id, number

-- :name rows_since
-- Rows of journals from the one that holds a version on. The index is read backwards from the last
-- row, so what was before costs nothing.
SELECT j.tx_id, j.number, j.first_version, j.last_version, j.entries, j.hash
FROM unnest(%(tx_id)s::text[], %(since)s::bigint[]) AS v (tx_id, since)
CROSS JOIN LATERAL (
    SELECT * FROM tx_journal r WHERE r.tx_id = v.tx_id AND r.number >= coalesce((
        SELECT k.number FROM tx_journal k WHERE k.tx_id = v.tx_id AND k.first_version <= v.since
        ORDER BY k.number DESC LIMIT 1), 1)
) j
ORDER BY j.tx_id, j.number

-- :name note_marks
-- Note how far Redis has counted in each shard; the marks that SQL has then. What Redis counts is
-- always more than what SQL has, unless Redis has lost writes. Reading on, it would soon be level
-- again and the loss would stay unknown; so SQL leaps ahead, once, until all is repaired.
INSERT INTO live_mark AS m (shard, value)
SELECT * FROM unnest(%(shard)s::text[], %(value)s::bigint[])
ON CONFLICT (shard) DO UPDATE SET value = CASE
    WHEN excluded.value > m.value THEN excluded.value
    WHEN excluded.value > m.value - %(leap)s::bigint / 2 THEN m.value + %(leap)s::bigint
    ELSE m.value END
RETURNING shard, value

-- :name marks
-- How far Redis had counted in each shard.
SELECT shard, value FROM live_mark

-- :name last_recorded
-- When entries were recorded last.
SELECT max(recorded_at) FROM tx_journal

-- :name seen_server
-- The process of Redis that was seen last under a name.
SELECT run_id FROM live_server WHERE name = %(name)s

-- :name note_server
-- Note the process of Redis that is seen under a name.
INSERT INTO live_server (name, run_id) VALUES (%(name)s, %(run_id)s)
ON CONFLICT (name) DO UPDATE SET run_id = excluded.run_id
