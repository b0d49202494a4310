"""Kinds of figures that only SuPerFed's experiment file uses."""

from typing import Literal

from fedrepro.config.figures import OfColumns


class Mixtures(OfColumns):
    """A panel per setting: accuracy of the clients' interpolated models by weight."""

    kind: Literal["mixtures"]
