"""What a program has set around a call of `fr.train` changes no number of the run."""

import copy
import gc
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from threading import Event
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pytest
import torch
from torch import nn

import fedrepro as fr
from fedrepro.engine.method import Method
from fedrepro.measures.base import Measure
from fedrepro.methods.local import Local
from fedrepro.support.errors import writing
from support.refusals import refused

RANDOM = np.random.default_rng(0)


def samples(n: int) -> tuple[Any, Any]:
    y = RANDOM.integers(0, 3, n)
    return (np.eye(3)[y] + 0.5 * RANDOM.normal(size=(n, 3))).astype(np.float32), y


CLIENTS, TEST = [samples(30), samples(24)], samples(50)


def network(width: int = 8) -> nn.Module:
    """With draws, running statistics and a width that tells one model from another."""
    layers = nn.Linear(3, width), nn.BatchNorm1d(width), nn.Dropout(0.3), nn.Linear(width, 3)
    return nn.Sequential(*layers)


def losses(seed: int, model: Any = None) -> list[float]:
    model = model or network()
    run = fr.train("fedavg", model, CLIENTS, rounds=3, test=TEST, seed=seed, batch_size=7)
    return [*run.rounds["test_loss"]]


@pytest.mark.parametrize(
    "around",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.device("meta"),
        lambda: np.errstate(all="raise"),
    ],
)
def test_a_run_is_the_same_in_any_context(
    around: Callable[[], AbstractContextManager[Any]],
) -> None:
    usual = losses(1)
    own = network()
    with around():
        assert losses(1, own) == usual


def test_what_is_made_in_inference_mode_can_be_trained() -> None:
    own = network()
    with torch.inference_mode():
        copied = network()
        copied.load_state_dict(own.state_dict())
    assert losses(1, copied) == losses(1, lambda shape, outputs: own)


def test_a_run_has_its_own_precision() -> None:
    with refused("value", key="torch.autocast"), torch.autocast("cpu", torch.bfloat16):
        losses(1)

    class Switches(fr.callbacks.Callback):
        def on_round(self, progress: Any) -> None:
            torch.set_autocast_enabled("cpu", True)

    try:
        with refused("value", key="torch.autocast"):
            fr.train("fedavg", "logistic", CLIENTS, rounds=2, test=TEST, callbacks=Switches())
    finally:
        torch.set_autocast_enabled("cpu", False)


def test_threads_get_the_numbers_of_one_after_the_other() -> None:
    def builder(width: int) -> Callable[[Any, int], nn.Module]:
        return lambda shape, outputs: network(width)  # all of one name

    in_turn = [losses(seed, builder(2 + seed)) for seed in range(1, 5)]
    with ThreadPoolExecutor(4) as pool:
        at_once = [*pool.map(lambda seed: losses(seed, builder(2 + seed)), range(1, 5))]
    assert at_once == in_turn


def test_a_callback_may_train() -> None:
    class Trains(fr.callbacks.Callback):
        inner: list[float] = []  # noqa: RUF012

        def on_end(self, run: fr.Run) -> None:
            self.inner[:] = losses(2)

    watching = Trains()
    fr.train("fedavg", network(), CLIENTS, rounds=1, test=TEST, callbacks=watching)
    assert watching.inner == losses(2)


@pytest.mark.parametrize("model", ["logistic", nn.Linear(3, 3), lambda shape, n: nn.Linear(3, n)])
def test_scores_of_a_run_in_a_temporary_folder_outlive_it_in_a_copy(model: Any) -> None:
    """As of one that another process sends back, whose folder is gone with it."""
    run = fr.train("fedavg", model, CLIENTS, rounds=2)
    wanted = run.rounds, run.clients, run.folder
    assert run.model(torch.ones(2, 3)).shape == (2, 3)
    copies = [ForkingPickler.loads(ForkingPickler.dumps(run)), copy.deepcopy(run)]
    del run
    gc.collect()
    assert not wanted[2].exists()
    for each in copies:
        assert each.rounds.equals(wanted[0]) and each.clients.equals(wanted[1])
        with refused("unreadable", file="model.safetensors"):
            each.model  # noqa: B018
    assert len(fr.compare({"both": copies[:1]})) == 1


@pytest.mark.parametrize("better", [True, False])
def test_what_a_program_gave_as_objects_does_not_travel_with_a_run(better: bool) -> None:
    """No importable module has them. Which way their scores are better is known without them."""

    @dataclass(frozen=True)
    class Own(Method):
        """FedAvg."""

    class Share(Measure):
        words, higher_is_better, per = "share", better, "client"

        def of_outputs(self, outputs: Any, targets: Any) -> float:
            return float((outputs.argmax(1) == targets).mean())

    runs = [
        fr.train(
            Own, "logistic", CLIENTS, rounds=3, lr=lr,
            measures=[Share, lambda outputs, targets: float(outputs.std())],
            loss=lambda outputs, targets: nn.functional.cross_entropy(outputs, targets),
        )
        for lr in (0.01, 1.0)
    ]  # fmt: skip
    for copied in (lambda run: ForkingPickler.loads(ForkingPickler.dumps(run)), copy.deepcopy):
        copies = [copied(copied(run)) for run in runs]
        for of, higher in (("client_share", better), ("client_measure", True)):
            table = fr.compare(copies, of=of)
            assert table.equals(fr.compare(runs, of=of))
            first, second = table["mean"]
            assert first != second
            assert (table["gain"].iloc[1] > 0) == ((second > first) == higher)


def test_a_copy_has_no_shared_model_either() -> None:
    @dataclass(frozen=True)
    class Alone(Local):
        """Clients train alone."""

    run = fr.train(Alone, "logistic", CLIENTS, rounds=1)
    for each in (run, copy.deepcopy(run), ForkingPickler.loads(ForkingPickler.dumps(run))):
        with refused("missing"):
            _ = each.model


def test_a_fork_trains_while_a_thread_of_its_parent_does() -> None:
    begun, over = Event(), Event()

    class Waits(fr.callbacks.Callback):
        def on_round(self, progress: Any) -> None:
            begun.set()
            over.wait(60)

    def train() -> None:
        fr.train("fedavg", "logistic", CLIENTS, rounds=1, test=TEST, callbacks=Waits())

    with ThreadPoolExecutor(1) as pool:
        pool.submit(train)
        assert begun.wait(60)
        child = get_context("fork").Process(target=losses, args=(1, "logistic"), daemon=True)
        child.start()
        child.join(60)
        over.set()
    assert child.exitcode == 0


def test_a_fork_leaves_its_parent_s_run() -> None:
    run = fr.train("fedavg", "logistic", CLIENTS, rounds=1, test=TEST)
    process = os.fork()
    if process == 0:
        del run
        gc.collect()
        os._exit(0)
    os.waitpid(process, 0)
    assert run.model is not None


def test_numbers_too_small_are_zero_whatever_numpy_is_told() -> None:
    x = CLIENTS[0][0] * 1000
    with np.errstate(all="raise"):
        run = fr.train(
            "fedavg", "logistic", [(x, CLIENTS[0][1])], rounds=1, test_fraction=0.3, lr=1.0
        )
    assert len(run.rounds) == 1


def test_a_time_limit_of_the_caller_is_its_own_error() -> None:
    class Late(fr.callbacks.Callback):
        def on_round(self, progress: Any) -> None:
            raise TimeoutError("my limit")

    with pytest.raises(TimeoutError), writing("a file"):
        raise TimeoutError("my limit")
    with pytest.raises(TimeoutError):
        fr.train("fedavg", "logistic", CLIENTS, rounds=2, test=TEST, callbacks=Late())
    with refused("unwritable"), writing("a file"):
        raise TimeoutError(110, "the disk's")


def changed(module: nn.Module) -> None:
    module.eval()
    module(torch.ones(4, 3))
    module[0].requires_grad_(False)  # type: ignore[operator,index]
    with torch.no_grad():
        module[0].weight.fill_(3)  # type: ignore[operator,index,union-attr]


@pytest.mark.parametrize("weights", ["keep", "draw"])
def test_the_model_of_a_run_is_as_it_was_whatever_becomes_of_the_one_given(weights: Any) -> None:
    given = network()
    run = fr.train("fedavg", given, CLIENTS, rounds=1, test=TEST, weights=weights)
    before = run.model.state_dict()
    changed(given)
    assert all(torch.equal(leaf, before[name]) for name, leaf in run.model.state_dict().items())
    wrapped = torch.compile(network(), backend="eager")
    assert fr.train("fedavg", wrapped, CLIENTS, rounds=1, test=TEST).model


def test_a_run_goes_on_from_the_model_of_another_and_says_when_it_draws_one_anew() -> None:
    first = fr.train("fedavg", "logistic", CLIENTS, rounds=6, test=TEST)
    still = {"rounds": 1, "lr": 1e-9, "test": TEST, "seed": 7}
    with catch_warnings(record=True) as said:
        simplefilter("always")
        run = fr.train("fedavg", first.model, CLIENTS, **still)
        own = fr.train("fedavg", nn.Linear(3, 3), CLIENTS, weights="keep", **still)
        assert not said
        assert fr.train("fedavg", own.model, CLIENTS, **still).rounds.equals(own.rounds)
        assert not said
        fr.train("fedavg", nn.Linear(3, 3), CLIENTS, **still)
        assert len(said) == 1
    assert run.rounds["test_loss"][0] == pytest.approx(first.rounds["test_loss"].iloc[-1], abs=1e-6)
