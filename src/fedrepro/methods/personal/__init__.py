"""Shared code of methods that keep models on clients."""
