"""The way in: what a client can ask for."""
