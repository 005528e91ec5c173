-- :name raise_alert
-- Open an alert; no row if one of this kind and subject is open.
INSERT INTO alert (kind, subject, summary, created_at)
VALUES (%(kind)s, %(subject)s, %(summary)s, coalesce(%(now)s, now()))
ON CONFLICT (kind, subject) WHERE cleared_at IS NULL DO NOTHING
RETURNING id

-- :name clear_alert
-- Close the open alert of a kind and subject; no row if there is none.
UPDATE alert SET cleared_at = coalesce(%(now)s, now())
WHERE kind = %(kind)s AND subject = %(subject)s AND cleared_at IS NULL
RETURNING id

-- :name open_one
-- The alert of an id, if it is open; no other process closes it until the commit.
SELECT kind, subject FROM alert WHERE id = %(id)s AND cleared_at IS NULL FOR UPDATE

-- :name open_alerts
-- Alerts that are not cleared, of one kind or of all, the oldest first.
SELECT id, kind, subject, summary, created_at FROM alert
WHERE cleared_at IS NULL AND coalesce(kind = %(kind)s, true)
ORDER BY created_at, id LIMIT %(limit)s

-- :name recent
-- Alerts that were raised or cleared lately, the oldest of the newest first.
SELECT * FROM (
    SELECT id, kind, subject, summary, created_at, cleared_at FROM alert
    WHERE greatest(created_at, cleared_at)
        > coalesce(%(now)s, now()) - make_interval(secs => %(since_s)s)
    ORDER BY id DESC LIMIT %(limit)s
) AS newest
ORDER BY id
