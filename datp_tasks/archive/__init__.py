"""Cold state: the record in PostgreSQL."""
