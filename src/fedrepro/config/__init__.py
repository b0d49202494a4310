"""Typed models of the files in ``config/``, and the targets and runs they define; no torch."""
