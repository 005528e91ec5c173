-- :name ping
-- Nothing but an answer.
SELECT 1
