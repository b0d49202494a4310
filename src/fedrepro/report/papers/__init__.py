"""Printed numbers, and verdicts on them."""
