"""Whole runs against plain numpy: YAML and raw files in, every number of every file out.

What the workbench is given is written here, what it must answer is derived from that with
:mod:`support.by_hand`; between the two stands only the command ``fedrepro run``. In float64, in
which two ways to the same number agree to 1e-9.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from numpy.random import RandomState
from numpy.typing import NDArray
from safetensors.numpy import load_file
from sklearn.model_selection import train_test_split

from fedrepro.check.world import in_float64
from fedrepro.cli.main import main
from fedrepro.run import runner
from support import by_hand
from support.by_hand import LOGISTIC, TWONN, Model, Run, score

Array = NDArray[Any]
Record = list[dict[str, float]]
SEED = 3
MEAN, STD = 0.4, 0.3  # of the pictures' only channel
CLASSES = 7


@pytest.fixture(autouse=True)
def float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All of a run in float64, which it refuses otherwise, to compare it to the last digits."""
    monkeypatch.setattr(runner, "float32_by_default", nullcontext)
    with in_float64():
        yield


# --- the workbench and its data -----------------------------------------------------------------
def carry_out(
    setting: str, method: str, datasets: dict[str, Any], methods: str = "{}"
) -> tuple[dict[str, Any], Path]:
    """Run a setting by the command. Returns it as it was read from YAML, and the run's folder."""
    Path("config/experiments").mkdir(parents=True)
    Path("config/config.yaml").write_text("data: {archives: raw}\n", encoding="utf-8")
    Path("config/datasets.yaml").write_text(
        yaml.safe_dump({"datasets": datasets}), encoding="utf-8"
    )
    whole = {
        "system": "own",
        "title": "Whole runs",
        "paper": "none",
        "methods": yaml.safe_load(methods),
        "settings": {"s": yaml.safe_load(setting)},
    }
    Path("config/experiments/own.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    assert main(["run", "own/s", method, "--seed", str(SEED)]) == 0
    return whole["settings"]["s"], Path("results/runs/own/s", method, f"seed{SEED}")


def pictures(samples: int = 83, tests: int = 41) -> tuple[dict[str, Any], list[Array]]:
    """Blobs of 3 x 3 bytes as MNIST's four files.

    Returns the catalogue's entry, and inputs and classes of the training and of the test split.
    """
    random = np.random.default_rng(5)
    centres = random.integers(0, 256, (CLASSES, 3, 3))
    files, arrays = {}, []
    Path("raw").mkdir()
    for split, count in (("train", samples), ("test", tests)):
        y = random.integers(0, CLASSES, count).astype(np.uint8)
        x = (centres[y] + random.normal(0, 60, (count, 3, 3))).clip(0, 255).astype(np.uint8)
        for kind, array in (("images", x), ("labels", y)):
            lengths = np.array(array.shape, dtype=">u4").tobytes()
            content = bytes([0, 0, 8, array.ndim]) + lengths + array.tobytes()
            Path("raw", f"{split}-{kind}").write_bytes(content)
            sha256 = hashlib.sha256(content).hexdigest()
            files[f"{split}_{kind}"] = {"name": f"{split}-{kind}", "sha256": sha256}
        arrays += [(x / 255 - MEAN) / STD, y.astype(int)]
    entry = {
        "kind": "idx", "title": "Blobs", "licence": "none", "citation": "none", "files": files,
        "mean": [MEAN], "std": [STD], "class_names": [f"c{i}" for i in range(CLASSES)],
    }  # fmt: skip
    return {"blobs": entry}, arrays


def patients(**changes: Any) -> tuple[dict[str, Any], Array, Array, Array]:
    """A table of numbers, with gaps, a word, a constant, a clinic and what must not be used.

    Returns the catalogue's entry and, row by row, the features (gaps are NaN), ill or not, clinic.
    """
    random = np.random.default_rng(8)
    rows = 90
    age, pressure = random.normal(50, 9, rows), random.normal(130, 15, rows)
    ill = (age + pressure / 3 + random.normal(0, 8, rows) > 93).astype(int)
    clinic = random.choice(3, rows, p=[0.5, 0.3, 0.2])
    pressure[random.random(rows) < 0.1] = np.nan
    pain = random.choice(["none", "some", "much"], rows)
    table = pd.DataFrame(
        {
            "age": age,
            "pain": pain,
            "pressure": pressure,
            "always": 4.5,
            "number": random.permutation(rows),
            "clinic": np.array(["Basel", "Aarau", "Chur"])[clinic],
            "ill": np.array(["no", "yes"])[ill],
        }
    )
    table.to_csv("patients.csv", index=False)
    entry = {
        "kind": "tabular_csv", "title": "Patients", "licence": "none", "citation": "none",
        "path": "patients.csv", "task": "binary", "label": "ill", "group": "clinic",
        "drop": ["number"], **changes,
    }  # fmt: skip
    words = [(pain == word).astype(float) for word in ("much", "none", "some")]
    features = np.stack([age, pressure, np.full(rows, 4.5), *words], axis=1)
    return {"patients": entry}, features, ill, np.array([1, 0, 2])[clinic]


# --- comparing ----------------------------------------------------------------------------------
def assert_table(path: Path, expected: Record) -> None:
    """Every column, every row."""
    found = pd.read_parquet(path)
    wanted = pd.DataFrame(expected)
    assert set(found.columns) == set(wanted.columns)
    for column in wanted.columns:
        np.testing.assert_allclose(
            found[column], wanted[column], rtol=1e-9, atol=1e-9, err_msg=f"{path.name}: {column}"
        )


def assert_run(
    folder: Path, rounds: Record, clients: Record, model: Model, bytes_down: int, bytes_up: int
) -> None:
    assert_table(folder / "rounds.parquet", rounds)
    assert_table(folder / "clients.parquet", clients)
    found = load_file(folder / "model.safetensors")
    assert found.keys() == model.keys()
    for name, leaf in model.items():
        np.testing.assert_allclose(found[name], leaf, rtol=1e-9, atol=1e-9, err_msg=name)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["bytes_down"], manifest["bytes_up"]) == (bytes_down, bytes_up)
    assert manifest["parameters"] == sum(leaf.size for leaf in model.values())
    assert (manifest["status"], manifest["dtype"]) == ("finished", "float64")


def round_row(
    run: Run, t: int, cohort: list[int], rate: float, tested: dict[str, float], more_up: int = 0
) -> dict[str, float]:
    sent = by_hand.size(run.initial()) * len(cohort)
    return {
        "round": t + 1,
        "learning_rate": rate,
        "bytes_down": sent,
        "bytes_up": sent + more_up * len(cohort),
        **{f"test_{name}": value for name, value in tested.items()},
    }


def update_rows(run: Run, t: int, cohort: list[int], sent: Model, models: list[Model]) -> Record:
    return [
        {
            "round": t + 1,
            "client": client,
            "train_samples": len(run.train[client]),
            "update_norm": by_hand.distance(sent, model),
        }
        for client, model in zip(cohort, models, strict=True)
    ]


def assert_fedavg(folder: Path, run: Run, x_test: Array, y_test: Array) -> None:
    """A run of FedAvg, tested on samples of nobody's."""
    model, rounds, clients, sent = run.initial(), [], [], 0
    for t in range(run.setting["rounds"]):
        cohort = run.cohort(t)
        models = [run.local(model, t, client) for client in cohort]
        before, model = model, by_hand.mean(models, run.sizes(cohort))
        sent += by_hand.size(model) * len(cohort)
        if run.evaluated(t):
            tested = score(model, x_test, y_test)
            rounds.append(round_row(run, t, cohort, run.rate(t), tested))
            clients += update_rows(run, t, cohort, before, models)
    assert_run(folder, rounds, clients, model, sent, sent)


# --- the runs -----------------------------------------------------------------------------------
def test_momentum_weight_decay_and_a_rate_that_falls_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    datasets, (x, y, x_test, y_test) = pictures()
    setting, folder = carry_out(
        """
        dataset: blobs
        partition: {scheme: iid, clients: 4}
        model: twonn
        rounds: 5
        participation: 1
        epochs: 2
        batch_size: 8
        optimizer: {lr: 0.05, momentum: 0.9, weight_decay: 0.01}
        lr_decay: {factor: 0.5, every: 2}
        evaluate: {every: 2}
        """,
        "fedavg",
        datasets,
    )
    run = Run(setting, SEED, x, y, by_hand.iid(len(y), 4, SEED), TWONN, CLASSES)
    assert [run.rate(t) for t in range(5)] == [0.05, 0.05, 0.025, 0.025, 0.0125]
    assert_fedavg(folder, run, x_test, y_test)


def test_a_sample_of_unequal_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    datasets, (x, y, x_test, y_test) = pictures()
    setting, folder = carry_out(
        """
        dataset: blobs
        partition: {scheme: dirichlet, clients: 7, alpha: 0.5, minimum: 3}
        model: logistic
        rounds: 6
        participation: 0.5
        epochs: 3
        batch_size: 5
        optimizer: {lr: 0.1}
        lr_decay: 0.9
        """,
        "fedavg",
        datasets,
    )
    hands = by_hand.dirichlet(y, 7, 0.5, 3, SEED)
    run = Run(setting, SEED, x, y, hands, LOGISTIC, CLASSES)
    assert len(run.cohort(0)) == 3 and run.cohort(0) != run.cohort(1)
    assert len({len(hand) for hand in hands}) > 3
    assert_fedavg(folder, run, x_test, y_test)


def test_a_server_optimizer_and_a_moving_average(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    datasets, (x, y, x_test, y_test) = pictures(84)
    method = "ima+near+fedadam"
    setting, folder = carry_out(
        """
        dataset: blobs
        partition: {scheme: shards, clients: 6, classes_per_client: 2}
        model: twonn
        rounds: 8
        participation: 0.7
        epochs: 2
        batch_size: 6
        optimizer: {lr: 0.1, momentum: 0.5, weight_decay: 0.001}
        lr_decay: 0.95
        methods:
          ima: {window: 3, start: 0.5, decay: 0.1}
        """,
        method,
        datasets,
        "{near: {variant_of: fedprox, mu: 0.3}, ima: {window: 2},"
        " fedadam: {lr: 0.02, beta1: 0.8, beta2: 0.9, tau: 0.01}}",
    )
    run = Run(setting, SEED, x, y, by_hand.shards(y, 6, 2, SEED), TWONN, CLASSES)
    model = run.initial()
    m, v = dict.fromkeys(model, 0.0), dict.fromkeys(model, 0.01**2)
    window: list[Model] = []
    rounds, clients, sent = [], [], 0
    for t in range(8):
        cohort, before = run.cohort(t), model
        # 0.5 * 8 = 4: from the fifth round on the mean of three models is used.
        rate = run.rate(t) if t < 4 else run.rate(4) * 0.9 ** (t - 4)

        def pull(name: str, value: Array, to: Model = before) -> Array:
            return 0.3 * (value - to[name])

        models = [run.local(before, t, client, rate, pull) for client in cohort]
        sent += by_hand.size(model) * len(cohort)
        average, moved = by_hand.mean(models, run.sizes(cohort)), {}
        for name in model:
            g = before[name] - average[name]
            m[name] = 0.8 * m[name] + 0.2 * g
            v[name] = 0.9 * v[name] + 0.1 * g**2
            moved[name] = before[name] - 0.02 * m[name] / (np.sqrt(v[name]) + 0.01)
        window = [*window, moved][-3:]
        model = by_hand.mean(window, [1] * len(window)) if t >= 4 else moved
        rounds.append(round_row(run, t, cohort, rate, score(model, x_test, y_test)))
        clients += update_rows(run, t, cohort, before, models)
    assert_run(folder, rounds, clients, model, sent, sent)


def test_personal_models_on_samples_held_out_under_wrong_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    datasets, (x, y, x_test, y_test) = pictures(131)
    setting, folder = carry_out(
        """
        dataset: blobs
        partition: {scheme: paired_shards, clients: 7, test_fraction: 0.3, validation: 0.25}
        model: logistic
        rounds: 4
        participation: 0.3
        epochs: 3
        batch_size: 4
        optimizer: {lr: 0.1, momentum: 0.9, weight_decay: 0.01}
        lr_decay: 0.9
        evaluate: {every: 2, clients: true}
        noise: {kind: pair, rate: 0.3}
        """,
        "ditto",
        datasets,
        "{ditto: {mu: 0.5, personal_epochs: 2}}",
    )
    train, test = by_hand.hold_out(by_hand.paired_shards(y, 7), 0.3, SEED)
    train, kept = by_hand.hold_out(train, 0.25, SEED, 3)  # of what is left for training
    wrong = by_hand.numpy_stream(SEED, "noise").random(len(y)) < 0.3
    noisy = y.copy()
    for row in np.concatenate([*train, *kept]):
        noisy[row] = (y[row] + wrong[row]) % CLASSES
    run = Run(setting, SEED, x, noisy, train, LOGISTIC, CLASSES)
    shared, own, taken = run.initial(), {}, [0] * 7
    rounds, clients, sent = [], [], 0
    for t in range(4):
        cohort, before = run.cohort(t), shared

        def pull(name: str, value: Array, to: Model = before) -> Array:
            return 0.5 * (value - to[name])

        models = [run.local(before, t, client) for client in cohort]
        for client in cohort:
            started = own.get(client, run.initial())
            own[client] = run.local(started, t, client, pull=pull, epochs=2)
            taken[client] += 1
        shared = by_hand.mean(models, run.sizes(cohort))
        sent += by_hand.size(shared) * len(cohort)
        if run.evaluated(t):
            rows = [
                client_row(run, t, client, own.get(client, shared), test[client], y, taken[client])
                for client in range(7)
            ]
            tested = over_clients(rows)
            every = np.concatenate(kept)
            for part, pair in {
                "test": (x_test, y_test),
                "validation": (x[every], noisy[every]),
            }.items():
                tested |= {f"{part}_{name}": v for name, v in score(shared, *pair).items()}
            for client, row in enumerate(rows):
                model = own.get(client, shared)
                mine = client_row(run, t, client, model, kept[client], noisy, taken[client])
                mine["samples"] = mine.pop("test_samples")
                same = ("round", "client", "train_samples", "participations")
                row |= {f"validation_{name}": mine[name] for name in mine.keys() - same}
            rounds.append(round_row(run, t, cohort, run.rate(t), {}) | tested)
            clients += rows
    assert 0 in taken and max(taken) > 1 and len({len(rows) for rows in test}) > 1
    assert_run(folder, rounds, clients, shared, sent, sent)


def client_row(
    run: Run, t: int, client: int, model: Model, rows: Array, y: Array, taken: int
) -> dict[str, float]:
    """A client's scores on its own test samples, whose labels are ``y``."""
    logits = by_hand.forward(model, run.x[rows])[1]
    return {
        "round": t + 1,
        "client": client,
        "train_samples": len(run.train[client]),
        "test_samples": len(rows),
        "participations": taken,
        **score(model, run.x[rows], y[rows]),
        **by_hand.measures(logits, y[rows], run.setting["batch_size"]),
    }


def over_clients(rows: Record) -> dict[str, float]:
    """Means over clients (client_) and over all their test samples (test_)."""
    places = ("round", "client", "train_samples", "test_samples", "participations")
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    samples = columns["test_samples"]
    accuracies = columns["accuracy"]
    summary = {"client_accuracy_std": ((accuracies - accuracies.mean()) ** 2).mean() ** 0.5}
    for name in columns.keys() - places:
        summary[f"client_{name}"] = columns[name].sum() / len(rows)
        summary[f"test_{name}"] = (columns[name] * samples).sum() / samples.sum()
    return summary


def test_a_table_standardised_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    datasets, x, y, _ = patients(test_fraction=0.3)
    setting, folder = carry_out(
        """
        dataset: patients
        partition: {scheme: iid, clients: 3}
        model: logistic
        rounds: 4
        participation: 1
        epochs: 2
        batch_size: 10
        optimizer: {lr: 0.2, momentum: 0.9}
        """,
        "fedavg",
        datasets,
    )
    # Of each class its share of 27 test rows, by the largest remainder, drawn with seed 0.
    random, held = RandomState(0), np.zeros(90, dtype=bool)
    exact = 27 * np.bincount(y) / 90
    wanted = np.floor(exact).astype(int)
    wanted[np.argmax(exact - wanted)] += 27 - wanted.sum()
    for label in (0, 1):
        held[random.permutation(np.flatnonzero(y == label))[: wanted[label]]] = True
    mean = np.nanmean(x[~held], axis=0)
    x = np.where(np.isnan(x), mean, x)
    deviation = x[~held].std(axis=0)
    deviation[2] = 1  # the constant
    x = ((x - mean) / deviation).astype(np.float32).astype(float)  # as it is stored
    run = Run(setting, SEED, x[~held], y[~held], by_hand.iid(63, 3, SEED), LOGISTIC, 1)
    assert_fedavg(folder, run, x[held], y[held])


def test_a_table_standardised_client_by_client_and_tilted_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    datasets, x, y, clinic = patients(standardise="per_client", test_fraction=0)
    setting, folder = carry_out(
        """
        dataset: patients
        partition: {scheme: natural, test_fraction: 0.25, stratified: true}
        model: logistic
        rounds: 4
        participation: 0.7
        epochs: 2
        batch_size: 7
        optimizer: {lr: 0.2, weight_decay: 0.05}
        lr_decay: 0.8
        evaluate: {clients: true}
        """,
        "term",
        datasets,
        "{term: {tilt: 1.5}}",
    )
    train, test = [], []
    for client in range(3):
        rows = np.flatnonzero(clinic == client)
        kept, out = train_test_split(rows, test_size=0.25, random_state=SEED, stratify=y[rows])
        train.append(np.sort(kept))
        test.append(np.sort(out))
    # Rows that a clinic holds out are in no mean.
    means = np.nanmean(x[np.concatenate(train)], axis=0)
    x = np.where(np.isnan(x), means, x).astype(np.float32).astype(float)
    for client in range(3):
        rows = np.flatnonzero(clinic == client)
        mean, deviation = x[train[client]].mean(axis=0), x[train[client]].std(axis=0)
        deviation[deviation < 1e-9] = 1  # what is constant in this clinic
        x[rows] = (x[rows] - mean) / deviation
    x = x.astype(np.float32).astype(float)
    run = Run(setting, SEED, x, y, train, LOGISTIC, 1)
    model, rounds, clients, decisions, taken = run.initial(), [], [], [], [0] * 3
    down = up = 0
    for t in range(4):
        cohort = run.cohort(t)
        before = np.array([run.loss(model, client) for client in cohort])
        models = [run.local(model, t, client) for client in cohort]
        weights = np.array(run.sizes(cohort)) * np.exp(1.5 * before)
        weights /= weights.sum()
        model = by_hand.mean(models, weights)
        for client, loss, weight in zip(cohort, before, weights, strict=True):
            taken[client] += 1
            decisions.append({"round": t + 1, "client": client, "loss": loss, "weight": weight})
        rows = [client_row(run, t, k, model, test[k], y, taken[k]) for k in range(3)]
        # Beside its movement a client reports its loss, eight bytes.
        row = round_row(run, t, cohort, run.rate(t), {}, 8) | over_clients(rows)
        down, up = down + row["bytes_down"], up + row["bytes_up"]
        rounds.append(row)
        clients += rows
    assert up > down
    assert_run(folder, rounds, clients, model, int(down), int(up))
    assert_table(folder / "decisions.parquet", decisions)
