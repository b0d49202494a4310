"""Partition samples among clients."""
