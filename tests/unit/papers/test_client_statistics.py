"""AAggFF's table of clients: numbers that are counted from a partition."""

import statistics

import pytest

from fedrepro.papers.aaggff import table_client_statistics as table
from fedrepro.report.papers import published
from support.places import ROOT


def test_spreads_are_those_of_all_clients() -> None:
    """Not of a sample of them: all are counted."""
    cells = published.load(ROOT).tables["aaggff", "table_a2"]
    spread = [cell for cell in cells if cell.std is not None]
    sizes = [40, 57, 80, 100, 101, 121, 122]
    assert spread
    for cell in spread:
        found = table._counted(cell, sizes)
        assert found.value == pytest.approx(statistics.fmean(sizes))
        assert found.std == pytest.approx(statistics.pstdev(sizes))
