"""Analyses of finished runs beyond their tables."""
