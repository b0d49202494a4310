"""A process that keeps the personal models of many clients; prints what that took, as JSON.

Arguments: the number of clients, and a folder for their states.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from fedrepro.data.tensors.samples import ClientData, Scaling, TensorSamples
from fedrepro.engine import tree
from fedrepro.engine.context import Context
from fedrepro.engine.net import Net
from fedrepro.engine.optim import sgd
from fedrepro.engine.round import Federation, begin, client_state_of, context_of, play_round
from fedrepro.engine.tree import Tree
from fedrepro.methods import registry
from fedrepro.models import registry as models
from fedrepro.run.devices import keep_freed_memory
from fedrepro.run.store import ClientStore

SAMPLES, COHORT, ROUNDS = 64, 10, 10


class Timed(ClientStore):
    """A store that knows how long it was waited for."""

    seconds = 0.0

    def get(self, client: int) -> Tree | None:
        start = time.perf_counter()
        client_state = super().get(client)
        self.seconds += time.perf_counter() - start
        return client_state

    def put(self, client: int, client_state: Tree) -> None:
        start = time.perf_counter()
        super().put(client, client_state)
        self.seconds += time.perf_counter() - start


def world(clients: int) -> Federation:
    """SuPerFed with VGG9 on FEMNIST's shapes, both models trained from the first round."""
    net = Net(models.build("superfed_vgg9", (1, 28, 28), 62))
    method, _ = registry.compose("superfed_mm", {"superfed_mm": {"start": 0.0}})
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (clients * SAMPLES, 1, 28, 28), dtype=np.uint8)
    y = rng.integers(0, 62, clients * SAMPLES)
    samples = TensorSamples(torch.from_numpy(x), torch.from_numpy(y), Scaling(None, None))
    rows = list(np.arange(clients * SAMPLES).reshape(clients, SAMPLES))
    context = Context(
        net=net,
        clients=clients,
        rounds=ROUNDS,
        batch_size=10,
        cohort_size=COHORT,
        optimizer=sgd(0.9, 1e-4),
        seed=1,
    )
    return Federation(method, context, ClientData(samples, rows))


def peak_memory() -> int:
    """The most that was resident; ru_maxrss would count the process that started this one."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main(clients: int, folder: Path) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    federation = world(clients)
    server, store = begin(federation), Timed(folder)
    ctx = context_of(federation, 0, list(range(COHORT)))
    for client in range(clients):  # as if each had taken part
        store.put(client, client_state_of(federation, ctx, store, client))
    store.seconds, start = 0.0, time.perf_counter()
    for round in range(ROUNDS):
        server, _ = play_round(federation, server, store, round)
    wall = time.perf_counter() - start
    store.flush()
    result = {
        "clients": clients,
        "parameters": tree.numel(federation.initial),
        "bytes_of_states": sum(file.stat().st_size for file in folder.iterdir()),
        "peak_memory_bytes": peak_memory(),
        "seconds_per_round": wall / ROUNDS,
        "share_of_the_store": store.seconds / wall,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
