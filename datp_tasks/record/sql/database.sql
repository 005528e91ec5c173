-- :name ping
-- Nothing but an answer.
SELECT 1

-- :name has_tables
-- Whether the tables were ever made here.
SELECT to_regclass('tx_summary') IS NOT NULL
