-- :name note_gap
-- Note where the files begin to lack something, unless that is noted already. From the oldest row
-- on that has one of these entries: some may have been recorded before.
INSERT INTO job_mark (name, moment, tx_id)
SELECT %(name)s, coalesce(min(j.recorded_at), %(now)s, now()), ''
FROM unnest(%(tx_id)s::text[], %(version)s::bigint[]) AS v (tx_id, version)
JOIN tx_journal j ON j.tx_id = v.tx_id AND j.last_version >= v.version
ON CONFLICT (name) DO NOTHING

-- :name find_gap
-- Where the files of a folder lack something; no row if they lack nothing.
SELECT moment, tx_id, number FROM job_mark WHERE name = %(name)s

-- :name missing_rows
-- The next rows that the files lack, in the order in which SQL recorded them.
SELECT recorded_at, tx_id, number, entries FROM tx_journal
WHERE recorded_at >= %(moment)s
  AND (recorded_at, tx_id, number) > (%(moment)s, %(tx_id)s, %(number)s)
ORDER BY recorded_at, tx_id, number LIMIT %(limit)s

-- :name move_gap
-- The files have everything up to this row now.
UPDATE job_mark SET moment = %(moment)s, tx_id = %(tx_id)s, number = %(number)s
WHERE name = %(name)s

-- :name recorded_at
-- When the newest row of a transaction was recorded.
SELECT recorded_at FROM tx_journal WHERE tx_id = %(tx_id)s ORDER BY number DESC LIMIT 1

-- :name forget_gap
-- The files have everything.
DELETE FROM job_mark WHERE name = %(name)s
