"""What beat runs."""
