"""The way out: telling a client what became of its transaction."""
