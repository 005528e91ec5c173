-- :name add
-- Add a line to the audit of what operators did.
INSERT INTO operator_action (actor, action, subject, reason, details, created_at)
VALUES (%(actor)s, %(action)s, %(subject)s, %(reason)s, %(details)s::json,
        coalesce(%(now)s, now()))
