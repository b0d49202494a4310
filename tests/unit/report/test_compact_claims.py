"""Which cells of scale compact test a claim."""

import pytest

from fedrepro.config.loading import load
from fedrepro.config.workbench import Workbench
from fedrepro.report.cells.compact import pairs_of
from fedrepro.report.papers import published
from fedrepro.report.papers.claim import Claim, CompactTest
from fedrepro.support.errors import UserError
from support.places import ROOT


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return load(ROOT)


@pytest.fixture(scope="module")
def claim() -> Claim:
    return next(each for each in published.load(ROOT).claims if each.system == "ima")


def compact_test(left: dict[str, object], right: dict[str, object]) -> CompactTest:
    return CompactTest.model_validate({"table": "compact_accuracy", "left": left, "right": right})


def test_a_star_pairs_a_method_with_itself_in_each_row(bench: Workbench, claim: Claim) -> None:
    table = bench.experiments["ima"].compact["compact_accuracy"]
    test = compact_test({"column": "* + IMA"}, {"column": "*"})
    plain = [each.label for each in table.columns if "IMA" not in each.label]
    wanted = [f"{row.label}: {name} + IMA against {name}" for row in table.rows for name in plain]
    assert [pair.words for pair in pairs_of(bench, claim, test)] == wanted


def test_others_are_those_that_no_star_stands_for(bench: Workbench, claim: Claim) -> None:
    test = compact_test({"column": "FedA* + IMA"}, {"column": "others"})
    compared = {pair.words.split(": ")[1] for pair in pairs_of(bench, claim, test)}
    assert "FedAvg + IMA against FedAvg" in compared
    assert "FedAvg + IMA against FedFA + IMA" in compared
    assert "FedAvg + IMA against FedAdam + IMA" not in compared


def test_a_star_that_fits_no_label_is_an_error(bench: Workbench, claim: Claim) -> None:
    test = compact_test({"column": "* + AMI"}, {"column": "*"})
    with pytest.raises(UserError, match=r"\* \+ AMI.*the label of a column of its table"):
        list(pairs_of(bench, claim, test))


def test_every_claim_with_cells_finds_them(bench: Workbench) -> None:
    tested = [each for each in published.load(ROOT).claims if isinstance(each.compact, CompactTest)]
    assert tested
    for each in tested:
        assert isinstance(each.compact, CompactTest)
        assert list(pairs_of(bench, each, each.compact)), each.anchor
