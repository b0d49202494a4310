"""What a run is made of, where data and method meet."""

from dataclasses import replace

import numpy as np
import pytest

from fedrepro.data.tensors.samples import Scaling
from fedrepro.run.assembly import _inputs
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
