-- :name all
-- Every rule, those of owners first.
SELECT kind, name, days FROM retention_rule ORDER BY kind, name

-- :name put
-- Make a rule, or give it other days.
INSERT INTO retention_rule (kind, name, days, changed_at)
VALUES (%(kind)s, %(name)s, %(days)s, coalesce(%(now)s, now()))
ON CONFLICT (kind, name) DO UPDATE SET days = excluded.days, changed_at = excluded.changed_at

-- :name remove
-- Take a rule away; no row if there is none.
DELETE FROM retention_rule WHERE kind = %(kind)s AND name = %(name)s RETURNING name

-- :name forget_marks
-- What was passed over under other rules must be looked at again.
DELETE FROM job_mark WHERE name LIKE 'retention %%'
