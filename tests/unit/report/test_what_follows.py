"""What stands below a table: numbers come from the runs; sentences without runs are left out."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import yaml

from fedrepro.config.loading import load
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.methods.facts import facts_of
from fedrepro.report.cells import coverage, tables
from fedrepro.report.cells.insights import PLACEHOLDER, Number, filled, looked_at
from fedrepro.report.cells.readings import Readings
from fedrepro.report.pages.claims import views_of
from fedrepro.report.pages.interpretation import what_follows
from fedrepro.report.papers import published
from fedrepro.report.papers.claim import Address
from fedrepro.report.papers.published import Printed
from fedrepro.run.results import reference_folder
from fedrepro.support.errors import UserError
from fedrepro.support.scoped_cache import read_once
from support.manifests import follow, write_manifest
from support.places import ROOT
from support.refusals import refused
from support.report_world import constant_run, make_system

ROW, OTHER = "MNIST, 500 clients", "MNIST, 500 clients, released settings"
SETTING = "superfed/mnist-500"


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """SuPerFed's Table 2.3: FedRep in both readings, FedAvg in the text's."""
    root = make_system(tmp_path, "superfed")
    write(root, says="{a} for {a.printed}: {a.difference}; {b - a} more as released, {b.seeds}.")
    bench = load(root)
    return bench


def write(root: Path, says: str, **changes: object) -> None:
    numbers = {
        "a": {"row": ROW, "column": "FedRep"},
        "b": {"table": "table_2_3_released", "row": OTHER, "column": "FedRep"},
    }
    entry = {"tables": ["table_2_3"], "says": says, "numbers": numbers} | changes
    path = root / "reports/papers/superfed/what_follows.yaml"
    path.write_text(yaml.safe_dump([entry]), encoding="utf-8")


def clients_run(bench: Workbench, run: RunKey, accuracy: float) -> None:
    """A landed run in which every client scores the same."""
    import pandas as pd

    constant_run(bench, run, accuracy)
    rounds = bench.setting(run.setting).rounds
    columns = {"round": [rounds] * 2, "client": [0, 1], "test_samples": [5, 5]}
    scores = {name: [accuracy] * 2 for name in ("accuracy", "accuracy_batch")}
    frame = pd.DataFrame({**columns, **scores})
    folder = bench.root / reference_folder(run)
    frame.to_parquet(folder / "clients.parquet")
    follow(folder, "clients.parquet")


def three_seeds(bench: Workbench, setting: str, accuracy: float) -> None:
    """Landed runs of FedRep that scatter by a twentieth of a point."""
    for seed, off in ((1, -0.0005), (2, 0.0), (3, 0.0005)):
        clients_run(bench, RunKey(setting, "fedrep", seed), accuracy + off)


def follows(bench: Workbench) -> dict[str, Any]:
    papers = published.load(bench.root)
    target = bench.table("superfed", "table_2_3", "paper")
    return what_follows(bench, target, tables.compute(bench, target, papers), papers)


def test_numbers_and_verdicts_come_from_the_runs(bench: Workbench) -> None:
    assert follows(bench)["sentences"] == []
    three_seeds(bench, SETTING, 0.9643)  # printed 97.94
    found = follows(bench)
    assert found["sentences"] == []  # of two numbers one is missing
    (reading,) = found["readings"]
    assert (reading.computed, reading.words["differs"], found["of"]) == (1, 1, 66)
    (group,) = found["differences"]
    assert "is not computed" in group.what and group.items == ("22", "46")
    three_seeds(bench, f"{SETTING}@released", 0.9801)
    found = follows(bench)
    assert found["sentences"] == ["96.43 for 97.94: −1.51; +1.58 more as released, 3 seeds."]
    assert [reading.computed for reading in found["readings"]] == [1, 1]
    (group,) = found["differences"]
    assert group.what.endswith("do not in the released code's")
    (both,) = group.cells
    assert both.released.released == ("settings", "scoring")
    rows = {(row["system"], row["table"]): row for row in coverage.coverage(bench)}
    wanted = {"targets": 330, "computed": 1, "agree": 1, "differ": 0}  # Tables 2.3 and 2.6
    assert {key: rows["superfed", "released"][key] for key in wanted} == wanted
    assert rows["superfed", "all"]["differ"] == rows["all", "released"]["agree"] == 1
    anyhow = rows["all", "any"]  # a cell with two numbers counts once
    assert (anyhow["computed"], anyhow["agree"], anyhow["differ"]) == (1, 0, 0)


def test_a_cell_that_agrees_is_no_difference(bench: Workbench) -> None:
    three_seeds(bench, SETTING, 0.9795)
    found = follows(bench)
    assert found["readings"][0].words["agrees"] == 1 and not found["differences"]


@pytest.mark.parametrize(("accuracy", "shown"), [(0.99, "+1.06"), (0.97, "−0.94")])
def test_a_sentence_is_shown_whichever_way_it_turns_out(
    bench: Workbench, accuracy: float, shown: str
) -> None:
    clients_run(bench, RunKey(SETTING, "fedrep", 1), accuracy)  # printed 97.94
    write(bench.root, "It changes by {a - a.printed}: {a.difference}.")
    assert follows(bench)["sentences"] == [f"It changes by {shown}: {shown}."]


@pytest.mark.parametrize(
    "other", [{"run": {"lr_decay": 0.5}}, {"numerics": {"core": "other"}}, {}], ids=str
)
def test_a_sentence_tells_only_numbers_of_current_runs(
    bench: Workbench, other: dict[str, dict[str, object]]
) -> None:
    """Of today's configuration and code; what is printed needs no run."""
    run = RunKey(SETTING, "fedrep", 1)
    clients_run(bench, run, 0.9643)
    folder = bench.root / reference_folder(run)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for section, values in other.items():
        manifest[section] |= values
    write_manifest(folder, manifest)
    for says, shown in (
        ("It is {a}.", "It is 96.43."),
        ("Of {a.seeds}.", "Of one seed."),
        ("By {a.difference}.", "By −1.51."),
        ("Up {a - a.printed}.", "Up −1.51."),
    ):
        write(bench.root, says)
        assert follows(bench)["sentences"] == ([] if other else [shown])
    write(bench.root, "It should be {a.printed}.")
    assert follows(bench)["sentences"] == ["It should be 97.94."]


def test_no_sentence_depends_on_the_sign_of_its_finding(bench: Workbench) -> None:
    write(bench.root, "It is {a}.", only_if={"a.difference": {"above": 0}})
    with pytest.raises(UserError, match=r"superfed/what_follows\.yaml: .*only_if"):
        published.load(bench.root)


@pytest.mark.parametrize(
    ("says", "changes", "line"),
    [
        ("{c}", {}, r"says: '\{c\}': expected a name under `numbers`"),
        ("{a.mean}", {}, r"says: '\{a\.mean\}': expected printed, difference or seeds"),
    ],
)
def test_what_names_no_number_is_one_line(
    bench: Workbench, says: str, changes: dict[str, object], line: str
) -> None:
    write(bench.root, says, **changes)
    with pytest.raises(UserError, match=rf"^reports/papers/superfed/what_follows\.yaml: {line}"):
        follows(bench)


@pytest.mark.parametrize(
    "missing", [{"column": "FedRap"}, {"row": "CIFAR"}, {"table": "table_2_33"}]
)
def test_a_sentence_on_what_an_experiment_leaves_out_is_left_out(
    bench: Workbench, missing: dict[str, str]
) -> None:
    clients_run(bench, RunKey(SETTING, "fedrep", 1), 0.9643)
    write(bench.root, "It is {a}.")
    assert follows(bench)["sentences"] == ["It is 96.43."]
    write(bench.root, "It is {a}.", numbers={"a": {"row": ROW, "column": "FedRep", **missing}})
    assert not follows(bench)["sentences"]


Said = tuple[str, str, dict[str, Address], str, str]  # system, words, numbers, table, scale


def all_said(papers: published.Published) -> list[Said]:
    """The sentences below tables, and what was looked at before compact results were believed."""
    below = [
        (said.system, said.says, said.numbers, said.tables[0], "paper") for said in papers.insights
    ]
    tests = [
        (claim.system, claim.compact)
        for claim in papers.claims
        if not isinstance(claim.compact, str)
    ]
    return below + [
        (system, test.looked_at, test.numbers, test.table, "compact") for system, test in tests
    ]


def test_every_sentence_of_the_papers_names_cells() -> None:
    bench, papers = load(ROOT), published.load(ROOT)
    assert len(papers.insights) >= 10
    for system, says, numbers, item, scale in all_said(papers):
        names = {
            term.partition(".")[0]
            for text in PLACEHOLDER.findall(says)
            for term in text.split(" - ")
        }
        assert names == {*numbers}, says
        for address in numbers.values():
            table = bench.table(system, address.table or item, scale).table
            assert address.row in {row.label for row in table.rows}, address
            assert address.column in {column.label for column in table.columns}, address


NUMBER = re.compile(r"(?<![\w.])\d*\.?\d+")
# What a number counts or names, and is no measurement.
NAMED = re.compile(r"(discrepanc(y|ies)|Table|section|equation|seed|[Ff]igure)s? [\d., and]+")


def numbers_of_settings(system: str) -> set[float]:
    files = (ROOT / f"config/{kind}/{system}.yaml" for kind in ("experiments", "compact"))
    lines = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return {float(number) for number in NUMBER.findall(re.sub(r"#.*", "", lines))}


def test_no_measured_number_is_typed() -> None:
    """It would stay when the runs behind it change: it is a placeholder that names their cell."""
    papers = published.load(ROOT)
    for system, says, *_ in all_said(papers):
        typed = {float(each) for each in NUMBER.findall(NAMED.sub("", PLACEHOLDER.sub("", says)))}
        printed = {
            cell.mean
            for cell in papers.cells
            if cell.system == system and cell.mean is not None and cell.mean.is_integer()
        }
        assert typed <= numbers_of_settings(system) | printed, says


def test_what_was_looked_at_has_the_numbers_that_count() -> None:
    """Of a run that never reaches the target all rounds, as in the claim; none without runs."""
    bench, papers = load(ROOT), published.load(ROOT)
    (claim,) = (each for each in papers.claims if each.anchor == "ima-speed")
    assert not isinstance(claim.compact, str)
    key = ("ima", "compact_searched_rounds")
    with read_once():
        made = {key: tables.compute(bench, bench.table(*key, "compact"), papers)}
    rounds = {}
    for seed in range(1, 6):
        curve = landed_curve("ima/compact-searched-dirichlet0.1", "fedfa", seed)
        rounds[seed] = next(
            (n + 1 for n in range(9, 300) if mean(curve[n - 9 : n + 1]) >= 0.77), 300
        )
    assert 300 in rounds.values()
    text = looked_at(claim, made)
    assert f"its {mean([*rounds.values()]):.0f} rounds" in text and "{" not in text
    assert looked_at(claim, {}) == ""
    wrong = claim.compact.model_copy(update={"looked_at": "It is {proks}."})
    line = r"ima/claims\.yaml: speed\.compact\.looked_at: '\{proks\}':"
    with pytest.raises(UserError, match=line):
        looked_at(claim.model_copy(update={"compact": wrong}), made)


def landed_curve(setting: str, method: str, seed: int) -> list[float]:
    """A landed run's accuracies by round."""
    import pandas as pd

    system, _, short = setting.partition("/")
    frame = pd.read_parquet(ROOT / f"reports/papers/{system}/compact/{short}/rounds.parquet")
    return (
        frame[(frame.method == method) & (frame.seed == seed)]
        .sort_values("round")
        .test_accuracy.tolist()
    )


def test_departures_are_those_that_the_classes_have() -> None:
    from fedrepro.methods import registry

    for name, part in registry.parts().items():
        known = {str(each["item"]) for each in registry.describe(part)["deviations"]}
        assert {*facts_of(name).departures} == known, name


def test_files_of_the_papers_are_read(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "reports/papers", tmp_path / "reports/papers", ignore=_NO_RUNS)
    (tmp_path / "reports/papers/superfed/what_follows.yaml").write_text("- says: x\n")
    with refused(
        "missing",
        key="tables, numbers",
        file="what_follows.yaml",
        names=("superfed/what_follows.yaml", "numbers"),
    ):
        published.load(tmp_path)


_NO_RUNS = shutil.ignore_patterns("reference")


@pytest.mark.parametrize(
    ("system", "item", "small_item", "kinds"),
    [
        ("superfed", "table_2_3", "compact_skew", {"more": 3}),
        ("fedgo", "table_5", "compact_generator", {"more": 1, "amount": 1}),
    ],
)
def test_claims_have_the_verdict_of_small_runs_which_are_in_the_repository(
    system: str, item: str, small_item: str, kinds: dict[str, int]
) -> None:
    """The same as on the claims' page, whatever they are about."""
    bench, papers = load(ROOT), published.load(ROOT)
    target = bench.table(system, item, "paper")
    with read_once():
        found = what_follows(bench, target, tables.compute(bench, target, papers), papers)
        small = tables.compute(bench, bench.table(system, small_item, "compact"), papers)
    claims = papers.claims_on(system, item)
    views = views_of(Readings(bench, papers, {(system, small_item): small}))
    by_name = {view.claim.name: view for view in views}
    compared = Counter[str]()
    for claim in claims:
        finding = found["claims"][claim.name]["compact"]
        if finding and finding.item == small_item:
            compared[claim.quantifier] += 1
            assert finding == by_name[claim.name].compact
            assert finding.overall.seeds >= 5
    assert compared == kinds


def number_of(mean: float | None, seeds: int, text: str, form: str = ".2f") -> Number:
    printed = float(text.split()[0]) if text else None
    about = Printed("d", "s", "m", "acc", printed, None, text, 2, "")
    return Number(mean, seeds, about if text else None, form)


KNOWN = {
    ("first", "A"): number_of(96.426, 3, "97.940 (0.20)"),
    ("first", "B"): number_of(12.5, 1, "12.5", ".1f"),
    ("first", "C"): number_of(None, 0, "40.0"),
    ("first", "D"): number_of(1234.5, 5, "", ".3g"),
    ("second", "A"): number_of(96.426, 2, "97.94"),
}


@pytest.mark.parametrize(
    ("says", "shown"),
    [
        ("{a}, then {b}: {a}", "96.43, then 12.5: 96.43"),
        ("{a.printed} {b.printed} {c.printed}", "97.940 12.5 40.0"),
        ("{a.difference} {b.difference}", "\N{MINUS SIGN}1.51 +0.0"),
        ("{a - b} {b - a}", "+83.93 \N{MINUS SIGN}83.9"),
        ("{a - b - a.printed}", "\N{MINUS SIGN}14.01"),
        ("{c.printed - a.printed}", "\N{MINUS SIGN}57.94"),
        ("{a.seeds} and {b.seeds}", "3 seeds and one seed"),
        ("{d} {d.seeds}", "1.23e+03 5 seeds"),
        ("{other.seeds}", "2 seeds"),
        ("{a} {c}", None),
        ("{a - c}", None),
        ("{c.difference}", None),
        ("{c.seeds}", None),
        ("{d.printed}", None),
        ("{d.difference}", None),
        ("{gone}", None),
    ],
)
def test_a_placeholder_is_a_number_of_its_cell(says: str, shown: str | None) -> None:
    """Ours or the printed one, with that one's digits, or a difference, which has a sign."""
    numbers = {name.lower(): Address(row="first", column=name) for name in "ABCD"}
    numbers["other"] = Address(table="second", row="second", column="A")
    numbers["gone"] = Address(row="first", column="E")

    def cells_of(item: str) -> dict[tuple[str, str], Number]:
        return {key: value for key, value in KNOWN.items() if key[0] == item}

    assert filled(says, numbers, "first", cells_of, (Path("file"), "says")) == shown
