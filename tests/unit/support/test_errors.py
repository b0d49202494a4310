"""What is no value."""

import math

import pytest

from fedrepro.support.errors import UserError, at_least


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, -math.inf])
def test_a_hyperparameter_is_a_finite_number(value: float) -> None:
    at_least("fedprox", "mu", 0.0, 0.0)
    with pytest.raises(UserError, match=r"method fedprox: mu: .*expected a finite number of at"):
        at_least("fedprox", "mu", value, 0.0)
