"""What is no value."""

import math
from types import SimpleNamespace

import pytest

from fedrepro.support.errors import UserError, at_least


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, -math.inf])
def test_a_hyperparameter_is_a_finite_number(value: float) -> None:
    at_least(SimpleNamespace(mu=0.0, nu=None), 0, "mu", "nu")
    with pytest.raises(UserError, match=r"mu: .*expected a finite number of at"):
        at_least(SimpleNamespace(mu=value), 0, "mu")
