"""What operators and tests see."""
