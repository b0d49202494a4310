"""What a run is made of, where data and method meet."""

from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from fedrepro.config.settings import StepDecay
from fedrepro.data.partition.partition import PartitionSpec, make_partition
from fedrepro.data.tensors.samples import Scaling
from fedrepro.engine.net import Precision
from fedrepro.models import registry as models
from fedrepro.run.assembly import _inputs, make_plan
from fedrepro.run.networks import class_weights_of, laid_out
from fedrepro.run.schedules import schedule
from fedrepro.support.errors import UserError
from support import tiny_run
from support.refusals import refused


@pytest.mark.parametrize(("texts", "classes", "unheld"), [(False, 3, (2,)), (True, 0, ())])
def test_classes_are_of_samples_that_have_one_label(
    texts: bool, classes: int, unheld: tuple[int, ...]
) -> None:
    """Texts have a word at every place: there is no class that clients could be without."""
    data, shares = tiny_run.dataset(), tiny_run.partition()
    shares = replace(shares, train=[rows[data.train.y[rows] != 2] for rows in shares.train])
    if texts:
        words = np.stack([data.train.y, data.train.y], axis=1)
        data = replace(data, train=replace(data.train, y=words))
    found = _inputs(data, shares, Scaling(None, None))
    assert (found.classes, found.unheld, found.shape) == (classes, unheld, (1, 2, 2))


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
@pytest.mark.parametrize(
    ("model", "method", "why"),
    [
        ("logistic", "fedavg", "model logistic, which is not convolutional and gains nothing"),
        ("wgan_gp_small", "wgan_gp", "a method that trains no classifier: what it makes needs all"),
    ],
)
def test_low_precision_is_refused_where_it_makes_no_sense(
    model: str, method: str, why: str, precision: str
) -> None:
    spec = tiny_run.run_spec(method, model=model, precision=precision)
    with pytest.raises(UserError, match=f"precision: '{precision}': expected float32 for {why}"):
        make_plan(spec, tiny_run.dataset(), tiny_run.partition())


@pytest.mark.parametrize(
    ("name", "on_cpu", "in_float32", "lower"),
    [
        ("resnet18", False, False, True),
        ("superfed_resnet9", False, False, True),  # BatchNorm without statistics
        ("ima_resnet18", True, False, False),  # GroupNorm
        ("mcmahan_cnn", True, False, False),
        ("twonn", False, False, False),
    ],
)
def test_memory_formats_follow_from_device_and_precision(
    name: str, on_cpu: bool, in_float32: bool, lower: bool
) -> None:
    def turned(device: str, precision: Precision) -> bool:
        with torch.device(device):
            module = models.build(name, (3, 32, 32), 10)
        leaves = laid_out(module, name, precision=precision).parameters()
        return not all(leaf.is_contiguous() for leaf in leaves)

    for precision in get_args(Precision):
        assert turned("cpu", precision) == on_cpu
        # The meta device stands for a GPU: it has shapes and strides.
        assert turned("meta", precision) == (in_float32 if precision == "float32" else lower)


def test_a_rate_may_decay_from_the_first_round() -> None:
    """The released scripts count rounds from 1."""
    rate = schedule(0.1, 0.5, first=1)
    assert [rate(0), rate(1)] == [0.05, 0.025]
    steps = schedule(0.1, StepDecay(factor=0.5, every=2), first=1)
    assert [steps(0), steps(1), steps(3)] == [0.1, 0.05, 0.025]


@pytest.mark.parametrize(("share", "cohort"), [(0.29, 29), (0.57, 57), (0.295, 29), (0.001, 1)])
def test_a_share_of_the_clients_is_a_number_of_them(share: float, cohort: int) -> None:
    """100 x 0.29 is less than 29 in floats."""
    given = {"scheme": "iid", "clients": 100}
    shares: PartitionSpec = TypeAdapter(PartitionSpec).validate_python(given)
    data = tiny_run.dataset()
    part = make_partition(data.train.y, None, shares, 1)
    spec = tiny_run.run_spec(participation=share, partition=given)
    assert make_plan(spec, data, part).federation.context.cohort_size == cohort


@pytest.mark.parametrize("task", ["multi_label", "classification", "binary"])
def test_balanced_weights_count_what_clients_train_on(task: str) -> None:
    """Neither rows that a client holds out nor those of no client."""
    labels = np.array([0, 1, 1, 1, 0, 1, 0, 0, 0, 1])
    rows = [np.array([0, 1, 2]), np.array([3, 5])]  # one of class 0, four of class 1
    mine = labels[np.concatenate(rows)]
    y = np.stack([labels, 1 - labels], 1) if task == "multi_label" else labels
    train = SimpleNamespace(y=y)
    dataset = SimpleNamespace(task=task, classes=2, name="d", train=train)
    counts = np.array([np.bincount(labels[each], minlength=2) for each in rows])
    partition = SimpleNamespace(train=rows, train_counts=counts)
    setting = SimpleNamespace(class_weights="balanced", name="s")
    found = class_weights_of(setting, dataset, train, partition, "cpu").tolist()  # type: ignore[arg-type]
    ones, zeros = int(mine.sum()), int((1 - mine).sum())
    several = [zeros / ones, ones / zeros]
    assert found == (several if task == "multi_label" else [5 / (2 * zeros), 5 / (2 * ones)])


def test_only_images_are_mirrored() -> None:
    """Not bytes of other axes, of which the last is no width."""
    data = tiny_run.dataset()
    assert data.test is not None
    flat = replace(
        data,
        input_shape=(4,),
        train=replace(data.train, x=data.train.x.reshape(-1, 4)),
        test=replace(data.test, x=data.test.x.reshape(-1, 4)),
    )
    spec = tiny_run.run_spec(augment="flip")
    make_plan(spec, data, tiny_run.partition())
    with refused("value", key="augment", value="flip"):
        make_plan(spec, flat, tiny_run.partition())
