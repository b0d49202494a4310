"""Where clients standardise, each row that a client holds is scaled by its own training rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedrepro.data.dataset import Dataset
from fedrepro.data.partition.partition import Partition
from fedrepro.run.assembly import Plan, make_plan
from support import tiny_run

COLUMNS = (0, 2)  # of four; the other two stay as they are


def unequal() -> tuple[Dataset, Partition]:
    """Features in float32, in other units for each client, of which some are constant."""
    images = tiny_run.dataset()
    x = images.train.x.reshape(-1, 4).astype(np.float32)
    every = tiny_run.partition()
    for client, rows in enumerate(every.train):
        x[rows] = x[rows] * (client + 1) - 40 * client
    x[every.train[1], 2] = 7.5  # nothing to divide by
    data = replace(
        images,
        train=replace(images.train, x=x),
        test=None,
        input_shape=(4,),
        client_standardised=COLUMNS,
    )
    # Half for training, and a quarter each for testing and validation.
    train, test, validation = (
        [rows[first::4] if first else np.sort(np.r_[rows[::4], rows[1::4]]) for rows in every.train]
        for first in (0, 2, 3)
    )

    def counts(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.stack([np.bincount(data.train.y[each], minlength=3) for each in parts])

    return data, replace(
        every, train=train, train_counts=counts(train), test=test, test_counts=counts(test),
        validation=validation, validation_counts=counts(validation),
    )  # fmt: skip


def by_hand(data: Dataset, own: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Some rows of a client whose training rows are ``own``."""
    raw = data.train.x.astype(np.float64)
    found = raw[rows].copy()
    for column in COLUMNS:
        values = raw[own, column]
        spread = np.sqrt(((values - values.mean()) ** 2).mean())
        found[:, column] = (raw[rows, column] - values.mean()) / (spread if spread > 1e-9 else 1)
    return found


@pytest.fixture(scope="module")
def made() -> tuple[Dataset, Partition, Plan]:
    data, part = unequal()
    spec = tiny_run.run_spec(evaluate={"clients": True})
    return data, part, make_plan(spec, data, part)


def test_every_part_is_scaled_by_the_clients_own_training_rows(
    made: tuple[Dataset, Partition, Plan],
) -> None:
    data, part, plan = made
    assert part.test and part.validation
    clients = plan.federation.clients
    for client, own in enumerate(part.train):
        for rows, (x, y) in (
            (own, clients.samples.at(clients.rows(client))),
            (part.test[client], plan.client_tests.of(client)(0, len(part.test[client]))),
            (
                part.validation[client],
                plan.client_validations.of(client)(0, len(part.validation[client])),
            ),
        ):
            assert (
                x.dtype == torch.get_default_dtype() and y.tolist() == data.train.y[rows].tolist()
            )
            np.testing.assert_allclose(x.numpy(), by_hand(data, own, rows), rtol=1e-4, atol=1e-4)
    x, _ = clients.samples.at(clients.rows(0))
    assert np.allclose(x[:, 0].mean(), 0, atol=1e-4) and np.allclose(x[:, 0].std(correction=0), 1)


def test_validation_samples_together_are_those_of_the_clients(
    made: tuple[Dataset, Partition, Plan],
) -> None:
    """Each row once, scaled by its own client: not by all training rows together."""
    data, part, plan = made
    assert plan.validation is not None and part.validation
    wanted = [by_hand(data, *each) for each in zip(part.train, part.validation, strict=True)]
    x, _ = plan.validation(0, len(plan.validation))
    np.testing.assert_allclose(x.numpy(), np.concatenate(wanted), rtol=1e-4, atol=1e-4)


def test_held_out_rows_change_no_other_row() -> None:
    """Whatever stands in test and validation rows, training rows are scaled as before."""
    data, part = unequal()
    assert part.test and part.validation
    changed = data.train.x.copy()
    changed[np.concatenate([*part.test, *part.validation])] = 1e6
    spec = tiny_run.run_spec(evaluate={"clients": True})
    other = make_plan(spec, replace(data, train=replace(data.train, x=changed)), part)
    plan = make_plan(spec, data, part)
    for client in range(len(part.train)):
        one, two = (
            each.federation.clients.samples.at(each.federation.clients.rows(client))[0]
            for each in (plan, other)
        )
        assert torch.equal(one, two)
