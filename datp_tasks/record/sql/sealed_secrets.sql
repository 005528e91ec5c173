-- :name put
-- Store a secret, or another value for it; xmax tells whether there was one before.
INSERT INTO sealed_secret (name, sealed, created_at, changed_at)
VALUES (%(name)s, %(sealed)s, coalesce(%(now)s, now()), coalesce(%(now)s, now()))
ON CONFLICT (name) DO UPDATE SET sealed = excluded.sealed, changed_at = excluded.changed_at
RETURNING xmax = 0 AS is_new

-- :name find
-- A secret by its name.
SELECT sealed FROM sealed_secret WHERE name = %(name)s

-- :name list_secrets
-- All secrets by name, without their values.
SELECT name, split_part(sealed, ':', 2) AS key_id, created_at, changed_at
FROM sealed_secret ORDER BY name LIMIT %(limit)s

-- :name remove
-- Forget a secret.
DELETE FROM sealed_secret WHERE name = %(name)s
