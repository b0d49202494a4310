"""AAggFF's table of clients: numbers that are counted from a partition."""

import statistics
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedrepro.papers.aaggff import table_client_statistics as table
from fedrepro.papers.aaggff import table_responses
from fedrepro.report.papers import published
from fedrepro.support import checksummed_json
from support.places import ROOT
from support.refusals import refused


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


def test_each_data_set_is_counted_in_its_own_partition(tmp_path: Path) -> None:
    """Clients' training and test samples of all classes; what is not there is a hole."""

    def path(setting: str) -> Path:
        return Path(f"results/partitions/{setting.partition('/')[2]}.json")

    bench: Any = SimpleNamespace(
        root=tmp_path, histogram_of=path, is_prepared=lambda setting: setting != "aaggff/away"
    )
    for name, train, test in (
        ("a", [[3, 1], [2, 2], [5, 0]], [[1, 0], [0, 2], [0, 0]]),
        ("b", [[9, 1]], None),
        ("away", [[1, 1]], None),
    ):
        what = checksummed_json.of_results(path(f"aaggff/{name}"))
        content = {"train": train, "test": test}
        checksummed_json.write(tmp_path / path(f"aaggff/{name}"), content, what)
    counted = {"A": "a", "B": "b", "C": "away", "D": "none"}
    target: Any = SimpleNamespace(system="aaggff", spec=SimpleNamespace(counted_in=lambda: counted))
    some = published.load(ROOT).tables["aaggff", "table_a2"][0]
    metrics = ("n_clients", "n_samples", "samples_per_client")
    cells = [
        replace(some, dataset=data, metric=metric, std=None if metric[0] == "n" else 1.0)
        for data in "ABCDE"
        for metric in metrics
    ]
    found = table.compute(bench, target, cells).cells
    assert [cell.printed for cell in found] == cells
    assert [cell.value for cell in found] == [3, 16, pytest.approx(16 / 3), 1, 10, 10, *[None] * 9]
    spreads = [cell.std for cell in found[:6]]
    assert spreads == [None, None, pytest.approx(statistics.pstdev([5, 6, 5])), None, None, 0]
    holes = [cell.hole for cell in found[6::3]]
    assert holes[0] == holes[2] == table.NOT_FETCHED != holes[1] and all(holes)
    (tmp_path / path("aaggff/b")).write_text("{", encoding="utf-8")
    with refused("damaged", file="b.json"):
        table.compute(bench, target, cells)


def test_responses_are_of_the_losses_in_the_cell_and_to_the_loss_that_it_names() -> None:
    cells = published.load(ROOT).tables["aaggff", "table_a1"]
    none: Any = None
    found = table_responses.compute(none, none, cells).cells
    assert {cell.verdict.word for cell in found if cell.verdict} == {"agrees"}
    assert len({cell.value for cell in found}) > 3
    # Where the named loss is not the first one, nor any other place's response the same.
    cell = replace(cells[0], setting="K=3,F=0.30,losses=0.10|0.30|0.20")
    first, second, third = (
        table_responses.compute(none, none, [replace(cell, setting=f"F={loss},{rest}")]).cells[0]
        for loss, rest in ((loss, "losses=0.1|0.3|0.2") for loss in ("0.1", "0.3", "0.2"))
    )
    (named,) = table_responses.compute(none, none, [cell]).cells
    assert first.value < third.value < second.value == named.value  # type: ignore[operator]
    assert all(0 <= cell.value <= 1 for cell in (first, second, third) if cell.value is not None)
