"""The class of arithmetic: what it follows from, and that no run replaces one of another class."""

import json
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from fedrepro.data.catalogue.entries import DataSize
from fedrepro.engine.executor_facts import PER_CLIENT, STACKED
from fedrepro.provenance import arithmetic
from fedrepro.provenance.arithmetic import UNKNOWN
from fedrepro.provenance.identity import Identity, differences, may_average, other_numbers
from fedrepro.run.results import reference_runs
from fedrepro.run.runner import Progress
from support.manifests import write_manifest
from support.places import ROOT
from support.refusals import refused
from support.tiny_run import carry_out, run_spec

SIZE = DataSize(train=6_000, shape=(1, 2, 2), classes=3)


@pytest.mark.parametrize(
    ("execution", "words"),
    [
        ({"executor": "sequential"}, "per client"),
        ({"executor": "parallel", "threads": 4}, "per client"),
        ({"executor": "vectorised"}, "stacked"),
        ({"executor": "auto", "threads": 4}, "per client"),
        ({"executor": "sequential", "threads": 4}, "per client, 4 threads"),
        (
            {"executor": "vectorised", "threads": 2, "device": "cuda:1"},
            "stacked, 2 threads, cuda without TF32",
        ),
        (
            {"executor": "auto", "model": "mcmahan_cnn", "precision": "bfloat16"},
            "per client, bfloat16",
        ),
        (
            {"executor": "auto", "model": "m5", "precision": "bfloat16", "device": "cuda"},
            "per client, bfloat16, cuda without TF32",
        ),
        (
            {"executor": "auto", "model": "m5", "precision": "tf32", "device": "cuda"},
            "per client, tf32, cuda",
        ),
    ],
)
def test_a_request_has_a_class_and_a_class_says_how_to_request_it(
    execution: dict[str, Any], words: str
) -> None:
    spec = run_spec(**execution)
    assert arithmetic.of_spec(spec) == words
    keys = dict(each.split(": ") for each in arithmetic.how_to_get(words).split(", "))
    if "threads" in keys:
        keys["threads"] = int(keys["threads"])
    plain = {"threads": 1, "device": "cpu"}
    asked = replace(spec, execution=replace(spec.execution, **{**plain, **keys}))
    assert arithmetic.of_spec(asked) == words


@pytest.mark.parametrize(
    ("composition", "changes", "stacked"),
    [
        ("fedavg", {"rounds": 900}, True),
        ("fedavg", {"rounds": 90}, False),
        ("fedavg", {"rounds": 900, "availability": {"dropout": 0.1}}, False),
        ("ima+fedprox+fedadam", {"rounds": 900}, True),
        ("fedavg", {"rounds": 900, "model": "mcmahan_cnn"}, False),
        (
            "fedavg",
            {"rounds": 900, "model": "twonn", "optimizer": {"lr": 1, "momentum": 0.9}},
            False,
        ),
        ("fedavg", {"rounds": 900, "model": "twonn"}, True),
        ("fedavg", {"rounds": 90, "optimizer": {"lr": 1, "momentum": 0.9}}, False),
        ("fedavg", {"rounds": 900, "optimizer": {"lr": 1, "momentum": 0.9}}, True),
        ("superfed_mm", {"rounds": 900}, True),
        ("superfed_mm", {"rounds": 100, "model": "twonn"}, True),
        ("scaffold", {"rounds": 900}, True),
        ("scaffold", {"rounds": 100, "model": "twonn"}, False),
        (
            "scaffold",
            {"rounds": 300, "model": "twonn", "optimizer": {"lr": 1, "momentum": 0.9}},
            True,
        ),
        ("central", {"rounds": 9_000}, False),
    ],
)
def test_auto_follows_from_the_specification_alone(
    composition: str, changes: dict[str, Any], stacked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 of 6 clients with 1,000 samples each, in mini-batches of 8, in two epochs."""
    monkeypatch.setattr("shutil.which", lambda name: None)  # no compiler, either
    spec = replace(run_spec(composition, executor="auto", **changes), data_size=SIZE)
    words = STACKED if stacked else PER_CLIENT
    for threads in (1, 2, 16):
        execution = replace(spec.execution, threads=threads)
        assert arithmetic.of_spec(replace(spec, execution=execution)) == words
    assert arithmetic.client_steps(spec.setting, SIZE) == 3 * 2 * 125 * spec.setting.rounds
    assert arithmetic.of_spec(replace(spec, data_size=None)) == PER_CLIENT
    assert arithmetic.client_steps(spec.setting, None) == 0


def test_clients_with_a_loss_of_the_user_s_are_neither_stacked_nor_scored_together() -> None:
    """It may have no value for a single sample, or only one for a whole batch."""
    spec = run_spec(executor="auto", rounds=900, evaluate={"clients": True})
    many = DataSize(train=2_000, shape=(1, 2, 2), classes=3, clients=1_000)
    for clients, words in ((6, STACKED), (999, STACKED), (1_000, f"{STACKED}, scored together")):
        setting = run_spec(
            executor="auto", rounds=9_000, evaluate={"clients": True},
            partition={"scheme": "iid", "clients": clients},
        ).setting  # fmt: skip
        setting._name = spec.setting.name
        assert arithmetic.of_spec(replace(spec, setting=setting, data_size=many)) == words
        unscored = setting.model_copy(update={"evaluate": run_spec().setting.evaluate})
        assert arithmetic.of_spec(replace(spec, setting=unscored, data_size=many)) == STACKED
        own = setting.model_copy(update={"loss": "mine"})
        assert arithmetic.of_spec(replace(spec, setting=own, data_size=many)) == PER_CLIENT


def test_steps_of_a_gpu_pay_from_another_number_on_and_convolutions_never() -> None:
    """20,000 steps: 3 clients, 2 epochs of 125 batches, 27 rounds."""
    cases = product(("logistic", "twonn", "mcmahan_cnn"), (26, 27), ("cuda", "cuda:1"), (0, 0.9))
    for model, rounds, device, momentum in cases:
        spec = run_spec(
            executor="auto", model=model, rounds=rounds, device=device,
            optimizer={"lr": 1, "momentum": momentum},
        )  # fmt: skip
        pays = rounds == 27 and model != "mcmahan_cnn"
        assert arithmetic.pays(replace(spec, data_size=SIZE)) == pays


def test_two_models_are_stacked_earlier_than_one() -> None:
    """The more a step computes, the fewer pay for compiling."""
    thresholds = arithmetic.PAYS_FROM
    assert thresholds["mlp", "cpu", "two models"] < thresholds["mlp", "cpu", "own"]
    assert thresholds["mlp", "cpu", "own"] < thresholds["mlp", "cpu", "plain"]


def test_runs_of_different_precision_are_never_averaged() -> None:
    """Nor with runs of a GPU from before November 2026, which had TF32 for convolutions."""
    words = [
        arithmetic.of_spec(run_spec(executor="auto", model="m5", precision=low, device=device))
        for low, device in product(("float32", "tf32", "bfloat16"), ("cpu", "cuda"))
    ]
    identities = [Identity(arithmetic=each) for each in (*words, "per client, cuda")]
    for one, other in combinations(identities, 2):
        assert not may_average([one, other], across_machines=True)
        (found,) = other_numbers(differences(one, other))
        assert (found.recorded, found.wanted) == (repr(one.arithmetic), repr(other.arithmetic))


def test_reference_results_say_how_they_were_computed() -> None:
    classes = {arithmetic.of_manifest(record.manifest) for record in reference_runs(ROOT)}
    cuda = f"{STACKED}, cuda without TF32"
    assert classes == {PER_CLIENT, STACKED, f"{PER_CLIENT}, bfloat16", cuda}


@pytest.mark.parametrize("key", ["executor", "threads", "device", "run"])
def test_a_manifest_that_does_not_say_it_is_of_unknown_class(key: str) -> None:
    manifest = {"executor": "vectorised", "threads": 2, "device": "cpu", "run": {}}
    assert arithmetic.of_manifest(manifest) == "stacked, 2 threads"
    assert arithmetic.of_manifest({**manifest, "arithmetic": PER_CLIENT}) == PER_CLIENT
    assert arithmetic.how_to_get("per client, cuda") == ""  # with TF32, before November 2026
    for value in (None, [], "other" if key == "executor" else 1.5):
        assert arithmetic.of_manifest({**manifest, key: value}) == UNKNOWN
    del manifest[key]
    assert arithmetic.of_manifest(manifest) == UNKNOWN
    assert arithmetic.how_to_get(UNKNOWN) == ""


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"executor": "vectorised"}, ("'stacked'", "vectorised")),
        ({"threads": 2}, (f"'{PER_CLIENT}, 2 threads'", "threads: 2")),
    ],
)
def test_a_finished_run_of_another_class_is_not_replaced(
    tmp_path: Path, asked: dict[str, Any], names: tuple[str, ...]
) -> None:
    folder = tmp_path / "seed1"
    assert carry_out(folder, run_spec(rounds=2))["arithmetic"] == PER_CLIENT
    before = content(folder)
    names = ("sequential", "`fedrepro run --again`", *names)
    with refused(file=str(folder), key="arithmetic", value=PER_CLIENT, names=names):
        carry_out(folder, run_spec(rounds=2, **asked))
    assert content(folder) == before and list(tmp_path.iterdir()) == [folder]


def test_another_executor_of_the_same_class_finds_the_run_done(tmp_path: Path) -> None:
    """Also a run from before manifests had classes; not one that does not say how it was run."""
    played: list[Progress] = []
    folder = tmp_path / "seed1"
    carry_out(folder, run_spec(rounds=2))
    carry_out(folder, run_spec(rounds=2, executor="parallel", threads=2), played.append)
    assert not played
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["arithmetic"]
    write_manifest(folder, manifest)
    carry_out(folder, run_spec(rounds=2), played.append)
    assert not played
    del manifest["executor"]  # what is not stated makes no difference
    write_manifest(folder, manifest)
    carry_out(folder, run_spec(rounds=2), played.append)
    assert not played


def test_processes_change_no_class_and_torch_threads_do(tmp_path: Path) -> None:
    """What the manifest says agrees with what was done."""
    for way in ({"executor": "auto"}, {"executor": "parallel"}, {"executor": "sequential"}):
        manifest = carry_out(tmp_path / way["executor"], run_spec(rounds=1, threads=2, **way))
        threads = 2 if way["executor"] == "sequential" else 1
        assert manifest["threads"] == threads
        assert ("2 threads" in manifest["arithmetic"]) == (threads == 2)
        assert arithmetic.of_manifest({**manifest, "arithmetic": None}) == manifest["arithmetic"]
