"""FedAvg of a job by FedLab's standalone pipeline, its serial trainer and its evaluation."""

from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.contrib.dataset.basic_dataset import BaseDataset, FedDataset
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils import Logger
from fedlab.utils.functional import evaluate
from torch.utils.data import DataLoader

from benchmarks.peers.contestant import Job, main


class Clients(FedDataset):
    """As FedLab's partitioned data sets give them: a loader per client and round."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.held = [BaseDataset(x, y) for x, y in job.clients]

    def get_dataset(self, id: int, type: str = "train") -> BaseDataset:
        return self.held[id]

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> DataLoader:
        return DataLoader(self.get_dataset(id), batch_size=batch_size, shuffle=True)


class Pipeline(StandalonePipeline):
    def __init__(self, handler, trainer, job: Job) -> None:
        super().__init__(handler, trainer)
        self.loss, self.log, self.found = job.loss(), Logger(), 0.0
        self.test = DataLoader(BaseDataset(*job.test), batch_size=500) if job.test else None

    def evaluate(self) -> None:
        if self.test:
            loss, self.found = evaluate(self.handler.model, self.loss, self.test)
            self.log.info(f"round {self.handler.round}, loss {loss:.4f}, accuracy {self.found:.4f}")


class FedLab:
    def __init__(self, job: Job) -> None:
        workload = job.workload
        trainer = FedAvgSerialClientTrainer(workload.module(), workload.clients)
        trainer.setup_dataset(Clients(job))
        trainer.setup_optim(workload.epochs, workload.batch_size, workload.lr)
        trainer.criterion = job.loss()
        self.handler = FedAvgServerHandler(
            workload.module(), global_round=0, sample_ratio=workload.cohort / workload.clients
        )
        self.pipeline = Pipeline(self.handler, trainer, job)

    def run(self, rounds: int) -> None:
        self.handler.global_round += rounds
        self.pipeline.main()

    def accuracy(self) -> float:
        return self.pipeline.found


if __name__ == "__main__":
    main(FedLab)
