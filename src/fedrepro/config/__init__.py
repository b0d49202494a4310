"""Experiments as data: typed models of ``config/`` and what follows from them, without torch."""
