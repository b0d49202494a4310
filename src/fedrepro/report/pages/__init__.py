"""The content of each kind of page."""
