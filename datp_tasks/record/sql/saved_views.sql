-- :name of_person
-- The views of one person, by name.
SELECT name, query FROM saved_view WHERE person = %(person)s ORDER BY name LIMIT %(limit)s

-- :name save
-- Keep a view; one of the same name is replaced, and a person has a limited number of them.
INSERT INTO saved_view (person, name, query)
SELECT %(person)s, %(name)s, %(query)s
WHERE (SELECT count(*) FROM saved_view WHERE person = %(person)s AND name <> %(name)s) < %(limit)s
ON CONFLICT (person, name) DO UPDATE SET query = excluded.query, changed_at = now()

-- :name forget
-- Drop a view.
DELETE FROM saved_view WHERE person = %(person)s AND name = %(name)s
