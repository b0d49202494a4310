"""FedAvg of a job by Flower's `FedAvg` on its simulation engine, with one Ray actor on one core.

Ray's start is no part of a round: a simulation lasts as long as its job, and its server app waits
for what it is told once the actor has the job's data. The CPU seconds of Ray's processes count.
"""

import os
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0")

import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers.contestant import Job, main, random_job, task_from
from benchmarks.workloads import WORKLOADS

client_app = ClientApp()


@cache
def held(name: str) -> Job:
    """A job in the actor, by its workload's name or the task's file: apps load their own data."""
    by_name = {workload.name: workload for workload in WORKLOADS}
    return random_job(by_name[name]) if name in by_name else task_from(Path(name))


@client_app.query()
def load(message: Message, context: Context) -> Message:
    held(message.content["config"]["job"])
    return Message(RecordDict(), reply_to=message)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    job = held(message.content["config"]["job"])
    workload, criterion, module = job.workload, job.loss(), job.workload.module()
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    samples = TensorDataset(*job.clients[context.node_config["partition-id"]])
    optimizer = torch.optim.SGD(module.parameters(), lr=workload.lr)
    module.train()
    for _ in range(workload.epochs):
        for x, y in DataLoader(samples, batch_size=workload.batch_size, shuffle=True):
            optimizer.zero_grad()
            criterion(module(x), y).backward()
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(samples)})
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


class Complete(FedAvg):
    """Where a node fails, FedAvg goes on without it; here that would be fewer steps."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        for reply in replies:
            if reply.has_error():
                raise RuntimeError(reply.error.reason)
        return super().aggregate_train(server_round, replies)


class Flower:
    running: "Flower | None" = None

    def __init__(self, job: Job) -> None:
        self.end()
        self.job, self.found = job, 0.0
        self.rounds: SimpleQueue[int | None] = SimpleQueue()  # to play; None ends the simulation
        self.done: SimpleQueue[bool] = SimpleQueue()  # False: the simulation has ended
        self.simulation = Thread(target=self.simulate)
        self.simulation.start()
        Flower.running = self
        self.wait()

    @classmethod
    def end(cls) -> None:
        if cls.running:
            cls.running.rounds.put(None)
            cls.running.simulation.join()

    def simulate(self) -> None:
        app = ServerApp()
        app.main()(self.serve)
        resources = {"init_args": {"num_cpus": 1}, "client_resources": {"num_cpus": 1}}
        try:
            run_simulation(app, client_app, self.job.workload.clients, backend_config=resources)
        finally:
            self.done.put(False)

    def wait(self) -> None:
        if not self.done.get():
            raise RuntimeError("Flower's simulation ended early")

    def serve(self, grid: Grid, context: Context) -> None:
        workload = self.job.workload
        strategy = Complete(
            fraction_train=workload.cohort / workload.clients,
            fraction_evaluate=0.0,
            min_available_nodes=workload.clients,
        )
        config = ConfigRecord({"job": sys.argv[1] if self.job.test else workload.name})
        arrays = ArrayRecord(workload.module().state_dict())
        loading = RecordDict({"config": config})
        while not (nodes := list(grid.get_node_ids())):
            if not self.rounds.empty():  # Ray did not start
                return
            time.sleep(0.1)
        grid.send_and_receive([Message(loading, nodes[0], MessageType.QUERY)])
        self.done.put(True)
        while (rounds := self.rounds.get()) is not None:
            result = strategy.start(
                grid,
                arrays,
                rounds,
                train_config=config,
                evaluate_fn=self.evaluate if self.job.test else None,
            )
            arrays = result.arrays or arrays  # it has none after no round
            self.done.put(True)

    @torch.no_grad()
    def evaluate(self, server_round: int, arrays: ArrayRecord) -> MetricRecord:
        module = self.job.workload.module()
        module.load_state_dict(arrays.to_torch_state_dict())
        module.eval()
        batches = DataLoader(TensorDataset(*self.job.test), batch_size=500)
        right = sum((module(x).argmax(1) == y).sum().item() for x, y in batches)
        self.found = right / len(self.job.test[1])
        return MetricRecord({"accuracy": self.found})

    def run(self, rounds: int) -> None:
        self.rounds.put(rounds)
        self.wait()

    def accuracy(self) -> float:
        return self.found


def descendants() -> dict[int, int]:
    """Clock ticks so far of the processes below this one, by their ids; Linux only."""
    children, ticks = defaultdict(list), {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        children[int(fields[1])].append(int(file.parent.name))
        ticks[int(file.parent.name)] = sum(map(int, fields[11:15]))  # with its ended children
    below = [os.getpid()]
    for process in below:
        below += children[process]
    return {process: ticks[process] for process in below[1:]}


def cpu_seconds() -> float:
    """Of the processes below this one, those that ended included."""
    ended = os.times()
    living = sum(descendants().values()) / os.sysconf("SC_CLK_TCK")
    return living + ended.children_user + ended.children_system


if __name__ == "__main__":
    # Under its name, by which actors find it.
    from benchmarks.peers import flower

    try:
        main(flower.Flower, flower.cpu_seconds)
        flower.Flower.end()
    except RuntimeError:
        traceback.print_exc()
        os._exit(1)  # where Ray did not start, it would not end either
