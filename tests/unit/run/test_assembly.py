"""What a run is made of, where data and method meet."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter

from fedrepro.config.settings import StepDecay
from fedrepro.data.partition.partition import PartitionSpec, make_partition
from fedrepro.data.tensors.samples import Scaling
from fedrepro.run.assembly import _inputs, make_plan, schedule
from fedrepro.support.errors import UserError
from support import tiny_run


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


@pytest.mark.parametrize(
    ("model", "method", "why"),
    [
        ("logistic", "fedavg", "model logistic, which is not convolutional and gains nothing"),
        ("wgan_gp_small", "wgan_gp", "a method that trains no classifier: what it makes needs all"),
    ],
)
def test_bfloat16_is_refused_where_it_makes_no_sense(model: str, method: str, why: str) -> None:
    spec = tiny_run.run_spec(method, model=model, precision="bfloat16")
    with pytest.raises(UserError, match=f"precision: 'bfloat16': expected float32 for {why}"):
        make_plan(spec, tiny_run.dataset(), tiny_run.partition())


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
    assert make_plan(spec, data, part).federation.cohort_size == cohort
