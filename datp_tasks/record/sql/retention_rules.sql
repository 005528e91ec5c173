-- :name all
-- Every rule, those of owners first.
SELECT kind, name, days FROM retention_rule ORDER BY kind, name

-- :name lock
-- One change of a rule at a time, also of one that is not there yet.
SELECT pg_advisory_xact_lock(hashtextextended(%(subject)s, 0))

-- :name one
-- The days of a rule.
SELECT days FROM retention_rule WHERE kind = %(kind)s AND name = %(name)s

-- :name put
-- Make a rule, or give it other days.
INSERT INTO retention_rule (kind, name, days, changed_at)
VALUES (%(kind)s, %(name)s, %(days)s, coalesce(%(now)s, now()))
ON CONFLICT (kind, name) DO UPDATE SET days = excluded.days, changed_at = excluded.changed_at

-- :name remove
-- Take a rule away.
DELETE FROM retention_rule WHERE kind = %(kind)s AND name = %(name)s

-- :name forget_marks
-- What was passed over under other rules must be looked at again.
DELETE FROM job_mark WHERE name LIKE 'retention %%'
