"""What FedEvg's experiment file has that no other needs."""

from collections.abc import Iterator
from typing import Literal

from fedrepro.config.figures import FigureSpec, Needs
from fedrepro.config.values import Scale


class Shares(FigureSpec):
    """Clients' shares of what a server samples from their energies: the same at both scales.

    They are found by :mod:`fedrepro.papers.fedevg.study_assumption`.
    """

    kind: Literal["shares"]
    study = "fedevg_assumption"

    def needs(self, scale: Scale) -> Needs:
        return []

    def named_settings(self) -> Iterator[tuple[str, str | None]]:
        return iter(())
