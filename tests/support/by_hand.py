"""Federated learning in plain numpy, to derive whole runs that the package is then held against.

Nothing here comes from the package. What can't be derived, a random draw, comes from the generator
that is documented for it, whose key stands here: (seed, purpose, round, client), rounds from 0.
A model is a dict of arrays, weight [out, in] and bias [out] of each layer in turn; between two
layers stands a ReLU. One output is a logit of class 1, several are logits of a class each.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray

Array = NDArray[Any]
Model = dict[str, Array]
Pull = Callable[[str, Array], Array]  # (a parameter's name, its value) -> a further gradient

LOGISTIC = ("head",)
TWONN = ("body.1", "body.3", "head")


def number(*key: object) -> int:
    """The seed of the generator for a key: 63 bits of a SHA-256."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def torch_stream(*key: object) -> torch.Generator:
    return torch.Generator().manual_seed(number(*key))


def numpy_stream(*key: object) -> np.random.Generator:
    return np.random.default_rng(number(*key))


# --- a model ------------------------------------------------------------------------------------
def initial(names: Sequence[str], widths: Sequence[int], *key: object) -> Model:
    """Weights and biases from U(-1/sqrt(in), 1/sqrt(in)), drawn layer by layer.

    ``key`` is a seed, for the first parameters of a run, or the whole key of a generator.
    """
    random = torch_stream(*key) if len(key) > 1 else torch_stream(*key, "init")
    model = {}
    for name, inputs, outputs in zip(names, widths[:-1], widths[1:], strict=True):
        bound = 1 / math.sqrt(inputs)
        for part, shape in (("weight", (outputs, inputs)), ("bias", (outputs,))):
            drawn = torch.empty(shape, dtype=torch.float64).uniform_(
                -bound, bound, generator=random
            )
            model[f"{name}.{part}"] = drawn.numpy()
    return model


def forward(model: Model, x: Array) -> tuple[list[Array], Array]:
    """What goes into every layer, and the logits [n, outputs]."""
    values = list(model.values())
    inputs, out = [], x.reshape(len(x), -1)
    for weight, bias in zip(values[::2], values[1::2], strict=True):
        inputs.append(np.maximum(out, 0) if inputs else out)
        out = inputs[-1] @ weight.T + bias
    return inputs, out


def losses(logits: Array, y: Array) -> Array:
    """Cross-entropies [n]."""
    if logits.shape[1] == 1:
        return np.logaddexp(0, logits[:, 0]) - y * logits[:, 0]
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]


def hits(logits: Array, y: Array) -> Array:
    predicted = logits[:, 0] > 0 if logits.shape[1] == 1 else logits.argmax(1)
    return predicted == y


def gradient(model: Model, x: Array, y: Array) -> Model:
    """Of the mean loss, by the chain rule."""
    inputs, logits = forward(model, x)
    if logits.shape[1] == 1:
        error = 1 / (1 + np.exp(-logits)) - y[:, None]
    else:
        error = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        error[np.arange(len(y)), y] -= 1
    error /= len(y)
    found = {}
    names = list(model)
    for place in reversed(range(len(inputs))):
        weight, bias = names[2 * place : 2 * place + 2]
        found[bias] = error.sum(0)
        found[weight] = error.T @ inputs[place]
        error = (error @ model[weight]) * (inputs[place] > 0)
    return found


def mean(models: Sequence[Model], weights: Sequence[float]) -> Model:
    total = sum(weights)
    return {
        name: sum(w * model[name] for w, model in zip(weights, models, strict=True)) / total
        for name in models[0]
    }


def distance(left: Model, right: Model) -> float:
    return math.sqrt(sum(((left[name] - right[name]) ** 2).sum() for name in left))


def size(model: Model) -> int:
    """Bytes, eight for each number."""
    return 8 * sum(leaf.size for leaf in model.values())


# --- measures of one client's test samples ------------------------------------------------------
def auroc(logits: Array, y: Array) -> float:
    """The share of pairs of a positive and a negative that stand in the right order."""
    scores = logits[:, 0]
    pairs = [(p > n) + (p == n) / 2 for p in scores[y == 1] for n in scores[y == 0]]
    return sum(pairs) / len(pairs) if pairs else math.nan


def calibration(logits: Array, y: Array) -> tuple[float, float]:
    """ECE and MCE over 15 bins (lower, upper]."""
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    gaps = []
    for upper in range(1, 16):
        inside = (p.max(1) > (upper - 1) / 15) & (p.max(1) <= upper / 15)
        if inside.any():
            accuracy = (p.argmax(1) == y)[inside].mean()
            gaps.append((inside.sum(), abs(p.max(1)[inside].mean() - accuracy)))
    return sum(n * gap for n, gap in gaps) / len(y), max(gap for _, gap in gaps)


def measures(logits: Array, y: Array, batch_size: int) -> dict[str, float]:
    """What is measured beside loss and accuracy."""
    if logits.shape[1] == 1:
        return {"auroc": auroc(logits, y)}
    higher = (logits > logits[np.arange(len(y)), y][:, None]).sum(1)
    ece, mce = calibration(logits, y)
    batches = [slice(first, first + batch_size) for first in range(0, len(y), batch_size)]
    each = [calibration(logits[batch], y[batch]) for batch in batches]

    def over_batches(right: Array) -> float:
        return float(np.mean([right[batch].mean() for batch in batches]))

    return {
        "top5": float((higher < 5).mean()),
        "ece": ece,
        "mce": mce,
        "ece_batch": sum(ece for ece, _ in each) / len(each),
        "mce_batch": sum(mce for _, mce in each) / len(each),
        "accuracy_batch": over_batches(logits.argmax(1) == y),
        "top5_batch": over_batches(higher < 5),
    }


# --- who holds what -----------------------------------------------------------------------------
def iid(samples: int, clients: int, seed: int) -> list[Array]:
    return np.array_split(RandomState(seed).permutation(samples), clients)


def shards(y: Array, clients: int, each: int, seed: int) -> list[Array]:
    """Sorted by class, cut into equal shards, dealt out."""
    by_class = sorted(range(len(y)), key=lambda row: y[row])
    size = len(y) // (clients * each)
    hands = RandomState(seed).permutation(clients * each).reshape(clients, each)
    return [
        np.array([row for shard in hand for row in by_class[shard * size : (shard + 1) * size]])
        for hand in hands
    ]


def paired_shards(y: Array, clients: int) -> list[Array]:
    cut = np.array_split(sorted(range(len(y)), key=lambda row: y[row]), 2 * clients)
    return [np.concatenate([cut[i], cut[i + clients]]) for i in range(clients)]


def dirichlet(y: Array, clients: int, alpha: float, minimum: int, seed: int) -> list[Array]:
    """FedLab's: a client with its equal share gets no more; all over again below the minimum."""
    random = RandomState(seed)
    hands: list[list[int]] = [[]]
    while min(map(len, hands)) < minimum:
        hands = [[] for _ in range(clients)]
        for label in range(y.max() + 1):
            rows = np.flatnonzero(y == label)
            random.shuffle(rows)
            shares = random.dirichlet([alpha] * clients)
            shares *= [len(hand) < len(y) / clients for hand in hands]
            ends = [int(end) for end in np.cumsum(shares / shares.sum()) * len(rows)]
            for hand, first, last in zip(hands, [0, *ends], [*ends[:-1], None], strict=False):
                hand.extend(rows[first:last])
    dealt = [np.array(hand) for hand in hands]
    for hand in dealt:
        random.shuffle(hand)
    return dealt


def hold_out(
    hands: list[Array], fraction: float, seed: int, purpose: int = 1
) -> tuple[list[Array], list[Array]]:
    """A random share of each client's samples for testing (1) or validation (3); both parts keep
    their order."""
    random, train, test = RandomState([seed, purpose]), [], []
    for hand in hands:
        chosen = set(random.permutation(len(hand))[: round(fraction * len(hand))].tolist())
        train.append(np.array([row for i, row in enumerate(hand) if i not in chosen]))
        test.append(np.array([row for i, row in enumerate(hand) if i in chosen]))
    return train, test


# --- a run --------------------------------------------------------------------------------------
@dataclass
class Run:
    """A setting as it stands in the experiment file, and what its clients hold.

    Attributes:
        x, y: all training samples, as the model gets them.
        train: each client's rows.
        layers: names of the model's layers.
        outputs: logits of the model.
    """

    setting: dict[str, Any]
    seed: int
    x: Array
    y: Array
    train: list[Array]
    layers: Sequence[str]
    outputs: int

    def initial(self) -> Model:
        widths = [math.prod(self.x.shape[1:]), *[200] * (len(self.layers) - 1), self.outputs]
        return initial(self.layers, widths, self.seed)

    def cohort(self, t: int) -> list[int]:
        """The clients of round ``t``."""
        clients = len(self.train)
        wanted = math.floor(self.setting["participation"] * clients)
        if wanted == clients:
            return list(range(clients))
        drawn = torch.randperm(clients, generator=torch_stream(self.seed, "cohort", t)).tolist()
        return sorted(drawn[:wanted])

    def sizes(self, cohort: list[int]) -> list[int]:
        return [len(self.train[client]) for client in cohort]

    def rate(self, t: int) -> float:
        rate, decay = self.setting["optimizer"]["lr"], self.setting.get("lr_decay", 1.0)
        if isinstance(decay, dict):
            return rate * decay["factor"] ** (t // decay["every"])
        return rate * decay**t

    def evaluated(self, t: int) -> bool:
        every = self.setting.get("evaluate", {}).get("every", 1)
        return (t + 1) % every == 0 or t + 1 == self.setting["rounds"]

    def local(
        self,
        model: Model,
        t: int,
        client: int,
        rate: float | None = None,
        pull: Pull = lambda name, value: np.zeros_like(value),
        epochs: int | None = None,
    ) -> Model:
        """A client's SGD in round ``t``, or in the first ``epochs`` of its epochs."""
        rows, batch = self.train[client], self.setting["batch_size"]
        momentum = self.setting["optimizer"].get("momentum", 0)
        weight_decay = self.setting["optimizer"].get("weight_decay", 0)
        random = torch_stream(self.seed, "shuffle", t, client)
        model, velocity = dict(model), dict.fromkeys(model, 0)
        for _ in range(epochs or self.setting["epochs"]):
            order = rows[torch.randperm(len(rows), generator=random).numpy()]
            for first in range(0, len(order), batch):
                at = order[first : first + batch]
                for name, g in gradient(model, self.x[at], self.y[at]).items():
                    g = g + pull(name, model[name]) + weight_decay * model[name]
                    velocity[name] = momentum * velocity[name] + g
                    model[name] = model[name] - (rate or self.rate(t)) * velocity[name]
        return model

    def loss(self, model: Model, client: int) -> float:
        """On a client's training samples."""
        at = self.train[client]
        return float(losses(forward(model, self.x[at])[1], self.y[at]).mean())


def score(model: Model, x: Array, y: Array) -> dict[str, float]:
    """On test samples; with the AUROC if there is one output."""
    logits = forward(model, x)[1]
    more = {"auroc": auroc(logits, y)} if logits.shape[1] == 1 else {}
    return {
        "loss": float(losses(logits, y).mean()),
        "accuracy": float(hits(logits, y).mean()),
        **more,
    }
