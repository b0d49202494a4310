"""FedAvg of a job by pfl-research's `FederatedAveraging` on its simulated backend.

It cuts a data set into mini-batches in the order in which it finds it, so clients' samples are
shuffled when a round takes them.
"""

import tempfile
from pathlib import Path

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.aggregate_metrics_to_disk import AggregateMetricsToDisk
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.peers.contestant import Job, main

NEVER = 1_000_000  # on clients' own samples


class Trained(nn.Module):
    """What pfl asks of a module: its loss and what is measured of it."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.module, self.criterion = job.workload.module(), job.loss()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.train()
        return self.criterion(self.module(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        self.eval()
        logits = self.module(x)
        right = (logits.argmax(1) == y).sum().item()
        loss = self.criterion(logits, y).item() * len(y)
        return {"loss": Weighted(loss, len(y)), "accuracy": Weighted(right, len(y))}


class Tested(CentralEvaluationCallback):
    """The callback of pfl, which keeps what it found."""

    found = 0.0

    def after_central_iteration(self, *args, **keys):
        stop, metrics = super().after_central_iteration(*args, **keys)
        for name, value in metrics:
            if "accuracy" in str(name):
                self.found = value.overall_value
        return stop, metrics


class Pfl:
    def __init__(self, job: Job) -> None:
        workload = self.workload = job.workload
        module = Trained(job)
        self.model = PyTorchModel(
            module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)
        )

        def user(number: int) -> PyTorchTensorDataset:
            x, y = job.clients[number]
            order = torch.randperm(len(y))
            return PyTorchTensorDataset((x[order], y[order]), user_id=str(number))

        sampler = get_user_sampler("minimize_reuse", range(workload.clients))
        self.backend = SimulatedBackend(
            training_data=FederatedDataset(user, sampler),
            val_data=None,
            postprocessors=[WeightByDatapoints()],
        )
        self.algorithm = FederatedAveraging()
        self.rounds = 0
        self.callbacks = []
        if job.test:
            log = Path(tempfile.mkdtemp()) / "metrics.csv"
            self.tested = Tested(PyTorchTensorDataset(job.test), NNEvalHyperParams(500))
            self.callbacks = [self.tested, AggregateMetricsToDisk(str(log))]

    def run(self, rounds: int) -> None:
        self.rounds += rounds
        self.algorithm.run(
            NNAlgorithmParams(
                central_num_iterations=self.rounds,
                evaluation_frequency=NEVER,
                train_cohort_size=self.workload.cohort,
                val_cohort_size=None,
            ),
            self.backend,
            self.model,
            NNTrainHyperParams(
                local_num_epochs=self.workload.epochs,
                local_learning_rate=self.workload.lr,
                local_batch_size=self.workload.batch_size,
            ),
            NNEvalHyperParams(self.workload.batch_size),
            callbacks=self.callbacks,
        )

    def accuracy(self) -> float:
        return self.tested.found


if __name__ == "__main__":
    main(Pfl)
