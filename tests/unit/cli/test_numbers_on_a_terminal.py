"""The numbers, rows and statuses of short commands, beside what they are of."""

import argparse
import json
import os
import re
import signal
import time
from dataclasses import MISSING, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from fedrepro.cli import arguments, claims, plan, ranking, verify
from fedrepro.cli.main import main
from fedrepro.config.loading import load
from fedrepro.config.settings import Setting
from fedrepro.config.targets import RunKey
from fedrepro.config.workbench import Workbench
from fedrepro.methods import registry
from fedrepro.run.checkpoint import ABOUT, PLACE
from fedrepro.support import checksummed_json
from fedrepro.support.errors import Interrupted, UserError
from fedrepro.support.terminal import without_log
from support.report_world import write_run
from support.search_world import EXPERIMENT, settle

S = EXPERIMENT["settings"]["s"]
OTHERS = {
    "own": {"t": {"extends": "s", "rounds": 7, "model": "twonn"},
            "u": {"extends": "s", "partition": {"scheme": "iid", "clients": 12}}},
}  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    settle(tmp_path, settings={"s": S, **OTHERS["own"]})
    second = {**EXPERIMENT, "system": "own_2", "settings": {"v": {**S, "rounds": 5}}, "search": {}}
    (tmp_path / "config/experiments/own_2.yaml").write_text(yaml.safe_dump(second))
    monkeypatch.chdir(tmp_path)
    return load()


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    """The lines of a command, by their tabs, without the header."""
    capsys.readouterr()
    assert main([*words]) == 0
    return [line.split("\t") for line in capsys.readouterr().out.splitlines()][1:]


# --- clean ----------------------------------------------------------------------------------------
def old(path: Path, size: int, days: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (time.time() - days * 86400,) * 2)


def test_clean_says_the_sizes_and_ages_of_what_can_go(
    bench: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = {"round1": (1_500_000, 3.0), "round2": (250_000, 40.0), "round4": (4_000_000, 10.0)}
    folder = Path("results/trunks/own/s/fedavg/seed1")
    for name, (size, days) in wanted.items():
        old(folder / name / "checkpoint.safetensors", size, days)
        file = folder / name / ABOUT
        about = {"layout": 4, "files": {"checkpoint.safetensors": "0"}}
        checksummed_json.write(file, about, checksummed_json.place(file, PLACE))
        os.utime(file, (time.time() - days * 86400,) * 2)
        wanted[name] = (size + file.stat().st_size, days)
    old(Path("results/runs/own/s/fedavg/seed1/model.safetensors"), 7_000_000, 0)
    for older in (0, 5, 20, 50):
        found = rows(capsys, "clean", "--older", str(older))
        assert {Path(row[0]).name: row[2:] for row in found} == {
            name: [f"{size / 1e6:.1f}", f"{days:.0f}"]
            for name, (size, days) in wanted.items()
            if days >= older
        }
    assert main(["clean", "--older", "5"]) == 0
    said = capsys.readouterr().err.splitlines()
    total = sum(size for size, days in wanted.values() if days >= 5) / 1e6
    assert f"would remove 2 folders, {total:.1f} MB; --remove" in said[0]
    both = sum(size for size, _ in wanted.values()) / 1e6
    assert said[1].endswith(f": runs 7.0 MB, trunks {both:.1f} MB")  # the largest first
    assert main(["clean", "--older", "5", "--remove"]) == 0
    said = capsys.readouterr().err
    assert "removed 2 folders" in said and [path.name for path in folder.iterdir()] == ["round1"]


# --- lists ----------------------------------------------------------------------------------------
def test_settings_are_listed_by_system_without_candidates(
    bench: Workbench, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {
        "own/s": ["heart", "natural", "logistic", "2"],
        "own/s@validation0.2": ["heart", "natural", "logistic", "2"],
        "own/t": ["heart", "natural", "twonn", "7"],
        "own/u": ["heart", "iid, 12 clients", "logistic", "2"],
    }
    other = {"own_2/v": ["heart", "natural", "logistic", "5"]}
    assert {row[0]: row[1:] for row in rows(capsys, "settings")} == own | other
    assert {row[0]: row[1:] for row in rows(capsys, "settings", "own")} == own
    assert {row[0]: row[1:] for row in rows(capsys, "settings", "own_2")} == other
    for name in (*own, *other):
        assert main(["settings", name]) == 0
        ((key, content),) = yaml.safe_load(capsys.readouterr().out).items()
        assert key == name and "extends" not in content
        written, known = Setting.model_validate(content), bench.setting(name)
        assert written.model_dump() == known.model_copy(update={"extends": None}).model_dump()


def test_methods_are_listed_by_kind_with_their_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["methods", "--json"]) == 0
    told = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    listed = rows(capsys, "methods")
    assert {row[0] for row in listed} == {*told}
    kinds = [row[1] for row in listed]
    order = ["method", "pre-training", "wrapper", "server optimizer"]
    assert kinds == sorted(kinds, key=order.index) and {*kinds} == {*order}
    for kind in order:
        names = [row[0] for row in listed if row[1] == kind]
        assert names == sorted(names)
    for name, _, paper, shown in listed:
        part = registry.part(name)
        assert part is not None
        defaults = {
            field.name: field.default
            for field in fields(part.cls)
            if field.init
            and field.default is not MISSING
            and field.name in told[name]["hyperparameters"]
        }
        assert told[name]["hyperparameters"] == json.loads(json.dumps(defaults, default=str))
        assert shown == ", ".join(f"{key} = {value}" for key, value in defaults.items())
        assert paper == told[name]["paper"]


@pytest.mark.parametrize("name", ["scaffold", "ima", "fedadam", "central"])
def test_a_method_is_described_with_its_values_meanings_and_deviations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["methods", name, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main(["methods", name]) == 0
    facts: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        key, _, text = line.partition("\t")
        facts.setdefault(key, []).append(text)
    assert [facts[key][0] for key in ("name", "kind", "paper")] == [
        told[key] for key in ("name", "kind", "paper")
    ]
    values = told["hyperparameters"]
    lines = dict(zip(values, facts.get("hyperparameters", []), strict=True))
    for key, line in lines.items():
        meaning = told["meanings"][key]
        assert line == f"{key} = {registry_value(name, key)}" + (f": {meaning}" if meaning else "")
    assert len(facts.get("deviations", [])) == len(told["deviations"])
    for line, item in zip(facts.get("deviations", []), told["deviations"], strict=True):
        assert line.startswith(f"{item['item']}: ") and item["why"] in line
        assert line.endswith(f"{item['field']} = {item['released']}")


def registry_value(name: str, key: str) -> object:
    part = registry.part(name)
    assert part is not None
    return registry.describe(part)["hyperparameters"][key]


@pytest.mark.parametrize("seed", [-1, 0, 1, 2**32 - 1, 2**32])
def test_a_seed_is_one_that_every_generator_takes(seed: int) -> None:
    if 0 <= seed < 2**32:
        arguments.require_seed("--seed", seed)
    else:
        with pytest.raises(UserError, match=f"--seed: {seed}: expected"):
            arguments.require_seed("--seed", seed)


def test_values_of_the_command_line_have_the_types_of_files(bench: Workbench) -> None:
    texts = ["a=1", "b=1.5", "c=true", "d=null", "e=word", "f=1e-3", "g=x=y", "h="]
    assert arguments.values_of(texts) == {
        "a": 1, "b": 1.5, "c": True, "d": None, "e": "word", "f": 0.001, "g": "x=y", "h": None
    }  # fmt: skip
    for wrong in (["a"], ["=1"], ["a=1", "a=2"], ["a=[1]"]):
        with pytest.raises(UserError, match="--set"):
            arguments.values_of(wrong)
    named = argparse.Namespace(setting="own/t", method="fedprox", seed=3, set=[])
    assert arguments.requested(named)[1] == RunKey("own/t", "fedprox", 3)


# --- verify ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("stale", "elsewhere"), [(0, 0), (1, 0), (0, 2), (10, 11), (13, 1)])
def test_verify_counts_what_is_stale_and_what_is_of_another_machine(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, stale: int, elsewhere: int
) -> None:
    whole = max(stale, elsewhere) + 2
    runs = [(None, RunKey("own/s", "fedavg", seed)) for seed in range(whole)]

    def standing(_: object, run: RunKey) -> SimpleNamespace:
        if run.seed == whole - 1:  # of an experiment that is gone
            raise UserError("gone")
        why = "other code" if run.seed < stale else ""
        return SimpleNamespace(why=why, elsewhere="other torch" if run.seed < elsewhere else "")

    monkeypatch.setattr(verify, "runs_in", lambda folder: runs)
    monkeypatch.setattr(verify, "standing_of", standing)
    lines = [*verify._other_results(Path("results"))]
    wanted = []
    for count, words in ((stale, "other code"), (elsewhere, "other torch")):
        if count:
            wanted.append((f"{count} run{'s' if count > 1 else ''} ", words, count))
    wanted.insert(bool(stale), ("1 run of a setting ", "", 0))
    heads = [line for line in lines if not line.startswith("  ")]
    assert len(heads) == len(wanted)
    for head, (start, _, _) in zip(heads, wanted, strict=True):
        assert head.startswith(start)
    assert f"  own/s fedavg --seed {whole - 1}: gone" in lines
    for _, words, count in wanted:
        if not count:
            continue
        named = [line for line in lines if line.endswith(f": {words}")]
        assert named == [
            f"  own/s fedavg --seed {seed}: {words}" for seed in range(min(count, verify.MOST))
        ]
    more = [line for line in lines if line.endswith(" more")]
    assert more == [f"  and {count - 10} more" for _, _, count in wanted if count > 10]


def test_verify_names_the_runs_of_what_is_not_here(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not those of released forms, which are no methods of their own."""
    methods = ("fedprox@released", "ima+fedavg@released", "fedpraxx", "fedavg")
    runs = [(None, RunKey("own/s", method, 1)) for method in methods]
    monkeypatch.setattr(verify, "runs_in", lambda folder: runs)
    current = SimpleNamespace(why="", elsewhere="")
    monkeypatch.setattr(verify, "standing_of", lambda *given: current)
    _, line = verify._other_results(Path("results"))
    assert line.startswith("  own/s fedpraxx --seed 1: ")


# --- estimate -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("runs", "done", "unknown", "shown"),
    [(5, 0, 0, "2.50"), (5, 2, 0, "2.50"), (5, 0, 2, "> 2.50"), (5, 2, 2, "> 2.50"),
     (5, 2, 3, "?"), (3, 0, 3, "?")],
)  # fmt: skip
def test_hours_that_are_not_all_known_are_more_and_hours_of_nothing_known_are_none(
    runs: int, done: int, unknown: int, shown: str
) -> None:
    line = {"runs": runs, "done": done, "unknown": unknown, "hours": 2.5, "wall": 0.5}
    assert plan._hours(line, "hours") == shown
    assert plan._wall(line) == (
        "30.0 minutes" if shown == "2.50" else shown.replace("2.5", "0.5") + " hours"
    )
    assert plan._wall({**line, "wall": 1.0}).endswith("hours")


# --- rank -----------------------------------------------------------------------------------------
RUNS = [RunKey("own/s", "fedavg", seed) for seed in (1, 2, 3)]


@pytest.mark.parametrize("made", [(), (1,), (1, 2), (1, 2, 3)])
@pytest.mark.parametrize("status", [0, 1])
def test_the_runs_that_snakemake_could_not_make_are_counted_and_named(
    bench: Workbench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    made: tuple[int, ...],
    status: int,
) -> None:
    asked: list[tuple[list[str], int]] = []

    def snakemake(files: list[str], cores: int) -> int:
        asked.append((files, cores))
        for run in RUNS:
            if run.seed in made:
                write_run(bench, run, [0.5, 0.6])
            else:
                log = Path(f"results/logs/run/{run.name}.log")
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_text(f"fedrepro: it broke with {run.seed}\n", encoding="utf-8")
        return status

    monkeypatch.setattr(ranking, "_snakemake", snakemake)
    config = bench.config.model_copy(update={"threads": 2})
    wide = Workbench(**{**vars(bench), "config": config})
    left = [run for run in RUNS if run.seed not in made]
    assert ranking.train(wide, dict.fromkeys(RUNS, False), 3) == (len(left) if status else 0)
    assert asked == [([f"{run.folder}/manifest.json" for run in RUNS], 6)]
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "failed" in line] == [
        f"own/s fedavg seed {run.seed}: failed: it broke with {run.seed}" for run in left if status
    ]
    assert ranking.train(bench, {}, 1) == 0 and len(asked) == 1  # nothing is asked for


def test_the_cost_of_runs_adds_up_by_setting(bench: Workbench) -> None:
    runs = [*RUNS, RunKey("own/t", "scaffold", 1), RunKey("own/t", "ima+fedavg", 1)]
    write_run(bench, RUNS[0], [0.5, 0.6])
    lines = ranking._cost_lines(bench, runs, 2)
    by_name = {line["name"]: line for line in lines}
    assert [(line["kind"], line["name"]) for line in lines][-1] == ("all", "all")
    assert (by_name["own/s"]["runs"], by_name["own/s"]["done"]) == (3, 1)
    assert by_name["own/t"]["runs"] == 2 and lines[-1]["runs"] == 6
    assert by_name["inputs"]["runs"] == 1  # FedAvg's, whose first rounds IMA continues
    for key in ("runs", "done", "hours", "steps", "unknown", "disk"):
        assert lines[-1][key] == pytest.approx(sum(line[key] for line in lines[:-1])), key
    assert lines[-1]["memory"] == max(line["memory"] for line in lines[:-1])
    assert 0 < lines[-1]["wall"] <= lines[-1]["hours"]
    alone = ranking._cost_lines(bench, runs, 1)
    assert alone[-1]["wall"] == pytest.approx(alone[-1]["hours"])


@pytest.mark.parametrize(
    ("hours", "words"),
    [(0.0, "0.0 minutes"), (0.999, "59.9 minutes"), (1.0, "1.0 hours"), (36.04, "36.0 hours")],
)
def test_a_time_is_in_minutes_below_an_hour(hours: float, words: str) -> None:
    assert ranking.span(hours) == words
    assert ranking.span(hours, "CPU ") == words.replace(" ", " CPU ")


def test_what_is_to_be_trained_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    total: dict[str, Any] = {"runs": 5, "done": 2, "unknown": 0, "hours": 0.5, "wall": 0.25}
    ranking._say_cost(total, 2)
    ranking._say_cost({**total, "unknown": 2}, 2)
    ranking._say_cost({**total, "done": 5}, 2)
    ranking._say_cost(total, 2, at_most=True)
    first, second, third, most = capsys.readouterr().err.splitlines()
    assert first == "3 runs to train: 30.0 CPU minutes, 15.0 minutes with 2 at a time."
    assert second == f"{first[:-1]}; 2 of them at unknown cost."
    assert "Nothing to train" in third
    assert most.startswith(f"{first[:-1]}; at most, ")
    ranking._say_unable({"a": "x", "b": "x", "c": "x", "d": "x", "e": "y"})
    assert capsys.readouterr().err.splitlines() == [
        "can't run in a; b; c and 1 more: x", "can't run in e: y"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("states", "here", "failed"),
    [
        (("failed", "not run"), (), 2),  # something began
        (("not run", "not run"), (1,), 1),  # one was there, or is made now
        (("not run", "not run"), (), None),
    ],
)
def test_that_nothing_began_is_an_error_and_that_some_failed_is_counted(
    bench: Workbench,
    monkeypatch: pytest.MonkeyPatch,
    states: tuple[str, str],
    here: tuple[int, ...],
    failed: int | None,
) -> None:
    """A run is there once its synthetic set is evaluated, if it is asked for."""
    runs = {RUNS[0]: True, RUNS[1]: False}
    asked: list[Any] = []
    monkeypatch.setattr(ranking, "_snakemake", lambda files, cores: asked.append(files) or 1)
    there = {(run, runs[run]) for run in RUNS[:2] if run.seed in here}
    there |= {(run, not judged) for run, judged in runs.items()}
    monkeypatch.setattr(ranking, "is_there", lambda _, run, judged=False: (run, judged) in there)
    records = {run: SimpleNamespace(run=run, why="", state=state)
               for run, state in zip(RUNS, states, strict=False)}  # fmt: skip
    monkeypatch.setattr(ranking, "read_run", lambda _, run: records[run])
    if failed is None:
        with pytest.raises(UserError):
            ranking.train(bench, runs, 1)
    else:
        assert ranking.train(bench, runs, 1) == failed
    assert asked == [[str(RUNS[0].analysis("quality")), f"{RUNS[1].folder}/manifest.json"]]


def test_snakemake_goes_on_after_a_failure_in_a_process_group_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the terminal's signal does not reach it twice."""
    called: list[Any] = []

    def popen(command: list[str], **options: Any) -> SimpleNamespace:
        called.extend([command, options])
        return SimpleNamespace(poll=lambda: 3, returncode=3)

    monkeypatch.setattr(ranking.subprocess, "Popen", popen)
    assert ranking._snakemake(["a", "b"], 6) == 3
    command, options = called
    assert command[command.index("--cores") + 1] == "6" and "--keep-going" in command
    assert command[-2:] == ["a", "b"]
    assert options["process_group"] == 0 and options["stdout"] == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_goes_once_to_all_processes_of_snakemake(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Its end is awaited, whatever its status is then."""
    passed: list[object] = []
    left = [None] * 4

    def poll() -> int | None:
        if len(left) == 4:
            signal.raise_signal(number)
        return left.pop() if left else 0

    called = SimpleNamespace(pid=4711, poll=poll, wait=lambda seconds: None, returncode=0)
    monkeypatch.setattr(ranking.subprocess, "Popen", lambda command, **options: called)
    monkeypatch.setattr(os, "killpg", lambda *about: passed.append(about))
    with pytest.raises(Interrupted) as caught:
        ranking._snakemake(["x"], 1)
    assert (passed, caught.value.status, left) == ([(4711, number)], 128 + number, [])


@pytest.mark.parametrize("json_asked", [False, True])
@pytest.mark.parametrize(("searching", "failed"), [(True, (0, 0)), (True, (1, 0)), (True, (0, 2)),
                                                   (False, (0, 0)), (False, (0, 1))])  # fmt: skip
def test_a_league_is_of_what_a_search_chose_and_says_that_a_run_failed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    searching: bool,
    failed: tuple[int, ...],
    json_asked: bool,
) -> None:
    """Of the candidates' runs or of those that count; what is chosen is known after the search."""
    match = SimpleNamespace(setting="own/s")
    searches = [SimpleNamespace(match=match, method="mine")]
    choice = SimpleNamespace(setting="own/s", suffix="@lr", method="mine_a1")
    candidates = {RUNS[0]: False} if searching else {}
    trained: list[Any] = []
    ended, left = [], list(failed)

    def runs(chosen: Any) -> Any:
        return {RunKey(*chosen.get(("own/s", "mine"), ("own/s", "mine")), 1): True}

    def train(_: object, asked: Any, cores: int) -> int:
        trained.append((asked, cores))
        ended.append("search")
        return left.pop(0)

    def choose(_: object) -> list[Any]:
        assert bool(ended) == searching
        return [choice]

    request = SimpleNamespace(
        bench=None, candidates=candidates, runs=runs, unable={"x": "no"}, search="each",
        searches=searches, cores=3, costliest={},
    )  # fmt: skip
    line = {"name": "own/s", "runs": 5, "done": 2, "unknown": 0, "hours": 0.5, "wall": 0.25}
    monkeypatch.setattr(ranking, "_requested", lambda _: request)
    monkeypatch.setattr(ranking, "_cost_lines", lambda *_: [line, {**line, "name": "all"}])
    monkeypatch.setattr(ranking, "_choices", choose)
    monkeypatch.setattr(ranking, "train", train)
    league = SimpleNamespace(own="mine", played=[])
    given: list[Any] = []
    monkeypatch.setattr(ranking, "_league", lambda *about: given.append(about) or league)
    monkeypatch.setattr(ranking, "as_json", lambda _: {"a": 1})
    monkeypatch.setattr(ranking, "_remarks", lambda _: ["a remark"])
    words = argparse.Namespace(plan=False, json=json_asked)
    assert ranking.rank(words) == int(any(failed))
    chosen = {("own/s", "mine"): ("own/s@lr", "mine_a1")}
    count = {RunKey("own/s@lr", "mine_a1", 1): True}
    assert trained == [(candidates, 3), (count, 3)]
    assert given == [(request, chosen, [choice])]
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": 1} if json_asked else out.endswith("a remark\n")


@pytest.mark.parametrize("json_asked", [False, True])
def test_a_plan_of_a_league_trains_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], json_asked: bool
) -> None:
    request = SimpleNamespace(
        bench=None, candidates={}, runs=lambda chosen: {}, unable={"x": "no"}, search="each",
        searches=[], cores=3,
    )  # fmt: skip
    line = {"name": "own/s", "runs": 5, "done": 2, "unknown": 0, "hours": 0.5, "wall": 0.25}
    lines = [line, {**line, "name": "own/t", "hours": 2.0}, {**line, "name": "all", "runs": 10}]
    monkeypatch.setattr(ranking, "_requested", lambda _: request)
    monkeypatch.setattr(ranking, "_cost_lines", lambda *_: lines)
    monkeypatch.setattr(ranking, "_choices", lambda _: [])
    for name in ("train", "_league"):
        monkeypatch.setattr(ranking, name, None)
    assert ranking.rank(argparse.Namespace(plan=True, json=json_asked)) == 0
    out, said = capsys.readouterr()
    if json_asked:
        assert json.loads(out) == {"lines": lines, "at_most": False, "cannot_run": {"x": "no"}}
        return
    cells = [row.split("\t") for row in out.splitlines()]  # of a setting each, in minutes
    assert cells[1:] == [["own/s", "3", "30.0"], ["own/t", "3", "120.0"]]
    assert said.startswith("8 runs to train: ")


@pytest.mark.parametrize("there", [0, 2, 3])
def test_settings_in_which_fedavg_lacks_seeds_are_named_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], there: int
) -> None:
    """Not those that judge synthetic sets, which FedAvg makes none of."""
    match = {"judged": False, "seeds": (1, 2, 3, 4), "method": lambda name: name}
    settings = {"own/s": False, "own/m": True}
    matches = [
        SimpleNamespace(setting=name, **{**match, "judged": settings[name]})
        for name in ("own/s", "own/s", "own/m")
    ]
    request: Any = SimpleNamespace(bench=None, matches=matches, seeds=3)
    monkeypatch.setattr(
        ranking, "is_there", lambda _, run: run.method == "fedavg" and run.seed <= there
    )
    ranking._say_without_baseline(request)
    said = capsys.readouterr().err
    assert said.count("own/s") == (there < 3) and "own/m" not in said
    assert f"own/s ({there} of 3 seeds)" in said or there == 3


# --- estimate's cells, and claims -----------------------------------------------------------------
def test_a_line_of_an_estimate_has_each_number_in_its_unit() -> None:
    line = {"kind": "table", "name": "own/t", "runs": 1200, "done": 7, "steps": 3_000_000.4,
            "hours": 1234.5, "predicted": 2.25, "wall": 9.0, "unknown": 0, "disk": 8.6e9,
            "memory": 3.2e9}  # fmt: skip
    assert plan._cells(line, plan.OF_LINES) == (
        "table", "own/t", "1,200", "7", "3,000,000", "1,234.50", "2.25", "9.00", "0", "8,600",
        "3,200",
    )  # fmt: skip
    rate = {"workload": "w", "runs": 2000, "hours": 0.5, "steps_per_second": 1500.6, "source": "s"}
    assert plan._cells(rate, plan.OF_RATES) == ("w", "2,000", "0.50", "1,501", "s")
    assert plan._cells({**rate, "steps_per_second": None}, plan.OF_RATES)[3] == "?"
    data = {"name": "d", "runs": 3, "fetch": "1 file", "download": 2.6e6, "unsized": 1000,
            "disk": 5.4e6}  # fmt: skip
    assert plan._cells(data, plan.OF_DATA) == ("d", "3", "1 file", "3", "1,000", "5")
    assert plan._cells({**data, "disk": None}, plan.OF_DATA)[5] == "?"


CLAIM = {
    "claim": "own-a", "says": "A > B", "printed": "holds", "compact": "does not hold",
    "compact_lead": "-1.0 [-2.0, -0.5]", "compact_seeds": 5, "compact_diverged": 0,
    "compact_earlier_rule": False, "compact_rests_on": "",
    "ours": "holds", "lead": "+3.0 [+1.0, +5.0]", "seeds": 2, "released": "unclear",
}  # fmt: skip
NOT_COMPUTED = {
    "compact": "not computed",
    "compact_lead": "",
    "compact_seeds": 0,
    "ours": "not computed",
    "lead": "",
    "seeds": 0,
    "released": "not computed",
}


@pytest.mark.parametrize("diverged", [0, 4])
def test_a_script_finds_a_claim_s_numbers_by_scale(
    capsys: pytest.CaptureFixture[str], diverged: int
) -> None:
    """Divergences have a column where any claim has some."""
    claims.print_claims([CLAIM, {**CLAIM, **NOT_COMPUTED, "compact_diverged": diverged}], {})
    head, *lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert ("compact_diverged" in head) == bool(diverged)
    first, second = (dict(zip(head, line, strict=True)) for line in lines)
    assert first == {key: str(CLAIM[key]) for key in head}
    rare = {"compact_earlier_rule", "compact_rests_on", *["compact_diverged"] * (not diverged)}
    assert {*CLAIM} - {*head} == rare
    assert second["compact"] == second["ours"] == "not computed"


@pytest.mark.parametrize(
    ("changes", "small", "paper"),
    [
        ({}, "does not hold; -1.0 [-2.0, -0.5], 5 seeds",
         "holds; +3.0 [+1.0, +5.0], 2 seeds; as released: unclear"),
        ({"compact_diverged": 4}, "does not hold; -1.0 [-2.0, -0.5], 5 seeds; 4 diverged", None),
        ({"compact_earlier_rule": True},
         "does not hold; -1.0 [-2.0, -0.5], 5 seeds; setting by an earlier rule", None),
        ({"compact_rests_on": "A or B"},
         "does not hold; -1.0 [-2.0, -0.5], 5 seeds; not without A or B", None),
        (NOT_COMPUTED, "", ""),
        ({"compact": "none"}, "can't be tested", None),
        ({"seeds": 1, "released": "not computed"}, None, "holds; +3.0 [+1.0, +5.0], 1 seed"),
        ({"compact_seeds": 0, "lead": ""}, "does not hold", "holds; as released: unclear"),
    ],
)  # fmt: skip
def test_a_claim_on_a_terminal_has_what_is_computed_of_each_scale(
    changes: dict[str, Any], small: str | None, paper: str | None
) -> None:
    name, says, printed, *cells = claims._in_short({**CLAIM, **changes})
    assert (name, says, printed) == ("own-a", "A > B", "holds")
    for cell, wanted in zip(cells, (small, paper), strict=True):
        assert wanted in (None, cell)


def test_verdicts_are_counted_by_scale() -> None:
    counts = {
        "total": 11, "printed": {"holds": 8, "unclear": 3, "open": 0}, "no_compact": 2,
        "compact": {"holds": 5, "unclear": 4, "open": 0}, "ours": {"holds": 1, "unclear": 0},
        "experiments": {"holds": 3, "unclear": 1, "open": 0}, "earlier_rule": 7,
    }  # fmt: skip
    total, small, earlier, ours, _ = claims._counts(counts)
    assert re.findall(r"\d+", total) == ["11", "8", "3"]
    assert re.findall(r"\d+", small) == ["5", "3", "4", "1", "2"]
    assert re.findall(r"\d+", earlier) == ["7"]
    assert re.findall(r"\d+", ours) == ["1"]


@pytest.mark.parametrize(
    ("words", "command", "log"),
    [
        (["--log", "f", "run", "x"], "run x", "f"),
        (["run", "x", "--log", "f"], "run x", "f"),
        (["run", "x"], "run x", None),
        (["run", "--log"], "run --log", None),
    ],
)
def test_a_command_line_is_told_without_its_log(
    words: list[str], command: str, log: str | None
) -> None:
    assert without_log(words) == (command, log)
