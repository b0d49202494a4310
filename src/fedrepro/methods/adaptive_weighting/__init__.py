"""Shared code of methods with adaptive weighting."""
