"""Webhooks: telling clients by HTTP, to addresses that they chose and nobody should trust."""
