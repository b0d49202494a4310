"""Every place where a paper's text and its released code have other settings, and what is taken.

``tests/golden/settings_readings.csv`` lists them: a key under ``released`` of settings, fields of
methods, a measure of a table; or the text's or the code's value alone, with the reason.
"""

import csv
from pathlib import Path
from typing import Any

import pytest

from fedrepro.config.loading import load
from fedrepro.config.workbench import Workbench
from fedrepro.methods.facts import facts_of
from fedrepro.report.papers import published
from support.places import ROOT

FILE = Path(__file__).parents[2] / "golden/settings_readings.csv"
PLACES = list(csv.DictReader(FILE.read_text(encoding="utf-8").splitlines()))


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return load(ROOT)


@pytest.fixture(scope="module")
def numbers() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for entry in published.load(ROOT).ledger:
        found.setdefault(entry.system, set()).add(entry.number)
    return found


@pytest.mark.parametrize("place", PLACES, ids=lambda row: f"{row['where']}: {row['parameter']}")
def test_each_place_is_a_key_with_its_discrepancy_or_has_a_reason(
    bench: Workbench, numbers: dict[str, set[str]], place: dict[str, str]
) -> None:
    system, which, cited = place["system"], place["which"].split(), place["number"].split()
    assert {*cited} <= numbers[system]
    if place["how"] == "setting":
        for name in which:
            setting = bench.setting(f"{system}/{name}")
            assert cited[0] in setting.released, name
            assert str(value_of(setting.as_released(), place["key"])) in (
                place["value"], f"{place['value']}.0"
            )  # fmt: skip
            assert value_of(setting, place["key"]) != value_of(setting.as_released(), place["key"])
    elif place["how"] == "method":
        for name in which:
            assert {*cited} <= {*facts_of(name).departures}, name
    elif place["how"] == "measure":
        assert all(bench.table(system, name) for name in which)
    else:
        assert place["how"] in ("text", "code") and place["why"]


def value_of(found: Any, key: str) -> Any:
    """What stands under ``noise.kind``; None where a part is not given."""
    for name in key.split("."):
        found = found.get(name) if isinstance(found, dict) else getattr(found, name, None)
    return found


def test_no_released_key_is_without_its_place(bench: Workbench) -> None:
    listed = {
        (f"{place['system']}/{name}", number)
        for place in PLACES
        if place["how"] == "setting"
        for name in place["which"].split()
        for number in place["number"].split()
    }
    also = {
        ("superfed/" + name, number)
        for number in ("22", "46")
        for name in (f"cifar10-{start}" for start in STARTS)
    }
    also |= {
        (f"superfed/{data}-noise-{noise}", "25")
        for data in ("mnist", "cifar10")
        for noise in NOISES
    }
    inherited = {
        (f"fedevg/{data}-{clients}-{alpha}-{method}", "42")
        for data in ("mnist_32", "cifar10", "dermamnist_64", "organcmnist_64")
        for clients in (10, 100)
        for alpha in ("0.01", "1.0")
        for method in ("cgan", "cvae")
    }
    there = {
        (name, number)
        for name, setting in bench.settings.items()
        if not name.endswith("@released")
        for number in setting.released
    }
    assert there == listed | also | inherited


STARTS = ("terms", *(f"start{start}" for start in ("0.0", "0.2", "0.4", "0.6", "0.8")))
NOISES = ("pair0.1", "pair0.4", "symmetric0.2", "symmetric0.6")
