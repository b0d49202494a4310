"""What a run is made of, once its configuration, data and partition meet."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fedrepro.data.dataset import Dataset
from fedrepro.data.partition.partition import Partition
from fedrepro.data.tensors.noise import with_noise
from fedrepro.data.tensors.samples import ClientData, Samples, Scaling
from fedrepro.data.tensors.standardise import standardised
from fedrepro.engine.context import Context
from fedrepro.engine.executors import EXECUTORS, choose
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.optim import sgd
from fedrepro.engine.round import Federation
from fedrepro.engine.steps import steps_per_epoch
from fedrepro.engine.task import TASKS
from fedrepro.methods import _registry as registry
from fedrepro.methods.server.base import ServerOptimizer
from fedrepro.models import _registry as models
from fedrepro.support.errors import UserError, bad_value


@dataclass(frozen=True)
class Plan:
    """A run made ready: what is trained, on what, and what it is tested on."""

    federation: Federation
    executor: str
    test: Samples | None
    client_tests: list[Samples]
    client_sizes: list[int]
    rounds: int
    every: int

    @property
    def personal(self) -> bool:
        return bool(self.client_tests)


def compose(run: Mapping[str, Any]) -> tuple[Method, ServerOptimizer]:
    """The method and the server optimizer that ``run`` names.

    Raises:
        UserError: for what :func:`fedrepro.methods._registry.compose` refuses, and for a sample of
            clients where the method needs all of them.
    """
    method, server_optimizer = registry.compose(run["composition"], run["hyperparameters"])
    if run["participation"] < 1 and any(each.full_participation for each in method.layers()):
        raise bad_value(
            f"method {run['composition']}",
            "participation",
            run["participation"],
            "1, as it decides on the losses of all clients in every round; "
            "aaggff_d learns from a sample of clients",
        )
    return method, server_optimizer


def make_plan(run: Mapping[str, Any], dataset: Dataset, partition: Partition) -> Plan:
    """Everything that ``run`` (as ``config.run_config`` makes it) asks for.

    Raises:
        UserError: for what only shows when data, model and method meet.
    """
    method, server_optimizer = compose(run)
    device = run["device"]
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"device: {device!r}: expected a device that is there; use cpu")
    task = TASKS[dataset.task].with_batch_size(run["batch_size"])
    outputs = 1 if task.name == "binary" else dataset.classes
    net = Net(models.build(run["model"], dataset.input_shape, outputs).to(device))

    if not partition.fits(dataset.train.y):
        raise UserError(
            f"partition {partition.name}: it was not made from the present data set "
            f"{dataset.name}: make it again (fedrepro partition SETTING --seed {run['seed']})"
        )
    scaling = Scaling.of(dataset, device)
    split = standardised(dataset, partition)
    split = with_noise(split, partition, dataset.classes, run.get("noise"), run["seed"])
    training = Samples.of(split, scaling, device)
    clients = ClientData(training, partition.train)
    clients = clients.pooled() if method.pooled else clients
    tests = [training.some(each) for each in partition.test or []]
    everyone = len(clients.sizes)
    cohort = max(1, int(run["participation"] * everyone + 1e-9))

    mean_size = sum(clients.sizes) / everyone
    client_steps = (
        cohort
        * run["rounds"]
        * run["epochs"]
        * steps_per_epoch(round(mean_size), run["batch_size"])
    )
    family = models.find(run["model"]).family
    executor = choose(run["executor"], family, device.partition(":")[0], client_steps)

    context = Context(
        net=net,
        task=task,
        clients=everyone,
        rounds=run["rounds"],
        epochs=run["epochs"],
        optimizer=sgd(run["optimizer"]["momentum"], run["optimizer"]["weight_decay"]),
        server_optimizer=server_optimizer.build(),
        schedule=schedule(run["optimizer"]["lr"], run["lr_decay"]),
        server_lr=server_optimizer.lr,
    )
    method.check(context)
    federation = Federation(
        method=method,
        context=context,
        clients=clients,
        cohort=cohort,
        epochs=run["epochs"],
        batch_size=run["batch_size"],
        seed=run["seed"],
        execute=EXECUTORS[executor],
        device=device,
    )
    return Plan(
        federation,
        executor,
        Samples.of(dataset.test, scaling, device) if dataset.test else None,
        tests if run["evaluate"]["clients"] else [],
        [len(each) for each in partition.train],
        run["rounds"],
        run["evaluate"]["every"],
    )


def schedule(rate: float, decay: float | Mapping[str, Any]) -> Callable[[int], float]:
    """The learning rate of a round, counted from 0; ``decay`` as in ``config.Setting.lr_decay``."""
    if isinstance(decay, Mapping):
        factor, every = decay["factor"], decay["every"]
        return lambda round: rate * factor ** (round // every)
    return lambda round: rate * decay**round
