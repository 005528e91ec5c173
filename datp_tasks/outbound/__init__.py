"""The one way out by HTTP: for webhooks, for ledgers and for the step `http/request`."""
