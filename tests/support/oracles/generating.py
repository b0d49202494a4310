"""Methods that train generators, discriminators or a synthetic set, on networks of two layers.

``given["initial"]`` holds the first parameters of the whole model. Local optimizers are Adam.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from support.by_hand import Array, Model, initial
from support.oracles.federation import Batch, Clients, Played, State, mean
from support.oracles.numeric import (
    Adam,
    cross_entropy,
    gradient,
    linear,
    named,
    norm,
    sigmoid,
    softplus,
    under,
)


def adam() -> Adam:
    """As in the small federations of the tests."""
    return Adam(0.5, 0.9)


def averaged(clients: Clients, loss: Callable[[Clients, int, int], Any]) -> Played:
    """FedAvg of the whole model, whose optimizers restart in every round."""
    model = clients.given["initial"]
    for t in range(clients.rounds):
        cohort = clients.cohort(t)
        ends = [
            clients.train(model, t, k, slope=loss(clients, t, k), optimizer=adam()) for k in cohort
        ]
        model = mean(ends, clients.shares(cohort))
        yield {"params": model}, {}


# --- WGAN-GP: Gulrajani et al., Algorithm 1 ------------------------------------------------------
def made(generator: Model, noise: Array) -> Array:
    return linear(generator, "2", np.tanh(linear(generator, "0", noise)))


def score(critic: Model, x: Array) -> Array:
    return linear(critic, "2", np.tanh(linear(critic, "0", x)))[:, 0]


def penalty(critic: Model, x: Array) -> Any:
    """The mean of (|gradient in x| - 1)^2, the gradient by the chain rule."""
    inner = 1 - np.tanh(linear(critic, "0", x)) ** 2
    slopes = (inner * critic["2.weight"][0]) @ critic["0.weight"]
    return ((np.sqrt((slopes**2).sum(1)) - 1) ** 2).mean()


class Adversaries:
    """Generator and critic in turns; ``taken`` counts the critic's steps."""

    def __init__(self, model: Model) -> None:
        self.model, self.taken = model, 0
        self.generator, self.critic = adam(), adam()

    def round(self, clients: Clients, t: int, k: int) -> tuple[Model, Array]:
        """A client's round from ``model``: where it ends, and the mean losses of the two."""
        generator, critic = under("generator", self.model), under("critic", self.model)
        epochs, random = clients.batches(t, k)
        batches = [batch for epoch in epochs for batch in epoch]
        seeds = torch.randint(2**62, (len(batches),), generator=random).tolist()
        losses: tuple[list[float], list[float]] = ([], [])
        for batch, seed in zip(batches, seeds, strict=True):
            drawn, n = torch.Generator().manual_seed(seed), len(batch.y)
            fake = made(generator, torch.randn(n, 3, generator=drawn).numpy())
            places = torch.rand(n, generator=drawn).numpy()[:, None]
            between = places * fake + (1 - places) * batch.x

            def apart(
                at: Model, batch: Batch = batch, fake: Array = fake, x: Array = between
            ) -> Any:
                far = score(at, fake).mean() - score(at, batch.x).mean()
                return far + clients.options["penalty"] * penalty(at, x)

            losses[0].append(apart(critic))
            critic = self.critic.step(critic, gradient(apart, critic), clients.rate(t))
            self.taken += 1
            if self.taken % clients.options["critic_steps"] == 0:
                noise = torch.randn(n, 3, generator=drawn).numpy()

                def deceive(at: Model, critic: Model = critic, noise: Array = noise) -> Any:
                    return -score(critic, made(at, noise)).mean()

                losses[1].append(deceive(generator))
                generator = self.generator.step(
                    generator, gradient(deceive, generator), clients.rate(t)
                )
        means = np.array([np.mean(each) if each else 0.0 for each in losses])
        return {**named("generator", generator), **named("critic", critic)}, means


def wgan_gp(clients: Clients) -> Played:
    """One client, whose optimizers and count go on from round to round."""
    pair = Adversaries(clients.given["initial"])
    for t in range(clients.rounds):
        pair.model, losses = pair.round(clients, t, 0)
        states = {"generator": pair.generator.state, "critic": pair.critic.state}
        kept = {"optimizers": states, "taken": np.array(pair.taken)}
        yield {"params": pair.model, "losses": losses}, {0: kept}


def fedgan(clients: Clients) -> Played:
    """Rasouli et al.: the mean of the clients' pairs; optimizers and counts restart."""
    model = clients.given["initial"]

    def new(part: str) -> State:
        zero = {name: np.zeros(leaf.shape) for name, leaf in under(part, model).items()}
        return {"m": zero, "v": zero, "steps": np.array(0.0)}

    kept = {"optimizers": {part: new(part) for part in ("generator", "critic")}}
    met: set[int] = set()
    for t in range(clients.rounds):
        cohort = clients.cohort(t)
        met |= {*cohort}
        played = [Adversaries(model).round(clients, t, k) for k in cohort]
        shares = clients.shares(cohort)
        model = mean([end for end, _ in played], shares)
        losses = sum(p * each for p, (_, each) in zip(shares, played, strict=True))
        yield {"params": model, "losses": losses}, {k: {**kept, "taken": np.array(0)} for k in met}


# --- FedGO's discriminators and images -----------------------------------------------------------
def maker(clients: Clients, noise: Array) -> Array:
    """The given generator's samples."""
    return np.tanh(linear(clients.given["generator"], "0", noise))


def discriminators(clients: Clients) -> Played:
    """Jang et al., Algorithm 3: binary cross-entropy; everything goes on from round to round."""
    first = clients.given["initial"]
    own = {k: (first, adam()) for k in range(len(clients))}
    for t in range(clients.rounds):
        for k in own:
            random, fakes = clients.batches(t, k)[1], clients.options["fakes"]
            noise = torch.randn(clients.steps(t, k), fakes, 2, generator=random).numpy()

            def told(at: Model, batch: Batch, noise: Array = noise) -> Any:
                real = sigmoid(linear(at, "0", batch.x))
                fake = sigmoid(linear(at, "0", maker(clients, noise[batch.step])))
                return softplus(-real).mean() + softplus(fake).mean()

            model, optimizer = own[k]
            own[k] = clients.train(model, t, k, told, optimizer=optimizer), optimizer
        every = {name: np.stack([own[k][0][name] for k in own]) for name in first}
        states = {k: {"params": model, "optimizer": o.state} for k, (model, o) in own.items()}
        yield {"params": first, "critics": every}, states


def generated(clients: Clients) -> Played:
    """Images of a generator, 250 at a time from one stream."""
    for t in range(clients.rounds):
        random, left, parts = clients.server_stream(t, "images"), clients.options["number"], []
        while left:
            parts.append(torch.randn(min(250, left), 2, generator=random).numpy())
            left -= len(parts[-1])
        yield {"x": maker(clients, np.concatenate(parts))}, {}


# --- baselines of FedEvg -------------------------------------------------------------------------
def one_hot(y: Array) -> Array:
    return np.eye(3)[y]


def fedcgan(clients: Clients) -> Played:
    """AC-GAN (Odena et al.): a discriminator that classifies, too; simultaneous steps."""

    def judged(at: Model, x: Array) -> tuple[Array, Array]:
        """Whether real, as a logit, and class logits."""
        h = linear(at, "1", x)
        found = linear(at, "3", np.where(h.real > 0, h, 0.2 * h))
        return found[:, 0], found[:, 1:]

    def shown(at: Model, noise: Array, y: Array) -> Array:
        return np.tanh(made(at, np.concatenate([noise, one_hot(y)], 1)))

    def local(clients: Clients, t: int, k: int) -> Callable[[Model, Batch], Model]:
        random = clients.batches(t, k)[1]
        noise = 2 * torch.rand(clients.steps(t, k), clients.batch_size, 3, generator=random) - 1

        def slope(at: Model, batch: Batch) -> Model:
            g, d = under("generator", at), under("discriminator", at)
            drawn, y = noise[batch.step, : len(batch.y)].numpy(), batch.y
            x, fake = batch.x.reshape(len(y), -1), shown(g, drawn, y)

            def of_judge(d: Model) -> Any:
                (real, classes), (false, others) = judged(d, x), judged(d, fake)
                told = softplus(-real).mean() + softplus(false).mean()
                return told + cross_entropy(classes, y) + cross_entropy(others, y)

            def of_maker(g: Model) -> Any:
                real, classes = judged(d, shown(g, drawn, y))
                return softplus(-real).mean() + cross_entropy(classes, y)

            both = named("generator", gradient(of_maker, g))
            return {**both, **named("discriminator", gradient(of_judge, d))}

        return slope

    return averaged(clients, local)


def fedcvae(clients: Clients) -> Played:
    """Sohn et al.: the squared error and KL(N(mean, deviation) || N(0, 1)), all dimensions."""

    def local(clients: Clients, t: int, k: int) -> Callable[[Model, Batch], Model]:
        random = clients.batches(t, k)[1]
        shape = (clients.steps(t, k), clients.batch_size, 3)
        noise = torch.randn(shape, generator=random).numpy()

        def loss(at: Model, batch: Batch) -> Any:
            encoder, decoder = under("encoder", at), under("decoder", at)
            x = batch.x.reshape(len(batch.y), -1)
            code = linear(encoder, "3", np.tanh(linear(encoder, "1", x)))
            middle, deviation = code[:, :3], softplus(code[:, 3:]) + 1e-8
            z = middle + deviation * noise[batch.step, : len(batch.y)]
            shown = sigmoid(made(decoder, np.concatenate([z, one_hot(batch.y)], 1)))
            errors = ((shown - x) ** 2).sum(1)
            errors = errors / 2 if clients.options.get("error") == "image" else errors / x.shape[1]
            apart = (middle**2 + deviation**2 - 1) / 2 - np.log(deviation)
            return (errors + apart.sum(1)).mean()

        return lambda at, batch: gradient(lambda at: loss(at, batch), at)

    return averaged(clients, local)


# --- FedEvg: thesis, Algorithms 4.1 and 4.2 ------------------------------------------------------
def outputs(at: Model, x: Array) -> Array:
    h = linear(at, "body.1", x.reshape(len(x), -1))
    return linear(at, "head", h * sigmoid(h))


def energies(at: Model, x: Array, y: Array) -> Array:
    """E(x, y) = -f(x)[y]."""
    return -outputs(at, x)[np.arange(len(y)), y]


def uphill(at: Model, x: Array, y: Array, limit: float) -> Array:
    """The gradient of every item's energy in the item, its components at most ``limit``."""
    found = gradient(lambda items: energies(at, items["x"], y).sum(), {"x": x})["x"]
    return np.clip(found, -limit, limit)


def fedevg(clients: Clients) -> Played:
    options, shape = clients.options, (1, 2, 3)
    y = np.repeat(np.arange(3), options["per_class"])
    random = clients.server_stream(0, "synthetic set")
    items = torch.randn(len(y), *shape, generator=random).numpy()
    own: dict[int, State] = {}
    for t in range(clients.rounds):
        cohort, slopes, factors, numbers = clients.cohort(t), [], [], []
        for k in cohort:
            at = initial(("body.1", "head"), (6, 8, 3), clients.seed, "fresh", t, k)
            chain, optimizer = items.copy(), adam()
            epochs, random = clients.batches(t, k)
            steps, width = clients.steps(t, k), min(len(y), clients.batch_size)
            picked = [torch.randperm(len(y), generator=random)[:width] for _ in range(steps)]
            many = (steps, options["chain_steps"], width, *shape)
            noise = torch.randn(many, generator=random).numpy()
            for batch in (each for epoch in epochs for each in epoch):
                few = min(width, len(batch.y))
                chosen = picked[batch.step][:few].numpy()
                for each in noise[batch.step]:
                    climb = uphill(at, chain[chosen], y[chosen], options["clip"])
                    chain[chosen] -= options["chain_step"] * climb
                    chain[chosen] += options["chain_noise"] * each[:few]
                chain[chosen] = np.clip(chain[chosen], 0, 1)

                def loss(at: Model, batch: Batch = batch, chosen: Array = chosen) -> Any:
                    known = cross_entropy(outputs(at, items[chosen]), y[chosen])
                    low = energies(at, batch.x, batch.y).mean()
                    high = energies(at, chain[chosen], y[chosen]).mean()
                    found = cross_entropy(outputs(at, batch.x), batch.y)
                    return found + options["synthetic"] * known + low - high

                at = optimizer.step(at, gradient(loss, at), clients.rate(t))
            own[k] = {"params": at}
            slopes.append(uphill(at, items, y, options["clip"]))
            energy = energies(at, items, y)
            factors.append(np.exp(np.sign(outputs(at, items)[np.arange(len(y)), y])))
            numbers.append([energy.mean(), cross_entropy(outputs(at, items), y)])
        shares = clients.shares(cohort)
        raw = shares[:, None] * np.array(factors)
        weights = raw / raw.sum(0)
        slope = sum(w.reshape(-1, 1, 1, 1) * g for w, g in zip(weights, slopes, strict=True))
        first, last = options["first_step"], options["last_step"]
        half = (1 + math.cos(math.pi * t / (clients.rounds - 1))) / 2
        drawn = torch.randn(items.shape, generator=clients.server_stream(t, "langevin")).numpy()
        before = items
        items = items - (last + (first - last) * half) * slope + options["noise"] * drawn
        items = np.clip(items, 0, 1)
        by_class = slope.reshape(3, -1, 6)
        alike = [norm(g.mean(0)) / np.sqrt((g**2).sum(1).mean()) for g in by_class]
        told = [np.sqrt(((items - before) ** 2).mean()), np.mean(alike)]
        shown = np.array([*(shares @ np.array(numbers)), *told])
        yield {"x": items, "y": y, "numbers": shown}, dict(own)
