"""Properties of every method, checked on a small federation."""
