"""Printed numbers, and what ours say of them."""
