"""When transactions must be over, and what happens to those that are not."""
