-- :name end_when_silent
-- At the begin of a transaction: a client that is paused in it does not hold its locks for ever.
SET LOCAL idle_in_transaction_session_timeout = %(silent_ms)s
