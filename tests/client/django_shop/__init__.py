"""A small Django project whose view writes an order and submits a transaction in one commit."""
