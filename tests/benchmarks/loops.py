"""FedAvg of a workload twice: as one would write it in plain PyTorch, and by the engine."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.workloads import Workload
from fedrepro.data.tensors.samples import ClientData, Scaling, TensorSamples
from fedrepro.engine.context import Context
from fedrepro.engine.executors import EXECUTORS
from fedrepro.engine.net import Net, Precision
from fedrepro.engine.optim import sgd
from fedrepro.engine.round import Federation, begin, play_round
from fedrepro.engine.task import BINARY, CLASSIFICATION
from fedrepro.methods import registry
from fedrepro.run.devices import keep_freed_memory
from fedrepro.run.networks import laid_out
from fedrepro.run.store import ClientStore

WORKERS = 2  # of the executor that deals clients out


class BareLoop:
    """What the engine is measured against.

    One module, one `torch.optim.SGD` for all clients, every client's samples in memory as floats,
    and nothing besides training and averaging: what a person who needs one number would write.
    """

    def __init__(self, workload: Workload, device: str = "cpu") -> None:
        x, y = (leaf.to(device) for leaf in workload.data())
        x = x / 255 if x.dtype == torch.uint8 else x
        self.workload = workload
        self.data = list(zip(x.split(workload.samples), y.split(workload.samples), strict=True))
        self.module = workload.module().to(device)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=workload.lr)
        self.parameters = list(self.module.parameters())
        self.average = [parameter.detach().clone() for parameter in self.parameters]

    def run(self, rounds: int) -> None:
        """Go on from where the last call ended."""
        for _ in range(rounds):
            cohort = torch.randperm(self.workload.clients)[: self.workload.cohort].tolist()
            total = sum(len(self.data[client][1]) for client in cohort)
            average = [torch.zeros_like(parameter) for parameter in self.parameters]
            for client in cohort:
                self._train(client)
                share = len(self.data[client][1]) / total
                for mean, parameter in zip(average, self.parameters, strict=True):
                    mean.add_(parameter.detach(), alpha=share)
            self.average = average

    def _train(self, client: int) -> None:
        with torch.no_grad():
            for parameter, mean in zip(self.parameters, self.average, strict=True):
                parameter.copy_(mean)
        x, y = self.data[client]
        size = self.workload.batch_size
        for _ in range(self.workload.epochs):
            order = torch.randperm(len(y), device=y.device)
            for inputs, targets in zip(x[order].split(size), y[order].split(size), strict=True):
                self.step(inputs, targets)

    def outputs(self, inputs: Tensor) -> Tensor:
        """What the module says of a mini-batch."""
        found: Tensor = self.module(inputs)
        return found

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Train on a mini-batch."""
        self.optimizer.zero_grad()
        logits = self.outputs(inputs)
        if self.workload.binary:
            loss = functional.binary_cross_entropy_with_logits(
                logits.squeeze(-1), targets.to(logits.dtype)
            )
        else:
            loss = functional.cross_entropy(logits, targets)
        loss.backward()
        self.optimizer.step()


class EngineLoop:
    """The same by the engine, whole rounds of it, as the runner calls it."""

    def __init__(
        self,
        workload: Workload,
        executor: str,
        folder: Path,
        precision: Precision = "float32",
        method: str = "fedavg",
        momentum: float = 0.0,
        device: str = "cpu",
    ) -> None:
        keep_freed_memory()  # as the runner does; the bare loop gains from it as well
        x, y = (leaf.to(device) for leaf in workload.data())
        rows = np.arange(len(y)).reshape(workload.clients, workload.samples)
        # SuPerFed's from the first round on: before it mixes it is FedProx.
        made, server_optimizer = registry.compose(method, {"superfed_mm": {"start": 0.0}})
        context = Context(
            net=Net(
                laid_out(workload.module().to(device), workload.model, precision=precision),
                precision,
            ),
            task=BINARY if workload.binary else CLASSIFICATION,
            clients=workload.clients,
            rounds=1_000_000,
            epochs=workload.epochs,
            batch_size=workload.batch_size,
            cohort_size=workload.cohort,
            optimizer=sgd(momentum),
            schedule=lambda round: workload.lr,
            server_optimizer=server_optimizer.build(),
            server_lr=server_optimizer.lr,
        )
        self.federation = Federation(
            method=made,
            context=context,
            clients=ClientData(TensorSamples(x, y, Scaling(None, None)), list(rows)),
            execute=EXECUTORS[executor](WORKERS, "cpu"),
        )
        self.server = begin(self.federation)
        self.client_states = ClientStore(folder, device=device)
        self.round = 0

    def run(self, rounds: int) -> None:
        """Go on from where the last call ended."""
        for _ in range(rounds):
            self.server, _ = play_round(
                self.federation, self.server, self.client_states, self.round
            )
            self.round += 1
