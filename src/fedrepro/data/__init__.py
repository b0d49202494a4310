"""Data sets: where they come from, how they are prepared, opened and shared out among clients."""
