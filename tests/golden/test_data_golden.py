"""What raw files of every kind became when landed runs were made: arrays, and what is said of them.

Images are noise, wider than high and the other way, so that each resize, cut and turn shows.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.random import RandomState

from fedrepro.data.catalogue.kinds import DatasetSpec
from fedrepro.data.dataset import open_dataset
from fedrepro.data.prepare import prepare
from support import pinned, raw_fairness, raw_ima, raw_superfed
from support.raw_data import (
    cifar10_entry,
    cifar10_files,
    entry,
    idx_entry,
    idx_files,
    medmnist,
    sha256,
    write_packed,
)
from support.raw_fairness import zipped

Fetched = tuple[DatasetSpec, dict[str, bytes]]
SIZES = ((31, 17), (18, 40), (22, 22), (19, 30), (27, 16), (24, 33))


def pictures(names: list[str]) -> dict[str, bytes]:
    return {
        name: raw_ima.picture(*SIZES[at % len(SIZES)], 70 + at) for at, name in enumerate(names)
    }


def berka() -> Fetched:
    tables = raw_fairness.berka_tables()
    for name, one, other in (("trans", b"1001.0", b"907.0"), ("order", b"30.0", b"31.5")):
        tables[f"{name}.asc"] = tables[f"{name}.asc"].replace(one, other, 1)
    return raw_fairness.berka(tables, None)


def celeba() -> Fetched:
    names = [f"img_align_celeba/{at:06}.jpg" for at in range(1, 7)]
    return raw_fairness.celeba(None, img_align_celeba__zip=zipped(pictures(names)))


def isic() -> Fetched:
    names = [f"ISIC_2019_Training_Input/ISIC_{at}.jpg" for at in range(1, 7)]
    return raw_fairness.isic(None, ISIC_2019_Training_Input__zip=zipped(pictures(names)))


def tiny_imagenet() -> Fetched:
    names = [f"train__{name}__images__{name}_{at}__JPEG" for name in ("n02", "n01") for at in "01"]
    made = {name.replace("__", "/"): each for name, each in pictures(names).items()}
    made = {name.replace("/JPEG", ".JPEG"): each for name, each in made.items()}
    return raw_fairness.tiny_imagenet(None, **made)


def pixels(labels: int) -> bytes:
    random = RandomState(4)
    rows = np.column_stack([random.randint(0, 256, (60, 12)), random.randint(0, labels, 60)])
    return "\n".join(",".join(map(str, row)) for row in rows).encode()


def pixel_csv() -> Fetched:
    file = {"name": "pixels.csv", "sha256": sha256(pixels(3))}
    keys = {"class_names": ["a", "b", "c"], "height": 3, "width": 4, "test_fraction": 0.29}
    return entry("pixel_csv", file=file, **keys), {"pixels.csv": pixels(3)}


def speech() -> Fetched:
    return raw_fairness.speech(raw_fairness.clips(), None)


def med(channels: int) -> Fetched:
    content = medmnist(9, channels)
    file = {"name": "med.npz", "sha256": sha256(content)}
    keys = {"class_names": ["a", "b", "c"], "side": 9}
    return entry("medmnist", file=file, **keys), {"med.npz": content}


FETCHED: dict[str, Callable[[], Fetched]] = {
    "berka": berka,
    "celeba": celeba,
    "isic": isic,
    "tiny_imagenet": tiny_imagenet,
    "pixel_csv": pixel_csv,
    "speech": speech,
    "plays": lambda: raw_superfed.plays(),
    "plays, some": lambda: raw_superfed.plays(most=3),
    "cifar100": lambda: raw_superfed.cifar100(None),
    "cifar100, small": lambda: raw_superfed.cifar100(None, 12),
    "medmnist": lambda: med(3),
    "medmnist, grey": lambda: med(1),
}


def archives(folder: Path, made: Fetched) -> DatasetSpec:
    for name, content in made[1].items():
        (folder / name).write_bytes(content)
    return made[0]


def packed(folder: Path, **keys: Any) -> DatasetSpec:
    write_packed(idx_files(), folder)
    return idx_entry(idx_files(), **keys)


def cifar10(folder: Path) -> DatasetSpec:
    for name, content in cifar10_files().items():
        (folder / name).write_bytes(content)
    return cifar10_entry(cifar10_files(), side=10)


def own(folder: Path, kind: str, members: dict[str, bytes], **keys: Any) -> DatasetSpec:
    (folder / "own.zip").write_bytes(zipped(members))
    return entry(kind, path=str(folder / "own.zip"), **keys)


def table(folder: Path, **keys: Any) -> DatasetSpec:
    """Numbers with gaps, words, a constant; 70 rows of four unequal places."""
    random = RandomState(6)
    place = random.choice(["Chur", "Aarau", "Basel", "7"], 70, p=[0.4, 0.3, 0.2, 0.1])
    columns: dict[str, Any] = {
        "age": random.normal(50, 9, 70).round(2), "pain": random.choice(["no", "some", "?"], 70),
        "always": 4.5, "number": random.permutation(70), "place": place,
        "class": random.choice(["10", "9", "2"], 70), "one": random.normal(size=70).round(3),
        "two": random.randint(0, 2, 70), "part": np.where(np.arange(70) % 5, "train", "test"),
    }  # fmt: skip
    columns["age"][random.random_sample(70) < 0.2] = np.nan
    pd.DataFrame(columns).to_csv(folder / "own.csv", index=False)
    keys = {"label": "class", "drop": ["number"], **keys}
    return entry("tabular_csv", path=str(folder / "own.csv"), **keys)


def folders(folder: Path, levels: tuple[tuple[str, ...], ...], **keys: Any) -> DatasetSpec:
    names = ["/".join(("train", *level, f"{at}.png")) for at in range(4) for level in levels] + [
        "/".join(("test", *level, "9.png")) for level in levels[: keys.pop("tested", 0)]
    ]
    return own(folder, "image_folder", pictures(names), height=11, width=14, **keys)


def arrays(folder: Path, x: Any, y: Any, **keys: Any) -> DatasetSpec:
    parts = {key: keys.pop(key) for key in ("client", "split") if key in keys}
    np.savez(folder / "own.npz", x=x, y=y, **parts)
    return entry("arrays", path=str(folder / "own.npz"), **keys)


def texts(folder: Path, **keys: Any) -> DatasetSpec:
    random, words = RandomState(3), ["good", "Good", "food", "bad,", "bad", "so-so", "é!"]
    rows = [" ".join(random.choice(words, random.randint(1, 9))) for _ in range(40)]
    columns = {"text": rows, "stars": random.randint(1, 4, 40), "shop": random.randint(8, 12, 40)}
    pd.DataFrame(columns).to_csv(folder / "own.csv", index=False)
    keys = {"text": "text", "length": 5, **keys}
    return entry("text", path=str(folder / "own.csv"), **keys)


def noise(*shape: int) -> Any:
    return RandomState(9).randint(0, 256, shape)


CLASSES, CLIENTS = np.arange(30) ** 2 % 3, np.array([3, 10, 2, 10, 10] * 6)
OF_CLASS, OF_CLIENT = (("cat",), ("ant",)), (("b", "cat"), ("b", "ant"), ("a", "cat"))
GIVEN: dict[str, Callable[[Path], DatasetSpec]] = {
    "idx": lambda folder: packed(folder),
    "idx, small": lambda folder: packed(folder, side=5),
    "cifar10": cifar10,
    "femnist": lambda folder: raw_superfed.leaf(folder, "femnist", raw_superfed.femnist()),
    "shakespeare": lambda folder: raw_superfed.leaf(
        folder, "shakespeare", raw_superfed.shakespeare(), length=4
    ),
    "reddit": lambda folder: own(
        folder, "leaf_reddit", raw_fairness.reddit(), task="next_word", words=6
    ),
    "digit_five": lambda folder: own(folder, "digit_five", raw_ima.digit_five(), parts=2),
    "table": lambda folder: table(folder),
    "table, as it is": lambda folder: table(folder, standardise=False, missing=["?"]),
    "table of clients": lambda folder: table(folder, group="place", standardise="per_client"),
    "table, split": lambda folder: table(folder, split="part", group="place", missing=["?"]),
    "table of numbers": lambda folder: table(
        folder, label="one", task="regression", test_fraction=0.31
    ),
    "table of labels": lambda folder: table(folder, label=["two"], task="multi_label"),
    "images": lambda folder: folders(folder, OF_CLASS),
    "images, grey": lambda folder: folders(folder, OF_CLASS, channels=1, tested=2),
    "images of clients": lambda folder: folders(folder, OF_CLIENT, layout="client/class"),
    "arrays of bytes": lambda folder: arrays(folder, noise(30, 1, 3, 4).astype("u1"), CLASSES),
    "arrays of ids": lambda folder: arrays(
        folder, noise(30, 6), CLASSES.astype("U"), client=CLIENTS, test_fraction=0.0
    ),
    "arrays of numbers": lambda folder: arrays(
        folder, noise(30, 6) / 7, noise(30, 2) / 9, task="regression", test_fraction=0.37,
        client=CLIENTS,
    ),
    "texts": lambda folder: texts(folder, label="stars", words=8),
    "texts of clients": lambda folder: texts(folder, label="stars", group="shop"),
    "characters": lambda folder: texts(folder, label="stars", tokenizer="characters", length=12),
    "next words": lambda folder: texts(folder, task="next_word", group="shop", words=9),
}  # fmt: skip


@pytest.mark.parametrize("name", [*FETCHED, *GIVEN])
def test_data_are_as_they_were(name: str, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    spec = archives(raw, FETCHED[name]()) if name in FETCHED else GIVEN[name](raw)
    prepare("d", spec, raw, downloads=tmp_path / "downloads", root=tmp_path / "data")
    dataset = open_dataset("d", tmp_path / "data")
    found: dict[str, Any] = {}
    for file in sorted((tmp_path / "data/d").glob("*.npy")):
        array = np.load(file)
        found[file.stem] = [str(array.dtype), list(array.shape), pinned.summary(array)]
    how = {"recipe", "entry", "seal", "splits", "format", "content_sha256", "missing_sha256"}
    found["meta"] = {key: dataset.meta[key] for key in sorted(dataset.meta.keys() - how)}
    pinned.check("data.json", name, found, rel=1e-5)
