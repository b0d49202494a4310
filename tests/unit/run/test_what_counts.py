"""Which result counts, what may go, and what a run's folder will take: each rule, case by case."""

import json
import math
import os
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fedrepro.config.targets import RunKey
from fedrepro.models import registry as models
from fedrepro.provenance.identity import Difference, Meaning
from fedrepro.run import (
    assembly,
    checkpoint,
    disk_space,
    landed_runs,
    manifest,
    results,
    shared_prefix,
    standing,
)
from fedrepro.run.derived_files import changed_sources, read_derived
from fedrepro.run.integrity import Check
from fedrepro.run.landed_runs import LandedRun
from fedrepro.run.results import find_run, finished_run, read_run, seal_of_run, status_of
from fedrepro.run.run_comparison import SAME, Side, compare_landed, of_rounds
from fedrepro.run.standing import Standing
from fedrepro.support import checksummed_json
from fedrepro.support.errors import UserError
from fedrepro.support.files import TOKEN
from fedrepro.support.plugins import NONE
from support.manifests import write_bare, write_manifest
from support.numbers_in_text import numbers_in
from support.refusals import refused
from support.tiny_run import dataset, run_spec

RUN = RunKey("test/blobs", "fedavg", 1)
AS_REFERENCE = results.reference_folder(RUN)


def sealed(root: Path, folder: Path | None = None, **more: Any) -> str:
    """A run's seal, written to its own place or to that of the reference result."""
    made = write_bare(root, RUN, **more)
    if folder:
        (root / folder).parent.mkdir(parents=True, exist_ok=True)
        made = Path(shutil.move(made, root / folder))
    return str(json.loads((made / "manifest.json").read_text(encoding="utf-8"))["seal"])


# --- which of several results ---------------------------------------------------------------------
def test_this_machine_s_result_comes_before_the_reference_result(tmp_path: Path) -> None:
    assert seal_of_run(tmp_path, RUN) == ""
    reference = sealed(tmp_path, AS_REFERENCE, rounds_done=1)
    assert seal_of_run(tmp_path, RUN) == reference
    assert find_run(tmp_path, RUN).reference
    own = sealed(tmp_path, rounds_done=2)
    assert own != reference and seal_of_run(tmp_path, RUN) == own
    assert not find_run(tmp_path, RUN).reference
    elsewhere = Path("moved/runs")
    shutil.copytree(tmp_path / "results/runs", tmp_path / elsewhere)
    shutil.rmtree(tmp_path / "results")
    assert seal_of_run(tmp_path, RUN, elsewhere) == own
    # A damaged one of this machine is said to be so: it is not passed over.
    sealed(tmp_path)
    (tmp_path / RUN.folder / "manifest.json").write_text("{", encoding="utf-8")
    assert find_run(tmp_path, RUN).state == "damaged"
    assert seal_of_run(tmp_path, RUN) == "damaged"


def test_what_was_made_of_a_damaged_run_is_not_said_to_be_of_another(tmp_path: Path) -> None:
    """`verify` says the damage alone."""
    check = Check(tmp_path / "results")
    (tmp_path / "results").mkdir()
    assert check._seal_of(RUN) is None
    seal = sealed(tmp_path)
    assert check._seal_of(RUN) == seal
    what = "tables/paper/mine/x"
    checksummed_json.write(tmp_path / f"results/{what}.json", {"of": {RUN.name: seal}}, what)
    check.results.joinpath("tables/other.json").write_text("{", encoding="utf-8")
    (fault,) = (each for each in check._sealed())
    assert "other.json" in fault
    sealed(tmp_path, rounds_done=5)
    assert len([*check._sealed()]) == 2
    (tmp_path / RUN.folder / "manifest.json").write_text("{", encoding="utf-8")
    assert check._seal_of(RUN) is None
    assert len([*check._sealed()]) == 1


def test_what_was_made_of_runs_is_compared_with_each_of_them() -> None:
    content = {"of": {"a/s/fedavg/1": "one", "a/s/ima/2": "two", "a/s/moon/3": "three"}}
    now = {"fedavg": "one", "ima": "other", "moon": None}
    assert [*changed_sources(content, lambda run: now[run.method])] == ["a/s/ima/2"]
    assert [*changed_sources(content, lambda run: "")] == [*content["of"]]  # they are gone
    assert [*changed_sources({}, lambda run: "x")] == []


def test_what_was_made_of_a_run_is_refused_once_that_is_another(tmp_path: Path) -> None:
    what = RUN.analysis("quality")
    assert read_derived(tmp_path, what) is None
    for landed in (None, AS_REFERENCE):
        content = {"of": {RUN.name: sealed(tmp_path, landed)}, "classes": 3}
        checksummed_json.write(tmp_path / what, content, checksummed_json.of_results(what))
        found = read_derived(tmp_path, what)
        assert found is not None and content.items() <= found.items()
        shutil.rmtree(tmp_path / (landed or RUN.folder))
        with refused("damaged", file=str(what), value=RUN.name):
            read_derived(tmp_path, what)
        sealed(tmp_path, landed, rounds_done=5)
        with refused("damaged", file=str(what), value=RUN.name):
            read_derived(tmp_path, what)
        shutil.rmtree(tmp_path / (landed or RUN.folder))


@pytest.mark.parametrize(
    ("about", "state"),
    [
        ({"status": "finished", "rounds_done": 8}, "finished"),
        ({"status": "finished", "rounds_done": 7}, "stopped early"),
        ({"status": "finished", "rounds_done": 7, "stopped": "reached 60 %"}, "finished"),
        ({"status": "finished", "rounds_done": 9}, "finished"),
        ({"status": "diverged", "rounds_done": 3, "diverged_at": 3}, "diverged"),
        ({"status": "finished", "rounds_done": 7, "stopped": ""}, "stopped early"),
        ({"status": "finished"}, "finished"),
    ],
)
def test_states_and_who_takes_a_finished_run(
    tmp_path: Path, about: dict[str, Any], state: str
) -> None:
    made = {"run": {"setting": RUN.setting, "method": RUN.method, "seed": 1, "rounds": 8}, **about}
    assert status_of(made)[0] == state
    write_manifest(write_bare(tmp_path, RUN), {"files": {}, **made})
    assert read_run(tmp_path, RUN).state == state
    if state == "finished":
        assert finished_run(tmp_path, RUN).manifest["status"] == "finished"
    else:
        with refused("missing", file=str(RUN.folder), names=RUN.command):
            finished_run(tmp_path, RUN)


def test_scores_on_validation_samples_take_the_place_of_those_on_test_samples() -> None:
    columns: dict[str, dict[str, list[Any]]] = {
        "rounds.parquet": {
            "round": [1], "learning_rate": [0.5], "test_loss": [3.0], "test_accuracy": [0.1],
            "validation_loss": [2.0], "validation_accuracy": [None],
        },
        "clients.parquet": {
            "round": [1, 1], "client": [0, 1], "train_samples": [5, 6], "test_samples": [1, 2],
            "accuracy": [0.1, 0.2], "participations": [3, 4],
            "validation_samples": [7, 8], "validation_accuracy": [0.6, 0.7],
        },
        "mixtures.parquet": {"client": [0], "weight": [0.5], "accuracy": [0.5]},
    }  # fmt: skip
    archived = LandedRun({}, {}, {}, columns)
    tested = results.RunRecord(Path(), RUN, Path(), True, "finished", landed=archived)
    assert tested.rounds["test_loss"] == [3.0] and tested.clients["accuracy"] == [0.1, 0.2]
    assert tested.clients["test_samples"] == [1, 2] and tested.mixtures["weight"] == [0.5]
    chosen = replace(tested, scored_on="validation")
    assert chosen.rounds.keys() == {"round", "learning_rate", "test_loss", "test_accuracy"}
    assert chosen.rounds["test_loss"] == [2.0]
    assert math.isnan(chosen.rounds["test_accuracy"][0])
    assert chosen.clients == {
        "round": [1, 1], "client": [0, 1], "train_samples": [5, 6], "test_samples": [7, 8],
        "accuracy": [0.6, 0.7],
    }  # fmt: skip
    assert chosen.mixtures == {}


def test_images_are_in_the_order_of_their_rounds(tmp_path: Path) -> None:
    files = {f"round{number}-images.safetensors": "x" for number in (10, 2, 1)}
    files |= {"round3-client1.safetensors": "x", "rounds.parquet": "x"}
    record = results.RunRecord(
        tmp_path, RUN, Path("x"), False, "finished", manifest={"files": files}
    )
    assert record.rounds_with_images == [1, 2, 10]
    (tmp_path / "x").mkdir()
    (tmp_path / "x/round2-images.safetensors").touch()
    assert replace(record, reference=True).rounds_with_images == [2]
    assert replace(record, state="damaged").rounds_with_images == []


def test_a_landed_table_keeps_scores_of_the_last_round_and_no_empty_column() -> None:
    table = {
        "round": [1, 1, 2, 2], "client": [0, 1, 0, 1], "test_samples": [4, 5, 4, 5],
        "accuracy": [0.1, 0.2, 0.3, None], "ece_batch": [1.0, 1.0, 1.0, 1.0], "drift": [None] * 4,
    }  # fmt: skip
    last = {"round": [2, 2], "client": [0, 1], "test_samples": [4, 5], "accuracy": [0.3, None]}
    for name in ("clients.parquet", "decisions.parquet", "mixtures.parquet"):
        assert landed_runs.reduced(name, table) == last
    every = {key: table[key] for key in last}
    assert landed_runs.reduced("rounds.parquet", table) == every
    without = {key: table[key] for key in ("round", "client", "accuracy")}
    assert landed_runs.reduced("clients.parquet", without) == {}
    assert landed_runs.reduced("decisions.parquet", without)["round"] == [2, 2]
    mixtures = {"client": [0, 1], "weight": [0.0, 0.0]}  # scored once, after the last round
    assert landed_runs.reduced("mixtures.parquet", mixtures) == mixtures


# --- current or not -------------------------------------------------------------------------------
@pytest.mark.parametrize("state", ["finished", "diverged", "damaged", "stopped early", "not run"])
def test_a_current_result_is_whole_and_has_the_numbers_of_today(state: Any) -> None:
    record = results.RunRecord(Path(), RUN, Path(), False, state, "why so")
    whole = state in ("finished", "diverged")
    for meaning in Meaning:
        differing = Difference(meaning, "data", "key", words=f"of {meaning.name}")
        found = Standing(record, (differing,))
        other = meaning is Meaning.OTHER_NUMBERS
        assert found.is_current == (whole and not other)
        assert bool(found.elsewhere) == (meaning in (Meaning.OTHER_BITS, Meaning.APART))
        said = "why so" if state == "damaged" else f"of {meaning.name}" * other
        assert found.why.endswith(said) and bool(found.why) == bool(said)


@pytest.mark.parametrize("state", ["finished", "diverged", "not run"])
@pytest.mark.parametrize("stale", [False, True])
def test_an_input_is_a_finished_run_that_is_current(
    state: Any, stale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    differing = (Difference(Meaning.OTHER_NUMBERS, "code", "x", words="other code"),)
    record = results.RunRecord(Path(), RUN, Path(), False, state, f"it is {state}")
    found = Standing(record, differing if stale else ())
    monkeypatch.setattr(standing, "standing_of", lambda bench, run: found)
    ask: Any = (SimpleNamespace(), run_spec())
    if state == "finished" and not stale:
        standing.refuse_stale_input(*ask)
    else:
        with pytest.raises(UserError, match="other code" if stale else f"it is {state}"):
            standing.refuse_stale_input(*ask)


@pytest.mark.parametrize(
    "key", ["", "machine", "processor", "vector_instructions", "torch", "accelerator", "cores"]
)
def test_the_kind_of_machine_that_gives_the_same_bits(key: str) -> None:
    here = manifest.hardware("cpu")
    packages = {"torch": torch.__version__.partition("+")[0]}
    there = {"hardware": {**here}, "packages": packages}
    if key == "torch":
        there["packages"] = {"torch": "1.0"}
    elif key:
        there["hardware"][key] = "another"
    assert manifest.is_of_this_kind(there) == (key in ("", "cores"))


def test_a_run_made_again_is_compared_number_by_number() -> None:
    def record(accuracies: list[float], loss: float, **more: Any) -> Any:
        tables = {
            "rounds.parquet": {"round": [1, 2], "test_accuracy": accuracies, "gap": [loss, loss]}
        }
        archived = LandedRun(more.get("manifest", {}), {}, {}, tables)
        state = more.pop("state", "finished")
        made = results.RunRecord(Path(), RUN, Path(), True, state, landed=archived, **more)
        vars(made)["quality"] = {"numbers": {"accuracy": 0.5, "fid": None}}
        return made

    landed = record([0.25, 0.5], 1.0)
    assert compare_landed(landed, record([0.25, 0.5], 1.0), same_kind=True) == (SAME, True)
    made = record([0.125, 0.55], 2.0)
    for same_kind in (True, False):
        words, expected = compare_landed(landed, made, same_kind=same_kind)
        assert numbers_in(words) == [4, 6, 12.5] and "(gap, test_accuracy)" in words
        assert expected == (not same_kind)
    ended = record([0.25, 0.5], 1.0, state="diverged")
    assert compare_landed(landed, ended, same_kind=False).expected is False
    without = record([0.25, 0.5], 1.0)
    vars(without)["quality"] = {}
    words, _ = compare_landed(landed, without, same_kind=True)
    assert numbers_in(words)[:2] == [1, 6] and "(quality accuracy)" in words


def test_a_round_that_differs_and_one_that_is_missing() -> None:
    ours = {"round": [1.0, 2.0, 3.0], "loss": [3.0, 2.0, 1.0]}

    def said(theirs: dict[str, list[float]]) -> str:
        (line,) = of_rounds(Side("a", {}, ours), Side("b", {}, theirs))
        return line

    missing = said({"round": [1.0, 3.0], "loss": [3.0, 5.0]})
    assert numbers_in(missing) == [2] and " a " in missing and " b " not in missing
    other = said({"round": [1.0, 2.0, 4.0], "loss": [3.0, 5.0, 1.0]})
    assert numbers_in(other)[0] == 2 and ": loss: 2.0 -> 5.0" in other
    longer = {"round": [1.0, 2.0, 3.0, 4.0], "loss": [3.0, 2.0, 1.0, 0.0]}
    assert numbers_in(said(longer)) == [4] and " b " in said(longer) and " a " not in said(longer)


# --- what may go, what it takes -------------------------------------------------------------------
def test_the_space_that_goes_is_that_of_files_with_one_name(tmp_path: Path) -> None:
    kept, linked = tmp_path / "a/x/one", tmp_path / "a/y/two"
    for path, size in ((kept, 700), (linked, 50)):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * size)
    (tmp_path / "b").mkdir()
    os.link(linked, tmp_path / "b/again")
    going = disk_space.Removable(tmp_path / "a", "test", (kept, linked), 1.0)
    assert going.size == 700
    (tmp_path / "b/more").write_bytes(b"x" * 900)
    found = disk_space.sizes(tmp_path)
    directories = sum(path.lstat().st_size for path in (kept.parent, linked.parent))
    assert found == {"b": 900, "a": 750 + directories} or [*found] == ["a", "b"]
    assert found["b"] == 900 and found["a"] == 750 + directories
    assert [*found.values()] == sorted(found.values(), reverse=True)
    going.remove()
    assert not (tmp_path / "a").exists() and (tmp_path / "b/again").stat().st_size == 50


@pytest.mark.parametrize(("days", "goes"), [(2.5, True), (3.5, False)])
def test_only_what_is_as_old_as_asked_for(tmp_path: Path, days: float, goes: bool) -> None:
    aside = tmp_path / f"results/runs/a/s/fedavg/seed1.aside-{'0' * 12}"
    aside.mkdir(parents=True)
    (aside / "checkpoint.safetensors").write_bytes(b"x")
    then = disk_space.time.time() - 3 * disk_space.DAY
    os.utime(aside / "checkpoint.safetensors", (then, then))
    found = [*disk_space.removable(tmp_path, days)]
    assert [each.folder for each in found] == ([aside] if goes else [])
    assert all(2.9 < each.days < 3.1 for each in found)


def test_models_that_a_run_keeps_are_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each round those of the cohort and the server's, with their running statistics."""
    spec = run_spec(save_models_at={"fedprox": [1, 2, 3], "fedavg": [1, 3]}, participation=0.3)
    data, usage = dataset(), namedtuple("usage", "total used free")

    def make(shape: Any, outputs: int) -> nn.Module:
        rate = torch.linspace(0, 0.1, 3)[1].item()  # needs numbers, as stochastic depth does
        linear = nn.Linear(4, 300)
        return nn.Sequential(nn.Flatten(), linear, nn.Dropout(rate), nn.BatchNorm1d(300))

    size = 4 * (4 * 300 + 300 + 2 * 300 + 2 * 300)
    for clients, cohort in ((20, 6), (5, 1), (2, 1)):
        needed = 2 * (cohort + 1) * size
        for free, enough in ((needed, True), (needed - 1, False)):
            monkeypatch.setattr(shutil, "disk_usage", lambda folder, n=free: usage(0, 0, n))
            with models.given("logistic", make):
                if enough:
                    said = disk_space.space_for_models(spec, data, clients, tmp_path)
                    number = 2 * (cohort + 1)
                    assert said.startswith(f"keeps {number} models of {size / 1e6:.1f} MB")
                else:
                    with refused(key="save_models_at", value=[1, 3], names=("space", "free")):
                        disk_space.space_for_models(spec, data, clients, tmp_path)
    assert disk_space.space_for_models(run_spec(), data, 20, tmp_path) == ""


def test_a_run_is_of_a_kind_of_device_and_not_of_one_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    specs = [run_spec(device=device) for device in ("cuda:0", "cuda:1")]
    one, other = (manifest.of_spec(spec, "code", {}) for spec in specs)
    assert one == other and "numerics" not in one and one["device"] == "cuda"
    assert manifest.of_spec(specs[0], "code", {"fedavg": "n1"})["numerics"] == {"fedavg": "n1"}


def test_speed_counts_the_rounds_of_the_run_itself() -> None:
    plan: Any = SimpleNamespace(workers=3)
    state: Any = SimpleNamespace(done=12, began=None, wall_seconds=4.0, cpu_seconds=6.0, resumed=2)
    found = manifest.timing(plan, state)
    assert (found["rounds_per_second"], found["workers"], found["resumed"]) == (3.0, 3, 2)
    assert (found["wall_seconds"], found["cpu_seconds"]) == (4.0, 6.0)
    state.began = {"round": 10}
    assert manifest.timing(plan, state)["rounds_per_second"] == 0.5
    state.wall_seconds = 0.0
    assert manifest.timing(plan, state)["rounds_per_second"] == 0.0
    assert found["peak_memory_bytes"] > 50e6


@pytest.mark.parametrize(
    ("sizes", "cohort", "parallel"),
    # Two epochs in batches of 8: a mean of 25 samples makes 8 steps of a client in a round.
    [([49, 1], 3, True), ([49, 1], 2, False), ([25] * 9, 3, True), ([8] * 9, 9, False)],
)
def test_a_second_process_pays_by_the_steps_of_a_round(
    sizes: list[int], cohort: int, parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 20 steps on, with convolutions; however many rounds there are."""
    monkeypatch.setattr(assembly.arithmetic, "pays", lambda spec: False)
    for rounds in (1, 40):
        spec = run_spec(model="mcmahan_cnn", rounds=rounds, executor="auto", threads=2)
        found = assembly._executor(spec, SimpleNamespace(sizes=sizes), cohort)  # type: ignore[arg-type]
        assert (found == "parallel") == parallel
    alone = replace(spec, execution=replace(spec.execution, threads=1))
    assert assembly._executor(alone, SimpleNamespace(sizes=sizes), cohort) == "sequential"  # type: ignore[arg-type]


# --- how far a run goes with its parent -----------------------------------------------------------
IMA = {"ima": {"start": 0.5, "window": 2}}
LATE = {"ima": {"start": 1.0, "window": 1}}


@pytest.mark.parametrize(
    ("child", "parent", "keys", "rounds"),
    [
        (("ima+fedavg", IMA), ("fedavg", {}), {}, 4),
        (("ima+fedavg", {"ima": {"start": 0.59, "window": 1}}), ("fedavg", {}), {}, 5),
        (("ima+fedavg", LATE), ("fedavg", {}), {}, 9),  # a parent's last round is not kept
        (("ima+fedavg", IMA), ("fedavg", {}), {"save_models_at": {"ima+fedavg": [9, 3]}}, 2),
        (("ima+fedavg", IMA), ("fedavg", {}), {"save_models_at": {"fedavg": [1]}}, 4),
        (("ima+fedavg", IMA), ("fedavg", {}), {"save_models_at": {"ima+fedavg": [1]}}, 0),
        (("ima+fedavg+fedadam", IMA), ("fedavg+fedadam", {}), {}, 4),
        (("ima+fedavg+fedadam", IMA), ("fedavg", {}), {}, 0),
        (("ima+fedavg", IMA), ("fedavg+fedyogi", {}), {}, 0),
        (("ima+fedprox", IMA), ("fedprox", {"fedprox": {"mu": 0.5}}), {}, 0),
        (("ima+fedprox", IMA), ("fedavg", {}), {}, 0),
        (("scaffold", {}), ("fedavg", {}), {}, 0),
        (("ima+fedavg", IMA), None, {}, 0),
    ],
)
@pytest.mark.parametrize("same_class", [True, False])
def test_how_many_rounds_a_run_shares_with_its_parent(
    child: Any, parent: Any, keys: dict[str, Any], rounds: int, same_class: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Those of a parent with the same method, server optimizer and class of arithmetic."""
    made = {each[0]: each for each in (child, parent) if each}
    setting = run_spec(rounds=10, **keys).setting
    run = RunKey("test/blobs", child[0], 3)
    of_parent = replace(run, method=parent[0]) if parent else None
    bench: Any = SimpleNamespace(
        parent_of=lambda key: of_parent if key == run else None,
        setting=lambda name: setting,
        composition_of=lambda setting, name: made[name],
        spec_of=lambda run: run.method,
        plugins=NONE,
        runs_of=lambda setting, scales: [run, replace(run, method="moon")],
        root=Path("root"),
    )
    classes = {child[0]: "one", **({parent[0]: "one" if same_class else "other"} if parent else {})}
    monkeypatch.setattr(shared_prefix.arithmetic, "of_spec", classes.__getitem__)
    rounds = rounds if same_class else 0
    assert shared_prefix.shared_rounds(bench, run) == rounds
    for module, name in (
        (shared_prefix.fingerprint, "of_code"),
        (shared_prefix.numerics, "of_run"),
    ):
        monkeypatch.setattr(module, name, lambda spec, name=name: f"{name} {spec}")
    known = shared_prefix.sharing_of(bench, run)
    assert known.rounds == frozenset() and (known.parent is not None) == (rounds > 0)
    if rounds and of_parent:
        name, kept_at = parent[0], Path("root", shared_prefix.kept_of(of_parent))
        ids = (f"of_code {name}", f"of_run {name}")
        assert known.parent == shared_prefix.ParentRun(name, *ids, rounds, kept_at)  # type: ignore[arg-type]
    if of_parent:
        kept = shared_prefix.sharing_of(bench, of_parent)
        assert kept.rounds == ({rounds} if rounds else set())
        assert kept.folder == Path("root/results/trunks/test/blobs", parent[0], "seed3")


def test_kept_checkpoints_have_the_numbers_of_their_rounds(tmp_path: Path) -> None:
    for name in ("round3", "round12", "roundabout", "round", "other4"):
        (tmp_path / name).mkdir()
    found = sorted(shared_prefix.kept_in(tmp_path))
    assert found == [(3, tmp_path / "round3"), (12, tmp_path / "round12")]


@pytest.mark.parametrize("first", ["0", "f"])
def test_who_takes_the_lock_goes_on_from_the_folder_with_a_checkpoint(
    tmp_path: Path, first: str
) -> None:
    """Of several that holders left; the others go, but for what no holder made."""
    partial = tmp_path / "seed1.partial"
    kept, empty = (partial / f"{checkpoint.HOLDER}{digit * TOKEN}" for digit in (first, "7"))
    for folder in (kept, empty, partial / "somebody"):
        folder.mkdir(parents=True)
    (kept / checkpoint.CHECKPOINT).write_bytes(b"x")
    lock: Any = SimpleNamespace(token="a" * TOKEN)
    mine = checkpoint.claim(partial, lock)
    assert mine == partial / f"{checkpoint.HOLDER}{lock.token}"
    assert (mine / checkpoint.CHECKPOINT).read_bytes() == b"x"
    assert kept.is_file() and not empty.exists() and (partial / "somebody").is_dir()
    checkpoint.leave(partial, mine)
    assert [path.name for path in partial.iterdir()] == ["somebody"]
