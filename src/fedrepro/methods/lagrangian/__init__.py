"""Shared code of methods whose clients pay for leaving the received model."""
