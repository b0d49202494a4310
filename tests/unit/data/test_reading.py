"""Clients' data sets: of pairs and of dicts, read once, or anew in every epoch where they draw."""

import os
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image
from torch import Tensor

import fedrepro as fr
from fedrepro.data.arrays import dataset_of
from fedrepro.data.tensors.samples import Scaling, TensorSamples
from fedrepro.engine.steps import Steps, samples_of, side_by_side, some_epochs
from fedrepro.support.errors import UserError
from support.refusals import Fault, refused

X = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32)
Y = np.arange(24) % 3
Draw = Callable[[np.ndarray], np.ndarray]


class Samples(torch.utils.data.Dataset[Any]):
    """Pairs, or dicts with the ``keys``, of inputs that a transform changes."""

    def __init__(self, transform: Any = None, keys: tuple[str, str] | None = None) -> None:
        self.transform, self.keys = transform, keys
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, at: int) -> Any:
        x = X[at] if self.transform is None else self.transform(X[at])
        return (x, int(Y[at])) if self.keys is None else {self.keys[0]: x, self.keys[1]: int(Y[at])}


def by_torch(x: np.ndarray) -> np.ndarray:
    return x + torch.randn(6).numpy()


def by_numpy(x: np.ndarray) -> np.ndarray:
    return x * np.float32(np.random.choice([-1, 1]))  # noqa: NPY002


def by_python(x: np.ndarray) -> np.ndarray:
    return x[::-1].copy() if random.random() < 0.5 else x


def stronger(x: np.ndarray) -> np.ndarray:
    return x + 2 * torch.randn(6).numpy()


def scores(data: Any, **keys: Any) -> Any:
    keys = {"rounds": 2, "epochs": 2, "batch_size": 7, "lr": 0.05, "test": (X, Y), **keys}
    return fr.train("fedavg", keys.pop("model", "logistic"), [data, (X, Y)], **keys)


def losses(data: Any, **keys: Any) -> list[float]:
    found: list[float] = scores(data, **keys).rounds["test_loss"].tolist()
    return found


@pytest.mark.parametrize(
    "keys",
    [("image", "label"), ("pixel_values", "labels"), ("x", "target"), ("x", "y"), ("x", "targets")],
)
def test_samples_as_dicts_are_those_as_pairs(keys: tuple[str, str]) -> None:
    wanted = dataset_of([(X, Y)]).meta["content_sha256"]
    assert dataset_of([Samples(keys=keys)]).meta["content_sha256"] == wanted
    rows = [{keys[0]: torch.as_tensor(x), keys[1]: y} for x, y in zip(X, Y, strict=True)]
    assert dataset_of([rows]).meta["content_sha256"] == wanted
    assert dataset_of([{keys[0]: X, keys[1]: Y}]).meta["content_sha256"] == wanted


def test_further_keys_are_further_inputs() -> None:
    rows = [{"user": x[:2], "item": x[2:], "label": y} for x, y in zip(X, Y, strict=True)]
    whole = dataset_of([({"user": X[:, :2], "item": X[:, 2:]}, Y)])
    assert whole.packing is not None and dataset_of([rows]).meta == whole.meta
    drawn = Samples(lambda x: {"a": by_torch(x), "b": x})
    with refused("value", key="clients", names="drawn"):
        dataset_of([drawn])


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "1", "P"])
def test_pictures_have_their_channels_first(mode: str) -> None:
    picture = Image.effect_noise((5, 4), 40).convert(mode)
    data = dataset_of([[{"image": picture, "label": at % 2} for at in range(4)]])
    channels = {"L": 1, "1": 1, "RGB": 3, "P": 3, "RGBA": 4}[mode]
    assert data.input_shape == (channels, 4, 5) and data.train.x.dtype == np.uint8
    if mode == "RGB":
        assert np.array_equal(data.train.x[0].transpose(1, 2, 0), np.asarray(picture))


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_pictures_of_more_than_8_bits_are_one_line(mode: str) -> None:
    """Pillow would make nearly all of their pixels white."""
    pixels = np.arange(20).reshape(4, 5) * 1000
    kind = {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]
    picture = Image.fromarray(pixels.astype(kind))
    assert picture.mode == mode
    with refused(code="value", value=mode):
        dataset_of([[(picture, at % 2) for at in range(4)]])


@pytest.mark.parametrize("mode", ["RGB", "P", "CMYK", "1"])
def test_a_column_of_pictures_has_what_pairs_have(mode: str) -> None:
    pictures = [Image.effect_noise((5, 4), 40 + at).convert(mode) for at in range(4)]
    wanted = dataset_of([[(picture, at % 2) for at, picture in enumerate(pictures)]])
    labels = [at % 2 for at in range(4)]
    for samples in ((pictures, labels), {"image": pictures, "label": labels}):
        assert dataset_of([samples]).meta["content_sha256"] == wanted.meta["content_sha256"]
    with refused(code="value", value="I;16"):
        dataset_of([([Image.fromarray(np.ones((4, 5), np.uint16))] * 4, labels)])
    with refused():
        dataset_of([([pictures[0], np.ones((9, 9))] * 2, labels)])


@pytest.mark.parametrize("mode", ["LA", "P"])
def test_what_is_seen_of_a_transparent_picture_is_kept(mode: str) -> None:
    """Black strokes on nothing would be all black."""
    strokes = np.zeros((4, 5, 4), np.uint8)
    strokes[1, :, 3] = 255
    drawn = Image.fromarray(strokes)
    picture = drawn.convert("LA")
    if mode == "P":
        picture = Image.fromarray((strokes[..., 3] > 0).astype(np.uint8), "L").convert("P")
        picture.info["transparency"] = 0
    data = dataset_of([[(picture, at % 2) for at in range(4)]])
    assert np.array_equal(data.train.x[0, 3], strokes[..., 3])


@pytest.mark.parametrize(
    ("sample", "fault"),
    [
        ({"image": X[0]}, Fault(code="missing", key="label", names="'image'")),
        ({"label": 1, "y": 1, "x": X[0]}, Fault(code="value", key="label")),
        ({"label": 1}, Fault(code="missing", key="inputs")),
        ({"label": 1, "text": "a word"}, Fault(code="value", key="text")),
    ],
)
def test_dicts_without_inputs_or_a_label_are_one_line(sample: Any, fault: Fault) -> None:
    with refused(**fault, file="clients.0, sample 0"):
        dataset_of([[sample, sample]])


def framed(columns: str, rows: range = range(24)) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[*columns], index=rows)


@pytest.mark.parametrize(
    ("clients", "test", "fault"),
    [
        ([(framed("abcdef"), Y), (framed("abcdfe"), Y)], None, {"file": "train", "value": "f"}),
        (
            [(framed("abcdef"), Y)],
            (framed("abcdeg"), Y),
            {"names": ("test.x", "'f'"), "value": "g"},
        ),
        ([{"x": X, "y": Y}, {"age": X, "y": Y}], None, {"names": "clients.1", "value": "age"}),
        (
            [{"x": framed("abcdef"), "y": Y}, {"x": framed("bacdef"), "y": Y}],
            None,
            {"names": "clients.1.x", "value": "b"},
        ),
        (
            [[{"x": X[0], "y": 0}, {"age": X[1], "y": 1}]],
            None,
            {"names": ("sample 1", "x"), "value": "age"},
        ),
        (
            [(framed("abcdef"), pd.Series(Y[::-1], range(23, -1, -1)))],
            None,
            {"names": "reset_index"},
        ),
        ([(framed("abcdef", range(24, 48)), pd.Series(Y))], None, {"names": "clients.0.x"}),
        ([(X[:, :0], Y)], None, {"code": "value", "key": "clients.0"}),
        (
            [(pa.table({"a": X[:, 0]}), Y), (pa.table({"b": X[:, 0]}), Y)],
            None,
            {"names": "clients.1.x", "value": "b"},
        ),
    ],
)
def test_inputs_of_other_names_or_rows_are_one_line(clients: Any, test: Any, fault: Fault) -> None:
    """By their places alone, one client's ages would be another's weights."""
    with refused(**fault):
        dataset_of(clients, test)


def test_targets_of_other_names_are_one_line() -> None:
    labels = np.eye(3, dtype=int)[Y]
    clients = [(X, pd.DataFrame(labels, columns=[*names])) for names in ("abc", "acb")]
    with refused(names="clients.1.y", value="c"):
        dataset_of(clients, task="multi_label")


def test_frames_are_as_their_arrays() -> None:
    same = [(framed("abcdef", range(5, 29)), pd.Series(Y, range(5, 29))), (X, Y)]
    assert dataset_of(same).meta == dataset_of([(X, Y), (X, Y)]).meta
    assert dataset_of([{"x": X, "y": Y}, {"label": Y, "x": X}]).meta == dataset_of(same).meta


@pytest.mark.parametrize("draw", [by_torch, by_numpy, by_python])
def test_a_transform_is_drawn_anew_by_the_seed(draw: Draw) -> None:
    first = losses(Samples(draw))
    torch.manual_seed(5)
    random.seed(5)
    assert losses(Samples(draw)) == first
    assert losses(Samples(draw), executor="parallel") == first
    assert losses(Samples(draw), seed=2) != first
    assert losses(Samples()) != first


@pytest.mark.parametrize("draw", [by_torch, by_numpy, by_python, None])
def test_whatever_draws_is_read_anew_and_nothing_else_is(draw: Draw | None) -> None:
    """Its client's rows alone: the others' stay, wherever they are among all."""
    data = dataset_of([(X[:5], Y[:5]), Samples(draw), (X[5:9], Y[5:9])])
    assert (data.redraw is None) == (draw is None)
    if data.redraw is None:
        return
    rows = np.array([28, 4, 5, 0, 32, 29, 7])  # of the clients 1, 0, 1, 0, 2, 2, 1
    drawn = data.redraw(7, rows)
    assert np.array_equal(drawn, data.redraw(7, rows))
    assert any(not np.array_equal(drawn, data.redraw(seed, rows)) for seed in range(8, 20))
    for place, row in ((1, 4), (3, 0), (4, 32), (5, 29)):
        assert np.array_equal(drawn[place], data.train.x[row])
    for at, place in ((23, 0), (0, 2), (2, 6)):
        values = drawn[place]
        kept = {
            by_torch: abs(values - X[at]).max() < 6,
            by_numpy: np.array_equal(abs(values), abs(X[at])),
            by_python: np.array_equal(np.sort(values), np.sort(X[at])),
        }
        assert draw is not None and kept[draw]


def test_a_sample_that_is_not_finite_is_told_as_such() -> None:
    """It differs from itself, but not between two readings."""
    for value in (np.nan, np.inf):
        with pytest.raises(UserError, match=r"row 3: (nan|inf):"):
            dataset_of([Samples(lambda x, value=value: np.where(x == X[3], value, x))])


def test_samples_that_change_late_or_in_their_keys_are_told() -> None:
    """Any of the first ones may, as one that a transform draws from its own generator."""
    for late in (0, 7, 20):
        count = iter(range(1000))

        def changed(x: np.ndarray, late: int = late, count: Any = count) -> np.ndarray:
            return x + next(count) * (x == X[late])

        with refused("value", file="clients.0", key="transform"):
            dataset_of([Samples(changed)])
    calls = iter(range(1000))
    keyed = Samples(lambda x: {"a": x, ("b" if next(calls) < 24 else "c"): x})
    with refused("value", file="clients.0", key="transform"):
        dataset_of([keyed])


def test_side_by_side_clients_have_the_same_draws() -> None:
    data = dataset_of([Samples(by_torch), (X[:5], Y[:5])])
    samples = TensorSamples.of(data.train, Scaling(None, None), "cpu")
    samples = replace(samples, redraw=data.redraw)

    def steps_of(rows: list[int], seed: int) -> Steps:
        orders = [torch.tensor(rows), torch.tensor(rows[::-1])]
        redraws = [partial(samples.redrawn, seed + epoch) for epoch in range(2)]
        return Steps(samples, orders, 4, {}, redraws=redraws)

    cohort = [steps_of([*range(24)], 3), steps_of([*range(24, 29)], 9)]
    together = side_by_side(cohort)
    for client, steps in enumerate(cohort):
        alone = torch.cat([batch["x"] for batch in steps])
        real = together["real"][client].bool()
        assert torch.equal(together["x"][client][real], alone)
        later = torch.cat([batch["x"] for batch in some_epochs(steps, 2, 1, 2)])
        assert torch.equal(later, alone[len(alone) // 2 :])
        x, _, _ = samples_of(steps, 2)
        assert torch.equal(x, alone[: len(alone) // 2])


def test_each_epoch_round_and_client_has_draws_of_its_own() -> None:
    drawn: list[np.ndarray] = []

    def keep(x: np.ndarray) -> np.ndarray:
        drawn.append(torch.rand(3).numpy())
        return x

    keys = {"rounds": 2, "epochs": 2, "test": (X, Y), "batch_size": 7}
    fr.train("fedavg", "logistic", [Samples(keep), Samples(keep)], **keys)
    trained = np.array(drawn[2 * 3 * len(X) :])  # after both were read, and twice again
    assert len(trained) == 2 * 2 * 2 * len(X)
    assert len(np.unique(trained, axis=0)) == len(trained)


def interrupted(x: np.ndarray) -> np.ndarray:
    """Is drawn, and interrupts when as many samples as the environment says have been read."""
    os.environ["LEFT"] = str(int(os.environ["LEFT"]) - 1)
    if os.environ["LEFT"] == "0":
        signal.raise_signal(signal.SIGINT)
    return by_torch(x)


def test_threads_and_an_interruption_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = losses(Samples(by_torch), rounds=3)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert losses(Samples(by_torch), rounds=3) == wanted
    finally:
        torch.set_num_threads(before)
    monkeypatch.setenv("LEFT", "124")  # in the second round
    keys = {"rounds": 3, "folder": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        losses(Samples(interrupted), **keys)
    assert losses(Samples(interrupted), **keys) == wanted
    assert int(os.environ["LEFT"]) > -174  # it went on: from the start, it would read 216 samples


def test_another_transform_is_another_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = losses(Samples(by_torch), folder=folder)
    assert losses(Samples(by_torch), folder=folder) == first
    with pytest.raises(UserError, match="transform"):
        losses(Samples(stronger), folder=folder)


@pytest.mark.parametrize("drawing", [range(3990, 4000), [777], range(2000, 2200)])
@pytest.mark.parametrize("seeded", [False, True])  # others draw from a global generator
def test_a_generator_of_its_own_is_refused_wherever_it_draws(drawing: Any, seeded: bool) -> None:
    """At the end, for one sample of a class of its own, or in the middle of the largest class."""
    generator = np.random.default_rng(1)

    class Some(torch.utils.data.Dataset[Any]):
        def __init__(self, own: bool) -> None:
            self.own = own

        def __len__(self) -> int:
            return 4000

        def __getitem__(self, at: int) -> tuple[Any, int]:
            x = torch.rand(2) if seeded else torch.zeros(2)
            x = x + generator.random() * (self.own and at in drawing)
            return x, 1 if at == 777 else 2 * (at >= 3000)

    dataset_of([Some(False)])
    with refused(key="transform"):
        dataset_of([Some(True)])


def test_a_generator_of_its_own_is_refused() -> None:
    generator = np.random.default_rng(1)
    with refused(names=("clients.0", "samples")):
        dataset_of([Samples(lambda x: x * generator.choice([-1.0, 1.0]))])


def test_what_fails_or_changes_its_shape_later_is_one_line() -> None:
    def shorter(x: np.ndarray) -> np.ndarray:
        shorter.calls += 1  # type: ignore[attr-defined]
        torch.rand(1)
        return x[:5] if shorter.calls > 84 else x  # type: ignore[attr-defined]

    def fails(x: np.ndarray) -> np.ndarray:
        fails.calls += 1  # type: ignore[attr-defined]
        torch.rand(1)
        return x / (0 if fails.calls > 84 else 1) if fails.calls <= 84 else x[9, 9]  # type: ignore

    def folded(x: np.ndarray) -> np.ndarray:
        folded.calls += 1  # type: ignore[attr-defined]
        torch.rand(1)
        return x.reshape(2, 3) if folded.calls > 84 else x  # type: ignore[attr-defined]

    for draw, fault in (
        (shorter, Fault(value=[5], names="[6]")),
        (folded, Fault(value=[2, 3], names="[6]")),
        (fails, Fault(names="IndexError")),
    ):
        draw.calls = 0  # type: ignore[attr-defined]
        with refused("value", **fault):
            scores(Samples(draw))


def test_fractions_that_are_drawn_for_whole_numbers_are_refused() -> None:
    """Storage of whole numbers would cut them, and wrap those that are negative."""
    for later in (0.5, -300.0):
        calls = iter(range(1000))

        def draw(x: np.ndarray, calls: Any = calls, later: float = later) -> np.ndarray:
            torch.rand(1)
            return np.full(3, 200, np.uint8) + (later if next(calls) > 84 else 0)

        data = dataset_of([Samples(draw)])
        x, y = torch.from_numpy(data.train.x), torch.from_numpy(data.train.y)
        as_they_are: Any = Tensor.clone
        drawn = TensorSamples(x, y, as_they_are, data.redraw)
        with refused("value"):
            for seed in range(30):
                drawn.redrawn(seed, torch.arange(4))
        drawn = TensorSamples(x.float(), y, as_they_are, data.redraw)
        assert drawn.redrawn(1, torch.arange(4)).unique().tolist() == [200 + later]


@pytest.mark.parametrize("task", ["classification", "regression", "multi_label"])
def test_labels_that_are_drawn_with_their_inputs_are_refused(task: str) -> None:
    """New inputs would be trained on with the labels that the first ones had."""

    class Rotations(Samples):
        def __getitem__(self, at: int) -> Any:
            turn = int(torch.randint(3, ()))
            label: Any = [turn == 0, turn > 0] if task == "multi_label" else turn
            return np.roll(X[at], turn), np.array(label, int)

    class Still(Rotations):
        def __getitem__(self, at: int) -> Any:
            torch.rand(())
            label: Any = [Y[at] == 0, Y[at] > 0] if task == "multi_label" else Y[at]
            return X[at], np.array(label, int)

    drawn = dataset_of(
        [Samples(), Rotations()] if task == "classification" else [Rotations()], task=task
    )
    assert drawn.redraw is not None
    with refused("value", key="label"):
        drawn.redraw(5, np.arange(len(drawn.train)))
    still = dataset_of([Still()], task=task)
    assert still.redraw is not None
    assert np.array_equal(still.redraw(5, np.array([3, 1])), X[[3, 1]])


def test_a_run_says_that_what_clients_hold_out_is_drawn(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.warns(UserWarning, match="hold out"):
        scores(Samples(by_torch), test=None)
    with pytest.warns(UserWarning, match="test: "):
        scores(Samples(), test=Samples(by_torch))
    for data, keys in ((Samples(by_torch), {}), (Samples(), {"test": None})):
        recwarn.clear()
        scores(data, **keys)
        assert not recwarn
