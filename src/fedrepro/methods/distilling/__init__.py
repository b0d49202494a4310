"""Shared code of methods that distil an ensemble of client models into the server's model."""
