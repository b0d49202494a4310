"""The cells of tables."""
