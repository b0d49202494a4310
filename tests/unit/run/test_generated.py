"""A GAN, images of it and a distillation on these, as runs; generators from files, other data."""

import re
import shutil
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from fedrepro.config.run_spec import RunSpec
from fedrepro.config.settings import ArtifactFromData, ArtifactFromFile
from fedrepro.data.dataset import PREPARED, Dataset
from fedrepro.data.partition.assigning import of_server
from fedrepro.run import input_artifacts
from fedrepro.run.input_artifacts import save_generator
from fedrepro.run.store import load_tree, save_tree
from fedrepro.support.errors import UserError
from fedrepro.support.files import sha256_of
from support import tiny_run
from support.given_run import IMAGES, carry_out, files, folder_of
from support.given_run import gan_specs as specs
from support.given_run import larger_dataset as dataset
from support.killed import kill_after
from support.places import ROOT
from support.refusals import refused


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which all three runs are finished."""
    root = tmp_path_factory.mktemp("gan")
    for spec in specs().values():
        carry_out(root, spec)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "root"))


def test_images_are_drawn_once_and_distilled_on(root: Path) -> None:
    images, facts = load_tree(folder_of(root, specs()["generated"]) / input_artifacts.MODEL)
    assert images["x"].shape == (IMAGES, 1, 28, 28) and facts["part"] == "samples"
    assert float(images["x"].abs().max()) <= 1 and float(images["x"].std()) > 0
    rounds = pd.read_parquet(folder_of(root, specs()["feddf"]) / "rounds.parquet")
    assert rounds["distillation_loss"].notna().all()
    assert rounds["ensemble_accuracy"].between(0, 1).all() and (rounds["ensemble_loss"] > 0).all()


def test_a_gan_that_is_killed_ends_with_the_same_bytes(root: Path) -> None:
    """After round 3 of 3, before it was kept; the last checkpoint is that of round 2."""
    spec = specs()["wgan_gp"]
    folder = folder_of(root, spec)
    before = files(folder)
    assert "round3-images.safetensors" in before
    shutil.rmtree(folder)
    kill_after(3, lambda report: carry_out(root, spec, report))
    assert not folder.exists()
    rounds: list[int] = []
    carry_out(root, spec, lambda progress: rounds.append(progress.round))
    assert rounds == [3]
    assert files(folder) == before


# --- a generator from a file ---------------------------------------------------------------------


def exported(root: Path) -> dict[str, torch.Tensor]:
    """The GAN's generator as other code would have it: a state_dict, with a count of batches."""
    tensors, _ = load_tree(folder_of(root, specs()["wgan_gp"]) / input_artifacts.MODEL)
    return {**tensors, "2.num_batches_tracked": torch.tensor(7)}


def with_file(sha256: str | None, file: str = "generator.safetensors") -> RunSpec:
    return replace(
        specs()["generated"], inputs={"generator": ArtifactFromFile(file=Path(file), sha256=sha256)}
    )


def test_a_generator_from_a_file_makes_what_the_run_s_own_does(root: Path) -> None:
    save_generator(root / "generator.safetensors", "wgan_gp_small", (1, 28, 28), exported(root))
    before, _ = load_tree(folder_of(root, specs()["generated"]) / input_artifacts.MODEL)
    spec = with_file(sha256_of(root / "generator.safetensors"))
    carry_out(root, spec)
    after, _ = load_tree(folder_of(root, spec) / input_artifacts.MODEL)
    assert torch.equal(before["x"], after["x"])
    assert spec.description()["given"]["generator"].startswith("file ")


def test_the_file_is_made_as_the_docs_say(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs/generators.md").read_text(encoding="utf-8")
    code = re.findall(r"^ *```python\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    save_file(exported(root), tmp_path / "weights.safetensors")
    exec(textwrap.dedent(code), {})
    tensors, facts = load_tree(tmp_path / "generator.safetensors")
    right, of_run = load_tree(folder_of(root, specs()["wgan_gp"]) / input_artifacts.MODEL)
    assert facts == of_run
    assert all(torch.equal(tensors[name], leaf) for name, leaf in right.items())


def test_tensors_that_are_not_the_generator_s_are_refused(root: Path) -> None:
    def line(tensors: dict[str, torch.Tensor], model: str = "wgan_gp_small") -> str:
        with pytest.raises(UserError) as caught:
            save_generator(root / "new.safetensors", model, (1, 28, 28), tensors)
        assert not (root / "new.safetensors").exists()
        return str(caught.value)

    right = exported(root)
    name = next(iter(right))
    assert f"generator: {name}: [1]: expected [" in line({**right, name: torch.zeros(1)})
    assert "mapping.weight: [1]: expected None" in line({**right, "mapping.weight": torch.zeros(1)})
    assert f"{name}: None: expected [" in line({key: right[key] for key in [*right][1:]})
    assert " logistic: " in line(right, "logistic")


def pickled(root: Path) -> str | None:
    (root / "generator.safetensors").write_bytes(b"\x80\x04N.")  # None
    return sha256_of(root / "generator.safetensors")


def unnamed(root: Path) -> str | None:
    save_generator(root / "generator.safetensors", "wgan_gp_small", (1, 28, 28), exported(root))
    return None


def of_other_tensors(root: Path) -> str | None:
    tensors, facts = load_tree(folder_of(root, specs()["wgan_gp"]) / input_artifacts.MODEL)
    save_tree(root / "generator.safetensors", {**tensors, "more": torch.zeros(2)}, facts)
    return sha256_of(root / "generator.safetensors")


def missing(root: Path) -> str | None:
    return None


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (pickled, ("generator.safetensors", "damaged")),
        (unnamed, ("generator.safetensors", "sha256", "missing")),
        (of_other_tensors, ("wgan_gp_small", "more: [2]", "None")),
        (missing, ("file: 'generator.safetensors'", "existing")),
    ],
)
def test_a_file_that_is_not_such_a_one_is_one_line(
    root: Path, make: Any, names: tuple[str, ...]
) -> None:
    with refused(names=names) as raised:
        carry_out(root, with_file(make(root)))
    assert "\n" not in str(raised.value)


# --- samples of another data set -----------------------------------------------------------------


def given_data(
    monkeypatch: pytest.MonkeyPatch, other: Dataset, share: float = 0.5
) -> input_artifacts.StoredArtifact:
    opened: list[Path] = []

    def opening(name: str, root: Path) -> Dataset:
        opened.append(root / name)
        return other

    monkeypatch.setattr(input_artifacts, "open_dataset", opening)
    spec = replace(
        tiny_run.run_spec("feddf"),
        inputs={"unlabelled": ArtifactFromData(dataset="others", share=share)},
    )
    found = input_artifacts.load(
        Path("here"), spec, tiny_run.dataset(), tiny_run.partition(equal=True)
    )
    assert opened == [Path("here") / PREPARED / "others"]
    return found["unlabelled"]


def test_another_data_set_s_samples_are_those_that_its_server_would_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = tiny_run.dataset(seed=5)
    found = given_data(monkeypatch, other)
    rows = of_server(other.train.y, 0.5)
    assert len(rows) == 75 and np.array_equal(found.tensors["x"].numpy(), other.train.x[rows])
    assert found.facts == {}  # no labels, and nothing else
    third = given_data(monkeypatch, other, 1 / 3)
    changed = given_data(monkeypatch, replace(other, meta={"content_sha256": "another"}))
    assert len({found.sha256, third.sha256, changed.sha256}) == 3


def test_data_of_another_shape_or_kind_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = tiny_run.dataset()
    floats = replace(other.train, x=other.train.x.astype(np.float32))
    for wrong, line in (
        (dataset(), "data set others: input shape: [1, 28, 28]: expected [1, 2, 2], as test/blobs"),
        (replace(other, train=floats), "kind of numbers: 'float32': expected uint8"),
    ):
        with pytest.raises(UserError) as caught:
            given_data(monkeypatch, wrong)
        assert line in str(caught.value) and "\n" not in str(caught.value)
