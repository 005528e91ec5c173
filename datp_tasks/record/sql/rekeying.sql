-- :name data_keys
-- A page of data keys that are not sealed under the active key.
SELECT id AS row, id AS place, sealed FROM data_key
WHERE id > %(after)s AND NOT starts_with(sealed, %(active)s) ORDER BY id LIMIT %(limit)s

-- :name put_data_key
-- Keep a data key as it is sealed now, unless another process has just done that.
UPDATE data_key SET sealed = %(sealed)s WHERE id = %(row)s AND sealed = %(before)s

-- :name sealed_secrets
-- A page of secrets that are not sealed under the active key.
SELECT name AS row, name AS place, sealed FROM sealed_secret
WHERE name > %(after)s AND NOT starts_with(sealed, %(active)s) ORDER BY name LIMIT %(limit)s

-- :name put_sealed_secret
-- Keep a secret as it is sealed now, unless it has just been changed.
UPDATE sealed_secret SET sealed = %(sealed)s WHERE name = %(row)s AND sealed = %(before)s

-- :name webhook_secrets
-- A page of webhook secrets that are not sealed under the active key, plain ones of older releases
-- included. Ids as text of one length: they are the cursor.
SELECT lpad(id::text, 12, '0') AS row, owner AS place, secret AS sealed FROM webhook_secret
WHERE id > coalesce(nullif(%(after)s, ''), '0')::bigint AND NOT starts_with(secret, %(active)s)
ORDER BY id LIMIT %(limit)s

-- :name put_webhook_secret
-- Keep a webhook secret as it is sealed now, unless another process has just done that.
UPDATE webhook_secret SET secret = %(sealed)s
WHERE id = (%(row)s)::bigint AND secret = %(before)s

-- :name usage
-- How many rows each key of the ring seals; an empty key is a plain row of an older release.
SELECT what, key_id, count(*) AS total FROM (
    SELECT 'data_key' AS what, split_part(sealed, ':', 2) AS key_id FROM data_key
    UNION ALL
    SELECT 'sealed_secret', split_part(sealed, ':', 2) FROM sealed_secret
    UNION ALL
    SELECT 'webhook_secret', CASE WHEN secret LIKE 'sealed:%%' THEN split_part(secret, ':', 2)
                                  ELSE '' END FROM webhook_secret
) AS rows GROUP BY what, key_id ORDER BY what, key_id
