"""FedAvg of a job by fluke's `FedAVG`, with its loaders, its channel and its log."""

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils.log import Log

from benchmarks.peers.contestant import Job, main


class OnlyRounds(FedAVG):
    """`run` ends with a visit to all clients, which is no part of a round."""

    def finalize(self) -> None:
        pass


class Fluke:
    def __init__(self, job: Job) -> None:
        workload = job.workload
        environment = FlukeENV()
        environment.set_seed(0)
        environment.set_inmemory(True)
        environment.set_evaluator(ClassificationEval(eval_every=1, n_classes=workload.classes))
        environment.set_eval_cfg(
            pre_fit=False, post_fit=False, locals=False, server=job.test is not None
        )

        def loader(x, y, shuffle: bool, size: int) -> FastDataLoader:
            return FastDataLoader(
                x, y, num_labels=workload.classes, batch_size=size, shuffle=shuffle
            )

        held = DummyDataContainer(
            [loader(x, y, True, workload.batch_size) for x, y in job.clients],
            [None] * workload.clients,
            loader(*job.test, False, 500) if job.test else None,
            workload.classes,
        )
        client = DDict(
            batch_size=workload.batch_size,
            local_epochs=workload.epochs,
            loss=job.loss,
            optimizer=DDict(name="SGD", lr=workload.lr),
            scheduler=DDict(name="StepLR", step_size=1, gamma=1.0),
        )
        self.part = workload.cohort / workload.clients
        self.federation = (FedAVG if job.test else OnlyRounds)(
            workload.clients,
            DataSplitter(held, distribution="iid"),
            DDict(client=client, server=DDict(weighted=True), model=workload.module()),
        )
        self.log = Log()
        if job.test:
            self.federation.set_callbacks(self.log)

    def run(self, rounds: int) -> None:
        self.federation.run(rounds, self.part)

    def accuracy(self) -> float:
        by_round = self.log.tracker["global"]
        return by_round[max(by_round)]["accuracy"]


if __name__ == "__main__":
    main(Fluke)
