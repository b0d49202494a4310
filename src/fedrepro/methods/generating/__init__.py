"""Shared code of methods that train generators and discriminators."""
