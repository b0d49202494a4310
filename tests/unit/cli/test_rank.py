"""``fedrepro rank``: your own method in a league of two small settings."""

import json
import os
import re
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedrepro.cli import ranking
from fedrepro.cli.main import main, parser
from fedrepro.config.loading import load
from fedrepro.report.cells.league import matches_of
from fedrepro.support.errors import Interrupted
from support.places import ROOT
from support.project import OF_TABLE
from support.refusals import refused

CONFIG = "{seeds: {demo: [1], compact: [1, 2, 3], paper: [1]}, plugins: {methods: mine}}\n"
EXPERIMENT = """\
system: own
title: Own
paper: none
settings:
  s:
    dataset: own
    partition: {scheme: iid, clients: 3, test_fraction: 0.2}
    model: logistic
    rounds: 3
    participation: 1
    epochs: 1
    batch_size: 8
    optimizer: {lr: 0.5}
    evaluate: {clients: true}
"""
COMPACT = """\
settings:
  compact-a: {extends: s}
  compact-b: {extends: s, rounds: 2}
  compact-made: {extends: s, evaluator: {model: logistic, epochs: 1, real_epochs: 1}}
tables:
  compact_accuracy:
    title: Accuracy
    metric: {of: accuracy, over_clients: average}
    rows:
      - {label: A, setting: compact-a, league: skew}
      - {label: "A, worst", setting: compact-a, league: skew,
         metric: {of: accuracy, over_clients: worst}}
      - {label: B, setting: compact-b, league: other}
      - {label: Not in the league, setting: compact-b}
    columns: &columns
      - {label: FedAvg, method: fedavg}
      - {label: FedProx, method: fedprox}
      - {label: Central, method: central}
  compact_made:
    title: Synthetic sets
    metric: {quality: accuracy}
    rows: [{label: Made, setting: compact-made, league: made}]
    columns: [{label: FedEvg, method: fedevg}]
"""
METHOD = '''\
from dataclasses import dataclass

from fedrepro.engine import tree
from fedrepro.engine.method import Method


@dataclass(frozen=True)
class Shrink(Method):
    """Mine: a step that is only a part of FedAvg's."""

    part: float = 1.0

    def client_update(self, ctx, message, client_state, steps):
        update, client_state = super().client_update(ctx, message, client_state, steps)
        return {"delta": tree.scale(update["delta"], self.part)}, client_state
'''


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {
        "config/config.yaml": CONFIG,
        "config/datasets.yaml": OF_TABLE,
        "config/experiments/own.yaml": EXPERIMENT,
        "config/compact/own.yaml": COMPACT,
        "mine/shrink.py": METHOD,
        "Snakefile": (ROOT / "workflow/skeleton/Snakefile").read_text(encoding="utf-8"),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    random = np.random.default_rng(1)
    a, b = random.normal(size=(2, 240))
    kind = np.where(a + b + 0.3 * random.normal(size=240) > 0, "x", "y")
    pd.DataFrame({"a": a, "b": b, "kind": kind}).to_csv(tmp_path / "own.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rivals(*seeds: int) -> None:
    for setting in ("compact-a", "compact-b"):
        for method in ("fedavg", "fedprox"):
            for seed in seeds:
                assert main(["run", f"own/{setting}", method, "--seed", str(seed)]) == 0


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    """Status, JSON and messages of a call."""
    capsys.readouterr()
    status = main(["rank", "--json", "--cores", "2", *words])
    said = capsys.readouterr()
    return status, json.loads(said.out) if said.out else None, said.err


def test_only_the_own_method_trains_and_is_ranked(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rivals(1, 2, 3)
    grid = ("--grid", "part=0.0,1.0")
    status, found, said = asked(capsys, "shrink", *grid)
    assert status == 0, said
    # A step of nothing is no better on validation samples than FedAvg's.
    assert [each["chosen"] for each in found["searched"]] == [{"part": 1.0}] * 2
    assert [each["tried"] for each in found["searched"]] == [2, 2]
    assert {each["group"] for each in found["standings"]} == {"skew", "other", "all groups"}
    assert "makes no synthetic set" in found["cannot_run"]["own/compact-made: Made"]
    assert found["preliminary"] == "preliminary: 3 seeds"
    for match in found["matches"]:
        own, fedavg, fedprox = match["methods"]
        assert [each["name"] for each in match["methods"]] == ["shrink", "FedAvg", "FedProx"]
        assert own["values"] == fedavg["values"]  # all of a step is FedAvg's
        assert own["rank"] == fedavg["rank"]
        assert own["lead_over_fedavg"]["lead"] == 0
        assert own["lead_over_fedavg"]["seeds"] == 3 == len(fedprox["values"])
    page = Path("reports/site/league.html").read_text(encoding="utf-8")
    assert "Preliminary: 3 seeds" in page and "data sets own; seeds 1, 2, 3" in page
    assert "2 of 2 candidates scored" in page
    # No workflow has made the site: its other pages are not there, and nothing links to them.
    links = re.findall(r'<a\b[^>]*? href="([^#"]+)"', page)
    links = [link for link in links if not link.startswith("https://")]  # papers
    assert sorted(links) == ["league.csv", "league.html", "league.tex"]
    trained = {path.parts[3] for path in Path("results/runs/own").glob("*/*/*/manifest.json")}
    assert trained == {"compact-a", "compact-b", "compact-a@validation0.2",
                       "compact-b@validation0.2"}  # fmt: skip
    # The search saw validation samples only, and the runs that count keep none.
    tuned = pd.read_parquet("results/runs/own/compact-a/shrink_part1.0/seed1/rounds.parquet")
    assert not [name for name in tuned.columns if name.startswith("validation")]

    status, again, said = asked(capsys, "shrink", *grid)
    assert (status, again) == (0, found)
    assert "Nothing to train" in said and "shrink seed" not in said, said


def test_without_a_grid_one_group_and_one_seed(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rivals(1)
    assert main(["rank", "shrink", "--on", "other", "--seeds", "1", "--cores", "1"]) == 0
    out, said = capsys.readouterr()
    assert "10 runs to train" not in said and "1 run to train: " in said
    head, row, *rest = out.splitlines()
    assert head.split("\t")[:4] == ["setting", "shrink", "FedAvg", "best other"]
    assert row.split("\t")[0] == "own/compact-b: B"
    assert row.split("\t")[-1] == "1"
    assert any(line.startswith("Preliminary: 1 seed:") for line in rest)
    assert rest[-1] == "reports/site/league.html"


def test_the_cost_is_said_and_plan_stops_there(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rank", "shrink", "--plan", "--grid", "part=0.0,1.0"]) == 0
    out, said = capsys.readouterr()
    assert "can't run in own/compact-made: Made: it makes no synthetic set" in said
    assert "10 runs to train: " in said  # 2 candidates and 3 seeds in each of 2 settings
    assert "own/compact-a@validation0.2\t2\t" in out
    assert not Path("results/runs").exists()
    alone = "without results of FedAvg there is no lead in "
    assert f"{alone}own/compact-a (0 of 3 seeds), own/compact-b (0 of 3 seeds); " in said
    assert "`fedrepro rank fedavg`" in said
    rivals(1)
    capsys.readouterr()
    assert main(["rank", "shrink", "--plan", "--seeds", "1"]) == 0
    assert alone not in capsys.readouterr().err


def test_the_cost_of_a_search_by_all_methods(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("rank", "shrink", "--plan", "--on", "other", "--grid", "lr=0.5,2.0")
    for search, runs in (("own", 5), ("each", 15), ("alike", 15)):
        assert main([*words, "--search", search]) == 0
        assert f"{runs} runs to train: " in capsys.readouterr().err
    assert main([*words, "--search", "all"]) == 2
    for search in ("each", "alike"):  # what they would try is missing, not another name
        chosen = parser().parse_args(["rank", "shrink", "--plan", "--search", search])
        with refused(key="--search", value=search, names="--grid") as fault:
            ranking.rank(chosen)
        assert not str(fault.value).endswith("?")


def test_no_plan_is_less_than_what_is_trained_then(
    bench: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if runs with the defaults are there, as after a first `rank`."""
    rivals(1)
    assert main(["run", "own/compact-b", "shrink", "--seed", "1"]) == 0
    common = ("shrink", "--on", "other", "--seeds", "1", "--grid")

    def planned(*words: str) -> tuple[int, bool]:
        status, plan, said = asked(capsys, *common, *words, "--plan")
        assert status == 0, said
        return plan["lines"][-1]["runs"] - plan["lines"][-1]["done"], plan["at_most"]

    # Two candidates of each method, and what each chooses: one of them is the setting as it is.
    assert planned("lr=0.5,2.0", "--search", "each") == (9, True)
    assert planned("lr=0.5", "--search", "each") == (3, True)
    assert planned("part=0.0,0.5") == (3, True)
    trained, train = [], ranking.train

    def counting(here: Any, runs: Any, cores: int) -> int:
        trained.append(len(runs))
        return train(here, runs, cores)

    monkeypatch.setattr(ranking, "train", counting)
    assert asked(capsys, *common, "part=0.0,0.5")[0] == 0
    assert trained == [2, 1]
    assert planned("part=0.0,0.5") == (0, False)


def test_without_others_there_is_no_rank(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "own/compact-b", "shrink", "--seed", "1"]) == 0
    capsys.readouterr()
    assert main(["rank", "shrink", "--on", "other", "--seeds", "1"]) == 0
    row, *rest = capsys.readouterr().out.splitlines()[1:]
    assert row.split("\t")[2:6] == ["no result", "", "", ""]
    assert "No rank in own/compact-b: B: no two methods have a result with all seeds." in rest
    assert "seed 1." in Path("reports/site/league.html").read_text(encoding="utf-8")


def test_a_run_that_fails_is_named_with_its_reason(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rivals(1)
    text = METHOD.replace(
        "    def client_update",
        "    def check(self, ctx):\n        from fedrepro.support.errors import UserError\n"
        "        if ctx.rounds == 2:\n            raise UserError('needs three rounds')\n\n"
        "    def client_update",
    )
    Path("mine/picky.py").write_text(text, encoding="utf-8")
    status, found, said = asked(capsys, "picky", "--seeds", "1")
    assert status == 1
    assert "own/compact-b picky seed 1: failed: needs three rounds" in said
    assert found["cannot_run"]["own/compact-b: B"] == "needs three rounds"
    assert [match["match"] for match in found["matches"]] == [
        "own/compact-a: A", "own/compact-a: A, worst"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("shrnk",), "the command line: METHOD: 'shrnk': expected a method; did you mean 'shrink'"),
        (("shrink", "--on", "skw"), "the command line: --on: 'skw': expected a group of the"),
        (("shrink", "--seeds", "4"), "the command line: --seeds: 4: expected a whole number from"),
        (("shrink", "--seeds", "0"), "the command line: --seeds: 0: expected a whole number from"),
        (("shrink", "--cores", "0"), "the command line: --cores: 0: expected a whole number of"),
        (("shrink", "--grid", "part"), "the command line: --grid: 'part': expected NAME=VALUE"),
        (("shrink", "--grid", "prt=1.0"), "the command line: --grid: 'prt': expected one of"),
        (("shrink", "--grid", "part=1.0,1.0"), "the command line: grid: "),
        (("shrink", "--grid", "part=x"), "method shrink: part: 'x': expected a number"),
        (
            ("wgan_gp", "--on", "skew"),
            "method wgan_gp: can't run in any setting of the league: own/compact-a: A: ",
        ),
    ],
)
def test_a_wrong_request_is_one_line(
    bench: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    assert main(["rank", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"fedrepro: {line}"), said
    assert said.count("\n") == 1
    assert not Path("results/runs").exists()


def test_without_a_league_it_says_so(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config/compact/own.yaml").unlink()
    assert main(["rank", "shrink"]) == 2
    said = capsys.readouterr().err
    assert "`league`" in said
    command = next(words for words in said.split("`") if words.startswith("fedrepro "))
    assert main(command.split()[1:]) == 0  # what it advises
    compact = sorted(Path("config/compact").glob("*.yaml"))
    assert compact and all("league:" in path.read_text(encoding="utf-8") for path in compact)


def test_runs_and_sets_are_asked_of_snakemake(
    bench: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def refuse(files: list[str], cores: int) -> int:
        asked.append([*files, str(cores)])
        return 3

    monkeypatch.setattr(ranking, "_snakemake", refuse)
    assert main(["rank", "shrink", "--on", "other", "--seeds", "2", "--cores", "2"]) == 2
    assert "ended with status 3" in capsys.readouterr().err
    folder = "results/runs/own/compact-b/shrink"
    assert asked == [[f"{folder}/seed1/manifest.json", f"{folder}/seed2/manifest.json", "2"]]
    assert main(["rank", "fedevg", "--on", "made", "--seeds", "1", "--cores", "1"]) == 2
    assert asked[1:] == [["results/quality/own/compact-made/fedevg/seed1.json", "1"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_snakemake_and_its_jobs(
    bench: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Its jobs have time to write a checkpoint, and the command ends with the signal's status."""
    made = Path("made").absolute()
    trap = f"trap 'echo ended > {made}; exit 1' INT TERM; touch {made}; sleep 30 & wait"
    rule = f'rule slow:\n    output: "x"\n    shell: "{trap}"\n'
    Path("Snakefile").write_text(rule, encoding="utf-8")

    def interrupt() -> None:
        while not made.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted) as caught:
        ranking._snakemake(["x"], 1)
    thread.join()
    assert caught.value.status == 128 + number
    assert made.read_text(encoding="utf-8") == "ended\n"


def test_the_groups_of_the_repository_are_documented() -> None:
    page = (ROOT / "docs/league.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted({match.group for match in matches_of(load(ROOT))})


@pytest.mark.parametrize(("hours", "words"), [(0.12, "7.2 minutes"), (2.5, "2.5 hours")])
def test_short_times_are_said_in_minutes(hours: float, words: str) -> None:
    assert ranking.span(hours) == words


@pytest.mark.usefixtures("bench")
def test_a_run_of_several_matches_is_judged_if_one_asks() -> None:
    here = load()
    match = next(each for each in matches_of(here) if each.item == "compact_made")
    for judged in ((True, False), (False, True), (False, False)):
        matches = [replace(match, judged=each) for each in judged]
        request = ranking.Request(here, "fedevg", matches, {}, [], "", 1, 1)
        assert [*request.runs({}).values()] == [any(judged)]
