"""Webhooks: telling clients by HTTP, to addresses that they chose and that are not trusted."""
