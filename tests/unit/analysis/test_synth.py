"""A synthetic set is exported, read as a data set, and trained on by another method."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from fedrepro.cli.main import main
from fedrepro.run.store import load_tree
from fedrepro.support.files import sha256_of
from support.synthetic_world import FOLDER, RUN, stand_in_copy, write_experiment


@pytest.fixture
def world(painted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root in which a run's set was exported into the folder `digits`, before it was judged."""
    stand_in_copy(painted, tmp_path, monkeypatch)
    assert main(["synth", "export", *RUN, "--to", "digits"]) == 0
    return tmp_path


def test_the_folder_holds_what_the_run_left(world: Path) -> None:
    folder = world / "digits"
    names = {"images.npz", "sheet.png", "datasheet.json", "README.md"}
    assert {path.name for path in folder.iterdir()} == names
    with np.load(folder / "images.npz", allow_pickle=False) as arrays:
        x, y = arrays["x"], arrays["y"]
    left, _ = load_tree(world / FOLDER / "model.safetensors")
    assert x.dtype == np.uint8 and (x == (left["x"] * 255).round().byte().numpy()).all()
    assert (y == left["y"].numpy()).all()
    with Image.open(folder / "sheet.png") as sheet:
        assert sheet.size == (5 * 30 - 2, 10 * 30 - 2)  # a row for each class
    about = json.loads((folder / "datasheet.json").read_text(encoding="utf-8"))
    assert about["per_class"] == [5] * 10 and about["class_names"][3] == "3"
    assert about["run"]["rounds"] == 2 and about["run"]["description"]["method"] == "painter"
    assert about["source"]["licence"].startswith("CC BY-SA") and "guarantee" in about["privacy"]
    assert about["sha256"]["images.npz"] == sha256_of(folder / "images.npz")
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert not about.get("quality") and about["privacy"] in text and "kind: synthetic" in text


def test_the_datasheet_has_the_quality_if_there_is_one(world: Path) -> None:
    assert main(["quality", *RUN]) == 0
    assert main(["synth", "export", *RUN, "--to", "judged"]) == 0
    about = json.loads((world / "judged/datasheet.json").read_text(encoding="utf-8"))
    found = json.loads((world / "results/quality/fedevg/digits/painter/seed1.json").read_text())
    assert about["quality"] == found["numbers"] and about["judged_by"]["model"] == "twonn"
    text = (world / "judged/README.md").read_text(encoding="utf-8")
    accuracy = 100 * found["numbers"]["accuracy"]
    assert f": {accuracy:.2f} %" in text
    assert "Fréchet inception distance" not in text  # there is none
    same = [(world / name / "images.npz").read_bytes() for name in ("digits", "judged")]
    assert same[0] == same[1]


def add_entry(root: Path, text: str) -> None:
    """An entry of a data set, as the README of an export has it."""
    block = (
        text.partition("```yaml\n")[2].partition("```")[0].replace("PATH/OF/THIS/FOLDER", "digits")
    )
    file = root / "config/datasets.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    content["datasets"] |= yaml.safe_load(block)
    file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def test_any_method_can_be_trained_on_it(world: Path) -> None:
    """Export, data set, FedAvg."""
    add_entry(world, (world / "digits/README.md").read_text(encoding="utf-8"))
    smaller = {"dataset: mnist5k": "dataset: my_synthetic_set", "minimum: 100": "minimum: 5"}
    write_experiment(world, **smaller)
    assert main(["run", "fedevg/digits", "fedavg", "--seed", "1"]) == 0
    meta = json.loads((world / "results/data/my_synthetic_set/meta.json").read_text())
    assert [meta["splits"][name]["samples"] for name in ("train", "test")] == [40, 10]
    assert meta["input_shape"] == [1, 28, 28] and meta["class_names"][0] == "0"
    rounds = pd.read_parquet(world / "results/runs/fedevg/digits/fedavg/seed1/rounds.parquet")
    assert rounds["test_accuracy"].iloc[-1] >= 0


def test_exports_that_are_none(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_entry(world, (world / "digits/README.md").read_text(encoding="utf-8"))

    def refused(*command: str) -> str:
        capsys.readouterr()
        assert main(command) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1
        return line

    again = ("synth", "export", *RUN, "--to")
    wanted = "--to: 'digits':"
    assert wanted in refused(*again, "digits")
    assert "fedrepro run fedevg/digits fedavg --seed 1" in refused(
        "synth", "export", "fedevg/digits", "fedavg", "--seed", "1", "--to", "other"
    )
    assert not (world / "other").exists()
    prepare = ("prepare", "my_synthetic_set")
    images, sheet = world / "digits/images.npz", world / "digits/datasheet.json"
    whole = images.read_bytes()
    with np.load(images) as arrays:
        x, y = arrays["x"], arrays["y"]
    for arrays_of, said in (
        ({"x": x}, "can't be read as an npz archive: y is not a file"),
        ({"x": x / 255, "y": y}, "x: float64 (50, 1, 28, 28): expected uint8"),
        ({"x": x[:, 0], "y": y}, "x: uint8 (50, 28, 28): expected"),
        ({"x": x, "y": y[:9]}, "y: int64 (9,): expected whole numbers (50,)"),
        ({"x": x, "y": y + 1}, "a label is 10: expected 0 to 9"),
        ({"x": x, "y": np.array([object()] * 50)}, "Object arrays cannot be loaded"),
    ):
        np.savez(images, **arrays_of)
        assert said in refused(*prepare)
    images.write_bytes(whole[:200])
    assert "can't be read as an npz archive" in refused(*prepare)
    images.write_bytes(whole)
    sheet.write_text("{}")
    line = refused(*prepare)
    assert "datasheet.json: " in line and "class_names" in line
