"""A GPU on paper: what the engine launches there, on tensors without memory."""

import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fedrepro.cost.rates import Rates
from support.places import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from card_table import CardTable, shipped
from gpu_on_paper import PAPER, Clock, OnPaper
from measure_rates import Subject, enter_measurements, measure_method, measure_model, random_plan

TABLE = CardTable(
    name="A card", launch_seconds=1.0, replay_seconds=3.0, kernel_seconds=0.1, product_seconds=0.2,
    convolution_seconds=0.4, left_by_compiler=0.5, bytes_per_second=1e30, start_seconds=0.0,
    flop_per_second={"float32": 10.0, "tf32": 100.0, "bfloat16": 1e30}, process_bytes=1, sources={},
)  # fmt: skip
NET = Subject("twonn", (1, 28, 28), "bytes", 10, 10)


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device=PAPER)


def seconds(action: Callable[[], object], **keys: object) -> float:
    with Clock(TABLE, **keys) as clock:  # type: ignore[arg-type]
        action()
        return clock.wait()


def test_operations_take_launches_kernels_flop_and_bytes() -> None:
    x, y = empty(2, 3), empty(3, 5)
    assert seconds(lambda: x + 1) == pytest.approx(1.1)
    assert seconds(lambda: x.T[1:]) == 0  # a view is no kernel
    assert seconds(lambda: x @ y) == pytest.approx(1.2 + 2 * 2 * 3 * 5 / 10)
    assert seconds(lambda: x @ y, precision="tf32") == pytest.approx(1.2 + 60 / 100)
    assert seconds(lambda: x + 1, compiled=True) == pytest.approx(1.05)
    slow = TABLE.model_copy(update={"bytes_per_second": 4.0})
    with Clock(slow) as clock:
        x.neg()
        assert clock.wait() == pytest.approx(1.1 + 2 * 6 * 4 / 4)
    assert seconds(lambda: torch.ones(3) + 1) == 0  # the CPU's


def test_the_host_is_ahead_of_the_card_until_it_waits() -> None:
    x, y = empty(10, 10), empty(10, 10)
    with Clock(TABLE) as clock:
        x @ y
        assert (clock.host, clock.card) == pytest.approx((1.0, 201.2))
        assert float((x @ y).sum()) == 1.0  # of nobody knows what: any number
        assert clock.host == clock.card == pytest.approx(1.0 + 2 * 200.2 + 0.1)


def test_what_is_recorded_is_one_launch() -> None:
    x, recorded = empty(2, 3), Clock(TABLE)
    with recorded as clock:
        _, replay = OnPaper(clock).record(lambda: {"x": x + x + x})
        assert clock.wait() == 0
        replay()
        assert clock.wait() == pytest.approx(3.0 + 2 * 0.1)


@pytest.mark.parametrize("clients", [0, 5])
def test_a_model_s_rate_has_its_own_steps(clients: int) -> None:
    """Twice the products take longer; twice the clients side by side hardly do."""
    rate = measure_model(replace(NET, stacked=clients), PAPER, 1)
    assert rate.parameters == 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10
    assert 0 < rate.step_seconds < 1e-3 and 0 < rate.busy <= 1
    if clients:
        wider = measure_model(replace(NET, stacked=2 * clients), PAPER, 1)
        assert wider.step_seconds < 0.75 * rate.step_seconds
    else:
        assert rate.client_seconds > rate.step_seconds
        again = measure_model(NET, PAPER, 1)
        assert again.step_seconds == pytest.approx(rate.step_seconds)


@pytest.mark.parametrize(
    ("model", "shape", "batch", "stacked", "measured"),
    [(row.model, row.shape, row.batch_size, row.stacked, row.steps_per_second)
     for row in shipped().models if row.precision == "float32" and "resnet" not in row.model],
)  # fmt: skip
def test_predictions_are_near_what_was_measured(
    model: str, shape: tuple[int, ...], batch: int, stacked: int, measured: float
) -> None:
    """By how much they differ is what to expect of those that nobody has measured."""
    workload = Subject(model, shape, "bytes", 10, batch, stacked)
    predicted = 1 / measure_model(workload, PAPER, 1).step_seconds
    assert 1 / 2.2 < predicted / measured < 2.2


def test_the_shipped_predictions_are_of_the_shipped_table() -> None:
    """Else say `make paper`."""
    rates = Rates.read("cuda")
    assert rates.machine["table"] == shipped().digest
    more = shipped().model_copy(update={"models": (), "sources": {}})
    assert more.digest == shipped().digest
    assert more.model_copy(update={"kernel_seconds": 1.0}).digest != shipped().digest
    for workload, rate in rates.models.items():
        row = shipped().row_of(workload)
        assert rate.source == (row.source if row else "")


def test_measurements_take_the_place_of_predictions() -> None:
    rates = Rates.read("cuda")
    key = next(key for key, rate in rates.models.items() if rate.source)
    rates.models[key] = replace(rates.models[key], step_seconds=1.0, source="")
    enter_measurements(rates)
    row = shipped().row_of(key)
    assert row and rates.models[key].source == row.source
    assert 0.5 <= rates.models[key].step_seconds * row.steps_per_second <= 1


def test_a_server_s_time_does_not_grow_with_the_clients_steps() -> None:
    plan = random_plan(NET, 2, 10, "fedavg", {}, 1, PAPER, 1)
    rate = measure_method(plan.spec, PAPER, 1, {})
    assert (rate.factor, rate.round_seconds) == pytest.approx((1.0, 0.0), abs=1e-9)
    proximal = random_plan(NET, 2, 10, "fedprox", {}, 1, PAPER, 1)
    assert 1.0 < measure_method(proximal.spec, PAPER, 1, {}).factor < 2.5
