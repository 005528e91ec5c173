-- :name current
-- The newest data key of an owner that is not too old for new transactions.
SELECT id, sealed FROM data_key
WHERE owner = %(owner)s
  AND created_at > coalesce(%(now)s, now()) - make_interval(days => %(days)s)
ORDER BY created_at DESC, id DESC LIMIT 1

-- :name add
-- A new data key. Two processes that make one at once both keep theirs.
INSERT INTO data_key (id, owner, sealed, created_at)
VALUES (%(id)s, %(owner)s, %(sealed)s, coalesce(%(now)s, now()))

-- :name find
-- A data key by its id.
SELECT sealed FROM data_key WHERE id = %(id)s
