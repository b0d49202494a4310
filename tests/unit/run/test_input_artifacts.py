"""A run that is given what others left: what it finds, what it keeps, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fedrepro as fr
from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import ArtifactFromFile
from fedrepro.run import input_artifacts
from fedrepro.run.assembly import make_plan
from fedrepro.run.store import load_tree, save_tree
from fedrepro.support.files import sha256_of
from support import tiny_run
from support.given_run import METHODS, carry_out, files, folder_of, partition, specs
from support.killed import kill_after
from support.manifests import write_manifest
from support.refusals import Fault, refused


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which all three runs are finished."""
    root = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDREPRO_METHODS", str(METHODS))
        for spec in specs().values():
            carry_out(root, spec)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it."""
    monkeypatch.setenv("FEDREPRO_METHODS", str(METHODS))
    return Path(shutil.copytree(made, tmp_path / "root"))


def test_products_say_what_they_are(root: Path) -> None:
    maker, judges, taught = (
        load_tree(folder_of(root, spec) / input_artifacts.MODEL) for spec in specs().values()
    )
    assert maker[0].keys() == {"weight", "bias"} and maker[1]["part"] == "head"
    assert maker[1]["about"] == {"latent": 4} and maker[1]["clients"] is None
    assert judges[0]["head.weight"].shape == (6, 3, 4) and judges[1]["clients"] == 6
    assert taught[1]["range"] == "symmetric" and taught[1]["part"] == ""
    for _, facts in (maker, judges, taught):  # no samples, and all of each is trained
        assert not {"data", "constants"} & facts.keys()


def test_what_classifies_nothing_is_not_evaluated_and_has_numbers_and_images(root: Path) -> None:
    folder = folder_of(root, specs()["maker"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    rounds = pd.read_parquet(folder / "rounds.parquet")
    assert rounds["test_accuracy"].isna().all() and (rounds["size"] > 0).all()
    names = [f"round{number}-images.safetensors" for number in (1, 2, 3, 4)]
    assert set(names) < manifest["files"].keys()
    images, _ = load_tree(folder / names[-1])
    assert images["images"].shape == (3, 1, 2, 2) and str(images["images"].dtype) == "torch.uint8"


def test_the_manifest_tells_another_product_from_this_one(root: Path) -> None:
    """So that a finished run is played again when what it was given is another."""
    wanted = specs()
    folder = folder_of(root, wanted["taught"])
    manifest = json.loads((folder / "manifest.json").read_text())
    model = folder_of(root, wanted["judges"]) / input_artifacts.MODEL
    assert manifest["data"]["given"]["judges"] == sha256_of(model)
    assert manifest["run"]["given"]["judges"] == f"run {wanted['judges'].digest}"
    played: list[int] = []
    carry_out(root, wanted["taught"], lambda progress: played.append(progress.round))
    assert not played
    tensors, facts = load_tree(model)
    tensors["head.bias"] += 1
    other = root / "other.safetensors"
    save_tree(other, tensors, facts)
    source = ArtifactFromFile(file=Path("other.safetensors"), sha256=sha256_of(other))
    spec = replace(wanted["taught"], inputs={"unlabelled": "server", "judges": source})
    carry_out(root, spec, lambda progress: played.append(progress.round))
    assert played == [1, 2, 3, 4]


def test_the_servers_samples_are_scaled_as_the_clients_are() -> None:
    """Of a table that is standardised, by rows that clients train on, and gaps are their means."""
    images, shares = tiny_run.dataset(), tiny_run.partition(held_out=True)
    random = np.random.default_rng(1)
    x = random.normal(size=(150, 4)).astype(np.float32)
    missing = random.random((150, 4)) < 0.1
    train = replace(images.train, x=x, missing=missing)
    data = replace(images, train=train, test=None, input_shape=(4,), standardised=True)
    shares = replace(shares, server=np.arange(0, 150, 10))
    spec = replace(tiny_run.run_spec(evaluate={"clients": True}), inputs={"unlabelled": "server"})
    plan = make_plan(replace(spec, inputs={}), data, shares)
    theirs, _ = plan.federation.clients.samples.at(torch.from_numpy(shares.server))
    (stored,) = input_artifacts.load(Path(), spec, data, shares).values()
    assert torch.equal(stored.tensors["x"], theirs)
    assert not torch.equal(stored.tensors["x"], torch.from_numpy(x[shares.server]))


@pytest.mark.parametrize("rounds", [1, 3])
def test_killed_while_it_is_given_something_ends_with_the_same_bytes(
    root: Path, rounds: int
) -> None:
    folder = folder_of(root, specs()["taught"])
    before = files(folder)
    shutil.rmtree(folder)
    kill_after(rounds, lambda report: carry_out(root, specs()["taught"], report))
    assert not folder.exists()
    played: list[int] = []
    carry_out(root, specs()["taught"], lambda progress: played.append(progress.round))
    assert played[0] == (rounds - 1) // 2 * 2 + 1
    assert files(folder) == before


def test_models_of_chosen_rounds_are_kept_beside_the_run(root: Path) -> None:
    spec = specs(save_models_at={"taught": [2]})["taught"]
    manifest = carry_out(root, spec)
    assert manifest["run"]["keep"] == [2]
    kept = [f"round2-client{client}.safetensors" for client in range(6)]
    found = {name for name in manifest["files"] if name.startswith("round2-")}
    assert found == {*kept, "round2-global.safetensors"}
    (folder,) = {folder_of(root, spec)}
    models = [load_tree(folder / name)[0]["head.weight"].numpy() for name in kept]
    assert len({model.tobytes() for model in models}) == 6


def test_keep_of_another_method_changes_nothing() -> None:
    spec = specs(save_models_at={"fedavg": [2]})["taught"]
    assert spec.digest == specs()["taught"].digest


def test_what_is_kept_has_no_order() -> None:
    one, other = (specs(save_models_at={"taught": rounds})["taught"] for rounds in ([1, 2], [2, 1]))
    assert one.digest == other.digest != specs(save_models_at={"taught": [2]})["taught"].digest


def test_who_holds_a_sample_is_part_of_a_partition() -> None:
    """Not only in which order all of them come."""
    one = partition()
    rows = np.concatenate(one.train)
    cut = [*np.split(rows, np.cumsum([len(each) for each in one.train])[:-1] + 1)]
    assert input_artifacts.digest_of(one) != input_artifacts.digest_of(replace(one, train=cut))


def unfinished(root: Path, wanted: dict[str, RunSpec]) -> Any:
    shutil.rmtree(folder_of(root, wanted["judges"]))


def diverged(root: Path, wanted: dict[str, RunSpec]) -> Any:
    path = folder_of(root, wanted["judges"]) / "manifest.json"
    text = path.read_text()
    diverged = json.loads(text.replace('"status": "finished"', '"status": "diverged"'))
    write_manifest(path.parent, diverged)


def reconfigured(root: Path, wanted: dict[str, RunSpec]) -> Any:
    judges = wanted["judges"]
    setting = judges.setting.model_copy(update={"epochs": 3})
    setting._name = judges.setting.name
    sources = {**wanted["taught"].inputs, "judges": replace(judges, setting=setting)}
    wanted["taught"] = replace(wanted["taught"], inputs=sources)


def edited(root: Path, wanted: dict[str, RunSpec]) -> Any:
    with (folder_of(root, wanted["judges"]) / input_artifacts.MODEL).open("ab") as file:
        file.write(b"x")


def without_model(root: Path, wanted: dict[str, RunSpec]) -> Any:
    (folder_of(root, wanted["judges"]) / input_artifacts.MODEL).unlink()


def other_clients(root: Path, wanted: dict[str, RunSpec]) -> Any:
    shares = partition()
    train = [shares.train[1], shares.train[0], *shares.train[2:]]
    return replace(shares, train=train, train_counts=shares.train_counts[[1, 0, 2, 3, 4, 5]])


def fewer_clients(root: Path, wanted: dict[str, RunSpec]) -> Any:
    shares = partition()
    return replace(shares, train=shares.train[:5], train_counts=shares.train_counts[:5])


def no_server(root: Path, wanted: dict[str, RunSpec]) -> Any:
    return replace(partition(), server=None)


def other_range(root: Path, wanted: dict[str, RunSpec]) -> Any:
    wanted["taught"] = specs(scaling="unit")["taught"]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (
            unfinished,
            (
                "results/runs/test/blobs/judges/seed1",
                "fedrepro run test/blobs judges --seed 1",
            ),
        ),
        (diverged, ("judges/seed1", "diverged", "None")),
        (reconfigured, ("judges/seed1", "epochs", "2", "3")),
        (edited, ("judges/seed1", "model.safetensors", "fedrepro run test/blobs judges --seed 1")),
        (without_model, ("judges/seed1", "model.safetensors", "missing")),
        (other_clients, ("judges", "partition")),
        (fewer_clients, ("judges", "clients: 6", "5", "test/blobs")),
        (no_server, ("by-hand", "server", "samples")),
        (other_range, ("judges", "'symmetric'", "unit")),
    ],
)
def test_what_is_of_another_run_is_refused(root: Path, change: Any, names: tuple[str, ...]) -> None:
    wanted = specs()
    shares = change(root, wanted)
    with refused(names=names) as raised:
        carry_out(root, wanted["taught"], shares=shares)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({"input_shape": [3, 2, 2]}, {"file": "judges", "key": "channels", "value": 3}),
        ({"input_shape": [1, 4, 4]}, {"file": "judges", "key": "input shape", "value": [1, 4, 4]}),
        (None, {"code": "damaged", "file": "file.safetensors"}),
    ],
)
def test_a_file_for_other_inputs_is_refused(
    root: Path, facts: dict[str, Any] | None, fault: Fault
) -> None:
    wanted = specs()
    tensors, right = load_tree(folder_of(root, wanted["judges"]) / input_artifacts.MODEL)
    save_tree(root / "file.safetensors", tensors, None if facts is None else {**right, **facts})
    other = "0" * 64
    for digest, expected in (
        (sha256_of(root / "file.safetensors"), fault),
        (other, {"file": "judges: file.safetensors", "key": "sha256", "value": other}),
        (None, {"code": "missing", "file": "judges: file.safetensors", "key": "sha256"}),
    ):
        source = ArtifactFromFile(file=Path("file.safetensors"), sha256=digest)
        spec = replace(wanted["taught"], inputs={"unlabelled": "server", "judges": source})
        with refused(**expected):
            carry_out(root, spec)


SCALED = [[0.5, 0.4], [0.2, 0.3]]  # means, deviations


@pytest.mark.parametrize(
    "other", [[[0.5, 0.4], [0.2, 0.2]], [[0.5, 0.5], [0.2, 0.3]], SCALED[::-1], SCALED[:1], "unit"]
)
def test_a_generator_for_images_of_another_scale_is_refused(root: Path, other: Any) -> None:
    """By means and by deviations, in either direction."""
    data, shares = tiny_run.dataset(), partition()
    mean, std = map(tuple, SCALED)
    scaled = replace(data, mean=mean, std=std)
    file = root / "file.safetensors"
    facts = {"model": "logistic", "input_shape": [1, 2, 2], "outputs": 3}
    for said in (SCALED, other):
        save_tree(file, {"x": torch.zeros(1)}, {**facts, **ARTIFACTS["a generator"], "range": said})
        source = ArtifactFromFile(file=Path(file.name), sha256=sha256_of(file))
        spec = replace(tiny_run.run_spec("generated"), inputs={"generator": source})
        if said is SCALED:
            assert input_artifacts.load(root, spec, scaled, shares)
            continue
        with refused("value", names=("generator", "range")):
            input_artifacts.load(root, spec, scaled, shares)


# --- what is a part of a model, or no model at all ------------------------------------------------
def test_only_a_whole_shared_model_is_loaded_as_one(root: Path) -> None:
    """Not the head that a run produced, nor models of each client."""
    for name, spec in specs().items():
        run = fr.load(folder_of(root, spec))
        if name == "taught":
            tensors, _ = load_tree(folder_of(root, spec) / input_artifacts.MODEL)
            loaded = run.model.state_dict()
            assert all(torch.equal(loaded[path], leaf) for path, leaf in tensors.items())
        else:
            with refused(names=(name, "model")):
                assert run.model


WHOLE = {"part": "", "clients": None, "partition": None, "about": {}}
ARTIFACTS = {
    "samples": {**WHOLE, "part": "samples", "data": "blobs None"},
    "a generator": {**WHOLE, "part": "generator", "about": {"latent": 2}},
    "a model of each client": {
        **WHOLE,
        "clients": 6,
        "partition": input_artifacts.digest_of(partition()),
    },
    "a model": WHOLE,
    "head": {**WHOLE, "part": "head"},
}
NEEDS = {
    "unlabelled": ("feddf", "samples"),
    "generator": ("generated", "a generator"),
    "discriminators": ("fedgo", "a model of each client"),
    "start": ("fedevg", "samples"),
}


@pytest.mark.parametrize("need", NEEDS)
def test_an_artifact_of_another_kind_is_refused(root: Path, need: str) -> None:
    """In a line that says which kind: their tensors have other names, or no axis of clients."""
    method, right = NEEDS[need]
    spec = tiny_run.run_spec(method)
    file = root / "file.safetensors"
    facts = {"model": "logistic", "input_shape": [1, 2, 2], "outputs": 3, "range": "unit"}
    for kind, about in ARTIFACTS.items():
        save_tree(file, {"x": torch.zeros(1)}, {**facts, **about})
        source = ArtifactFromFile(file=Path(file.name), sha256=sha256_of(file))
        given_it = replace(spec, inputs={need: source})
        if kind == right:
            found = input_artifacts.load(root, given_it, tiny_run.dataset(), partition())
            assert found[need].facts["part"] == about["part"]
            continue
        with refused("value", value=kind, names=(need, right)):
            input_artifacts.load(root, given_it, tiny_run.dataset(), partition())
