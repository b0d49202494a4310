"""What every method's hooks gave: those that oracles play, in every variant, and all the others.

Oracles (``tests/property/test_oracles.py``) play training and aggregation of one variant of each
method from its paper. Beside that, a method says what is sent, scored, kept and shared, for whom it
works, and has switches. Clients are unequal, some with one class only, and one never takes part.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedrepro.check.world import Memory, in_float64
from fedrepro.engine import tree
from fedrepro.engine.round import Federation, begin, context_of, play_round
from fedrepro.engine.task import TASKS
from fedrepro.methods import registry
from fedrepro.methods.wgan_gp import WganGp
from fedrepro.support.errors import UserError
from support import image_worlds, pinned, pretraining_worlds
from support.worlds import federation

PARTS = registry.parts()
IMA = {"start": 0.34, "window": 2}
CDFS = ("weibull", "exponential", "frechet", "normal", "gumbel", "logistic")
# Composition -> hyperparameters of its first part. A second entry of one is marked after a space.
VARIANTS: dict[str, dict[str, Any]] = {
    **{f"ima+fedprox {scheme}": {**IMA, "scheme": scheme, "period": 2, "least": 0.01}
       for scheme in ("constant", "cyclic", "epoch", "none")},
    **{f"ima@released+fedavg+fedadam {scheme}": {**IMA, "scheme": scheme, "period": 2}
       for scheme in ("exponential", "cyclic", "epoch")},
    "ima@released+fedfa epoch": {**IMA, "scheme": "epoch", "period": 2},
    **{f"aaggff_s+fedavg {cdf}": {"cdf": cdf} for cdf in CDFS},
    **{f"aaggff_d+fedavg {cdf}": {"cdf": cdf, "lower": 0.1, "upper": 0.7} for cdf in CDFS},
    "scaffold equal": {"equal_weights": True},
    "scaffold from gradients": {"from_gradients": True},
    "scaffold after momentum": {"after_momentum": True, "decays_twice": True},
    "fedprox plain": {"sample_weighted": False, "halved": True, "mu": 0.5},
    "fedprox decaying": {"constant_server_lr": False},
    "fedgma hard": {"hard": True, "threshold": 0.6},
    "fedfa pulled": {"pull": 0.5, "calibration": 0.0},
    "fedfa@released": {"calibration": 0.5},
    "feddf sgd": {"server_momentum": 0.5, "server_rate": 0.1, "server_epochs": 1},
    "feddf constant": {"decays": False, "server_epochs": 1},
    "feddf longer": {"decay_rounds": 50, "server_epochs": 1},
    "dafkd own": {"own_distillation": True, "fakes": 5, "server_epochs": 1},
    "superfed_mm own": {"start": 0.0, "local_from_start": True},
    "superfed_lm own": {"start": 0.5, "local_from_start": True},
    "per_fedavg first": {"hessian_free": False, "alpha": 0.2},
    "multi_krum+fedavg": {"share": 0.2},
    "quantised+fedprox": {"bits": 2},
    "top_k+fedprox": {"share": 0.1},
    "dp+fedavg": {"clip": 0.2, "noise_multiplier": 0.3},
    "norm_clip+aaggff_d+fedavg": {"bound": 0.1},
    "fedavg+fedyogi": {}, "ima+ditto": IMA, "fedavg+fedadagrad": {}, "scaffold+fedavgm": {},
}  # fmt: skip
EVG = ("schedule", "ddpm"), ("bounded", False), ("reinitialise", False), ("clip", 0.0)
OWN_WORLDS = {
    "fedcgan": image_worlds.adversaries,
    "fedcvae": image_worlds.autoencoders,
    "fedevg": lambda: image_worlds.energies(nn.Linear),
    "fedgan": lambda: pretraining_worlds.world(
        registry.parts()["fedgan"].cls(critic_steps=2), pretraining_worlds.Pair()
    ),
    "wgan_gp": lambda: pretraining_worlds.of_server(WganGp(critic_steps=2)),
    "discriminators": pretraining_worlds.critic_world,
    "generated": pretraining_worlds.images_world,
    **{
        f"fedevg {key}": lambda key=key, value=value: image_worlds.energies(
            nn.Linear, **{key: value}
        )
        for key, value in EVG
    },
}
PLAIN = [name for name in PARTS if name not in OWN_WORLDS]
NAMES = [*PLAIN, *VARIANTS, *OWN_WORLDS]


def world_of(name: str) -> Federation:
    if name in OWN_WORLDS:
        made = OWN_WORLDS[name]()
        return made if isinstance(made, Federation) else federation(method=made)
    composition = name.partition(" ")[0]
    first = composition.partition("+")[0].partition("@")[0]
    if PARTS[first].kind == "wrapper" and "+" not in composition:
        composition = f"{composition}+fedavg"
    if PARTS[first].kind.startswith("server"):
        composition = f"fedavg+{composition}"
    values = {first: dict(VARIANTS.get(name, {}))}
    if "start" in registry.hyperparameters_of(PARTS[first].cls) and name not in VARIANTS:
        values[first] = {"start": 0.34}
    momentum = 0.0 if first == "scaffnew" else 0.9
    made = federation(composition, values, momentum=momentum, weight_decay=1e-2)
    if first in ("fedbn", "local"):
        body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
        net = type(made.context.net)(
            image_worlds.Classifier(body[:3], body[3]).double()
        )  # with running statistics
        made = replace(made, context=replace(made.context, net=net, batch_size=7))
    return made


def numbers(what: Any) -> Any:
    """Tensors as summaries, those of a tree together; mappings of other values by name."""
    if isinstance(what, torch.Tensor):
        return pinned.summary(what)
    if isinstance(what, Mapping):
        leaves = [leaf for _, leaf in tree.named(dict(what))]
        if leaves and all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            flat = torch.cat([leaf.detach().double().ravel() for leaf in leaves])
            return [len(leaves), *pinned.summary(flat)]
        return {str(key): numbers(each) for key, each in what.items()}
    return what if isinstance(what, int | str | bool | None) else float(what)


def asked(hook: Any) -> Any:
    """What a hook returns, or that it refuses."""
    try:
        return numbers(hook())
    except (UserError, NotImplementedError, KeyError) as error:
        return type(error).__name__


def for_whom(world: Federation) -> str:
    """The kinds of federation that a method supports."""
    ctx = replace(world.context, batch_size=8, cohort_size=5)
    tries = {task: replace(ctx, task=TASKS[task]) for task in TASKS}
    still = ctx.optimizer._replace(momentum=0.0)
    tries |= {"momentum 0": replace(ctx, optimizer=still), "lone": replace(ctx, batch_size=1)}
    tries |= {"two": replace(ctx, cohort_size=2), "epoch": replace(ctx, epochs=1)}
    found = []
    for name, each in tries.items():
        try:
            world.method.check(each)
        except UserError:
            continue
        found.append(name)
    return ", ".join(found)


@pytest.mark.parametrize("name", NAMES)
def test_hooks_are_as_they_were(name: str) -> None:
    with in_float64():
        world = world_of(name)
        method, states = world.method, Memory()
        layers = [type(each).__name__ for each in method.layers()]
        prefixes = {}
        for rounds in (6, 10, 100):
            before, number = method.shared_prefix(rounds)
            prefixes[rounds] = [type(before).__name__, number]
        rates = [method.learning_rate(world.context, number) for number in range(8)]
        found: dict[str, Any] = {
            "layers": layers, "prefixes": numbers({k: str(v) for k, v in prefixes.items()}),
            "rates": pinned.summary(rates), "for": for_whom(world),
        }  # fmt: skip
        server, bytes_ = begin(world), []
        for number in range(3):
            before = server
            server, played = play_round(world, before, states, number)
            bytes_.append([played.bytes_down, played.bytes_up])
        ctx = context_of(world, 2, played.cohort)
        kept = {str(client): states.known[client] for client in (0, 3) if client in states.known}
        found |= {
            "bytes": bytes_, "server": numbers(server), "weights": numbers(played.weights),
            "reported": numbers({**played.reported_by_server, **played.reported_by_clients}),
            "clients": numbers(kept),
        }  # fmt: skip
        for place in (0, len(played.cohort) - 1):
            found[f"model {place}"] = asked(
                lambda: method.client_model(ctx, before, played.updates, place)  # noqa: B023
            )
        own = states.known.get(played.cohort[-1], {})
        for who, state in (("nobody", {}), ("one", own)):
            found[f"model of {who}"] = asked(
                lambda: method.eval_model(ctx, server, state)  # noqa: B023
            )
            if any(each.interpolates for each in method.layers()):
                mixed = method.interpolate(ctx, server, state, 0.3)
                found[f"mixture of {who}"] = numbers(mixed)
        made = method.artifact(ctx, server)
        found["artifact"] = [
            made.part,
            made.each_client,
            numbers(made.about),
            numbers(made.tensors),
        ]
        found["metrics"] = numbers(dict(method.metrics(ctx, server)))
        images = method.images(ctx, server)
        found["images"] = None if images is None else pinned.summary(images)
        if any(each.distills for each in method.layers()):
            given = world.context.artifacts["unlabelled"]
            with torch.no_grad():
                found["ensemble"] = numbers(
                    method.ensemble(ctx, before, played.updates, played.weights, given)
                )
    pinned.check("hooks.json", name, found)


def test_which_method_a_wrapper_takes() -> None:
    """And which of them go with a server optimizer, by themselves and within a wrapper."""
    methods = [name for name, part in PARTS.items() if part.kind in ("method", "pre-training")]
    servers = [name for name, part in PARTS.items() if part.kind.startswith("server")]
    wrapped = [f"{name}+fedavg" for name, part in PARTS.items() if part.kind == "wrapper"]
    found = {}
    for name, part in PARTS.items():
        if part.kind == "wrapper":
            taken = []
            for inner in [*methods, *wrapped]:
                try:
                    registry.compose(f"{name}+{inner}")
                except UserError:
                    continue
                taken.append(inner)
            found[name] = " ".join(taken)
    for around in ("", "ima+", "norm_clip+"):
        taken = []
        for method in methods:
            try:
                registry.compose(f"{around}{method}+{servers[0]}")
            except UserError:
                continue
            taken.append(method)
        found[f"{around}with a server optimizer"] = " ".join(taken)
    pinned.check("hooks.json", "composed", found)
