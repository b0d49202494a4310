"""Methods whose server trains, too: FedTGP's prototypes, FedDF and what it is the base of."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from support.by_hand import Array, Model
from support.oracles.federation import Batch, Clients, Played, State, classified, mean
from support.oracles.numeric import (
    SGD,
    Adam,
    divergence,
    features,
    gradient,
    linear,
    log_softmax,
    logits,
    named,
    norm,
    relu,
    sigmoid,
    softmax,
    softplus,
    under,
)


def fresh(inputs: int, outputs: int, random: torch.Generator) -> Model:
    """A linear layer's weight, then bias, from U(-1/sqrt(in), 1/sqrt(in))."""
    bound = 1 / math.sqrt(inputs)
    return {
        name: torch.empty(shape, dtype=torch.float64)
        .uniform_(-bound, bound, generator=random)
        .numpy()
        for name, shape in (("weight", (outputs, inputs)), ("bias", (outputs,)))
    }


# --- FedTGP: Zhang et al. -------------------------------------------------------------------------
def prototypes(net: Model) -> Array:
    return linear(net, "output", relu(linear(net, "hidden", net["embedding"])))


def gap(reported: Sequence[dict[int, Array]], most: float) -> float:
    """The largest distance of a class's mean prototype to the nearest other's."""
    every = sorted({c for each in reported for c in each})
    centres = {c: np.mean([each[c] for each in reported if c in each], axis=0) for c in every}
    nearest = [min(norm(centres[a] - centres[b]) for b in every if b != a) for a in every]
    return min(most, max(nearest))


def fedtgp(clients: Clients) -> Played:
    model, options = clients.initial(), clients.options
    random = clients.server_stream(0, "initial prototypes")
    net: Model = {}
    for layer in ("hidden", "output"):
        net |= named(layer, fresh(8, 8, random))
    net["embedding"] = torch.randn(3, 8, generator=random).numpy()
    for t in range(clients.rounds):
        sent = prototypes(net)

        def loss(at: Model, batch: Batch, t: int = t, sent: Array = sent) -> Any:
            away = ((features(at, batch.x) - sent[batch.y]) ** 2).mean()
            return classified(at, batch) + (options["strength"] * away if t else 0)

        cohort = clients.cohort(t)
        ends = [clients.train(model, t, k, loss) for k in cohort]
        reported = []
        for k, end in zip(cohort, ends, strict=True):
            h, y = features(end, clients.x[k]), clients.y[k]
            reported.append({int(c): h[y == c].mean(0) for c in np.unique(y)})
        pairs = [(each[c], c) for each in reported for c in sorted(each)]
        most, random = gap(reported, options["margin"]), clients.server_stream(t, "prototypes")
        for _ in range(options["server_epochs"]):
            order, width = torch.randperm(len(pairs), generator=random).tolist(), 10
            for first in range(0, len(pairs), width):
                chosen = [pairs[i] for i in order[first : first + width]]

                def apart(net: Model, chosen: Any = chosen, most: float = most) -> Any:
                    centres, found = prototypes(net), 0.0
                    for prototype, c in chosen:
                        far = np.stack([norm(prototype - each) for each in centres])
                        far = far + most * (np.arange(3) == c)
                        found = found - log_softmax(-far)[c] / len(chosen)
                    return found

                net = SGD().step(net, gradient(apart, net), 0.005)
        model = mean(ends, clients.shares(cohort))
        shown = {name: under(name, net) for name in ("hidden", "output")}
        yield {
            "params": model, "prototypes": prototypes(net), "known": np.array(1.0),
            "net": {"embedding": net["embedding"], **shown},
        }, {}  # fmt: skip


# --- FedDF: Lin et al., Algorithm 1 ---------------------------------------------------------------
# (round, cohort, the teachers' logits [cohort, n, classes], their models) -> weights [cohort, n]
Weighting = Callable[[int, list[int], Array, list[Model]], Array]


def equal(t: int, cohort: list[int], outputs: Array, ends: list[Model]) -> Array:
    return np.full(outputs.shape[:2], 1 / len(cohort))


def distilled(clients: Clients, t: int, student: Model, labels: Array) -> tuple[Model, float]:
    """The student after the server's epochs, and how far it still is from ``labels``."""
    x, options, adam = clients.given["unlabelled"], clients.options, Adam()
    rate = 0.001 * (1 + math.cos(math.pi * t / clients.rounds)) / 2
    random, width = clients.server_stream(t, "distillation"), options["server_batch"]
    orders = [
        torch.randperm(len(x), generator=random).numpy() for _ in range(options["server_epochs"])
    ]
    for order in orders:
        for first in range(0, len(x), width):
            rows = order[first : first + width]

            def loss(at: Model, rows: Array = rows) -> Any:
                return divergence(labels[rows], logits(at, x[rows]))

            student = adam.step(student, gradient(loss, student), rate)
    return student, float(divergence(labels, logits(student, x)))


def feddf(
    clients: Clients,
    weighting: Weighting = equal,
    loss: Callable[[int, list[Model]], Callable[[Model, Batch], Any]] | None = None,
    further: Callable[[list[Model]], State] = lambda past: {},
) -> Played:
    """``loss`` and ``further`` (state) get the server's models so far."""
    past = [clients.initial()]
    x = clients.given["unlabelled"]
    for t in range(clients.rounds):
        model, cohort = past[-1], clients.cohort(t)
        local = loss(t, past) if loss else classified
        ends = [clients.train(model, t, k, local) for k in cohort]
        outputs = np.stack([logits(end, x) for end in ends])
        labels = softmax((weighting(t, cohort, outputs, ends)[..., None] * outputs).sum(0))
        student, left = distilled(clients, t, mean(ends, clients.shares(cohort)), labels)
        past.append(student)
        yield {"params": student, "distillation_loss": np.array(left), **further(past)}, {}


def judged(clients: Clients) -> Array:
    """The output of every client's discriminator on the server's samples, [clients, n]."""
    critics, x = clients.given["discriminators"], clients.given["unlabelled"]
    each = [{name: leaf[k] for name, leaf in critics.items()} for k in range(len(clients))]
    return np.stack([sigmoid(linear(critic, "0", x))[:, 0] for critic in each])


def fedgo(clients: Clients) -> Played:
    """Jang et al., Algorithms 1 to 3: weights n_k D_k / (1 - D_k), D = sigmoid of the output."""
    outputs_of = judged(clients)

    def odds(t: int, cohort: list[int], outputs: Array, ends: list[Model]) -> Array:
        d = sigmoid(outputs_of[cohort])
        raw = clients.sizes(cohort)[:, None] * d / (1 - d)
        return raw / raw.sum(0)

    return feddf(clients, odds, further=lambda past: {"judged": outputs_of})


def fedgo_domain(clients: Clients) -> Played:
    """Figure 2's weighting by D_k alone."""
    outputs_of = judged(clients)

    def shares(t: int, cohort: list[int], outputs: Array, ends: list[Model]) -> Array:
        d = sigmoid(outputs_of[cohort])
        return d / d.sum(0)

    return feddf(clients, shares, further=lambda past: {"judged": outputs_of})


def fedgo_entropy(clients: Clients) -> Played:
    """Figure 2's weighting by exp(-entropy)."""

    def shares(t: int, cohort: list[int], outputs: Array, ends: list[Model]) -> Array:
        p = softmax(outputs)
        raw = np.exp((p * np.log(p)).sum(-1))
        return raw / raw.sum(0)

    return feddf(clients, shares, further=lambda past: {"judged": judged(clients)})


def fedgo_variance(clients: Clients) -> Played:
    """Figure 2's weighting by the variance of logits over classes."""

    def shares(t: int, cohort: list[int], outputs: Array, ends: list[Model]) -> Array:
        raw = outputs.var(-1)
        return raw / raw.sum(0)

    return feddf(clients, shares, further=lambda past: {"judged": judged(clients)})


def fedgkd_plus(clients: Clients) -> Played:
    """Yao et al.: gamma / 2 tau^2 KL from the mean of the server's last M models."""
    options, tau = clients.options, clients.options["temperature"]
    length = options["models"]

    def loss(t: int, past: list[Model]) -> Callable[[Model, Batch], Any]:
        held = past[-length:]
        teacher = mean(held, np.full(len(held), 1 / len(held)))

        def found(at: Model, batch: Batch) -> Any:
            labels = softmax(logits(teacher, batch.x) / tau)
            apart = divergence(labels, logits(at, batch.x) / tau)
            return classified(at, batch) + options["gamma"] / 2 * tau**2 * apart

        return found

    def further(past: list[Model]) -> State:
        held = [*[past[0]] * length, *past[1:]][-length:]
        return {"past": {name: np.stack([each[name] for each in held]) for name in past[0]}}

    return feddf(clients, equal, loss, further)


def dafkd(clients: Clients) -> Played:
    """Wang et al.: teachers count as D_k, a linear layer on the body; a generator deceives it.

    On every mini-batch classifier, discriminator and generator take a step each, together.
    """
    x, options = clients.given["unlabelled"], clients.options
    model = clients.initial()
    judge = fresh(8, 1, clients.server_stream(0, "initial discriminator"))
    maker = dict(clients.given["generator"])

    def score(at: Model, judge: Model, x: Array) -> Array:
        return (features(at, x) @ judge["weight"].T + judge["bias"])[:, 0]

    for t in range(clients.rounds):
        cohort, ends = clients.cohort(t), []
        for k in cohort:
            random = clients.batches(t, k)[1]
            noise = torch.randn(clients.steps(t, k), options["fakes"], 2, generator=random).numpy()

            def slope(at: Model, batch: Batch, noise: Array = noise) -> Model:
                c, d, g = under("c", at), under("d", at), under("g", at)
                fakes = np.tanh(linear(g, "0", noise[batch.step]))

                def of_both(part: Model) -> Any:
                    c, d = under("c", part), under("d", part)
                    told = (
                        softplus(-score(c, d, batch.x)).mean() + softplus(score(c, d, fakes)).mean()
                    )
                    return classified(c, batch) + told

                def of_maker(g: Model) -> Any:
                    return softplus(-score(c, d, np.tanh(linear(g, "0", noise[batch.step])))).mean()

                both = gradient(of_both, {**named("c", c), **named("d", d)})
                return {**both, **named("g", gradient(of_maker, g))}

            start = {**named("c", model), **named("d", judge), **named("g", maker)}
            ends.append(clients.train(start, t, k, slope=slope))
        shares = clients.shares(cohort)
        averaged = mean(ends, shares)
        outputs = np.stack([logits(under("c", end), x) for end in ends])
        d = np.stack([sigmoid(score(under("c", end), under("d", end), x)) for end in ends])
        labels = softmax(((d / d.sum(0))[..., None] * outputs).sum(0))
        model, left = distilled(clients, t, under("c", averaged), labels)
        judge, maker = under("d", averaged), under("g", averaged)
        yield {
            "params": model, "distillation_loss": np.array(left), "judge": judge,
            "generator": maker,
        }, {}  # fmt: skip
