"""Kinds of figures that only FedEvg's experiment file uses."""

from typing import Literal

from fedrepro.config.figures import FigureSpec


class Shares(FigureSpec):
    """Clients' shares of a server's samples from their energies; the same at both scales.

    :mod:`fedrepro.papers.fedevg.study_assumption` computes them.
    """

    kind: Literal["shares"]
    study = "fedevg_assumption"
