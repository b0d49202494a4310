"""What a run is made of, where data and method meet."""

from dataclasses import replace

import numpy as np
import pytest

from fedrepro.data.tensors.samples import Scaling
from fedrepro.run.assembly import _inputs, make_plan
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
