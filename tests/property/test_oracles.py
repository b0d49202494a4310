"""Every method against an oracle that plays three rounds of it in numpy, by the paper alone.

The clients have unequal samples, some of a single class; momentum, weight decay, decaying rates,
short mini-batches and cohorts of five of six clients all show. What a method keeps for the next
round is compared as well: the server's whole state, and every client's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import CLASSES, FEATURES, Data, data, in_context, play
from fedrepro.engine import tree
from fedrepro.engine.method import Method
from fedrepro.engine.net import Net
from fedrepro.engine.optim import adam
from fedrepro.engine.round import Federation
from fedrepro.methods import registry
from fedrepro.methods.fedgan import FedGAN
from fedrepro.methods.wgan_gp import WganGp
from fedrepro.models.classifier import Classifier
from support import image_worlds, pretraining_worlds
from support.oracles import averaging, correcting, distilling, fair, generating, personal, wrapping
from support.oracles.federation import Clients, Played
from support.worlds import federation

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """An oracle, and the hyperparameters that both sides get."""

    oracle: Callable[[Clients], Played]
    options: Options = field(default_factory=dict)
    world: Callable[[str, Options], Federation] | None = None
    inputs: Options = field(default_factory=dict)  # of `Clients`


class Pair(nn.Module):
    """Generator and critic of vectors, two layers each."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, FEATURES))
        self.critic = nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, 1))
        self.latent = 3

    def forward(self, x: Tensor) -> Tensor:
        return self.critic(x)  # type: ignore[no-any-return]


def of_pairs(method: Method) -> Federation:
    made = pretraining_worlds.world(method, Pair(), rounds=3)
    return in_context(made, batch_size=8, cohort_size=4)


def at_server(name: str, options: Options) -> Federation:
    """All samples at one client. A round has 24 steps, no multiple of the critic's."""
    made = of_pairs(WganGp(**options))
    x, y = (torch.cat(parts) for parts in zip(*data().tensors, strict=True))
    context = replace(made.context, clients=1)
    return replace(made, clients=Data([(x, y)]), context=replace(context, cohort_size=1))


def normalised(name: str, options: Options) -> Federation:
    """A network with BatchNorm, and batches of 7: none has a single sample."""
    made = usual(name, options)
    body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Tanh())
    net = Net(Classifier(body, nn.Linear(8, CLASSES)).double())
    return replace(made, context=replace(made.context, net=net, batch_size=7))


def plain(name: str, options: Options) -> Federation:
    """SGD without momentum."""
    return federation(name, {name: dict(options)}, momentum=0.0, weight_decay=1e-2, rounds=3)


def under_adam(name: str, options: Options) -> Federation:
    """Clients use Adam without weight decay."""
    return in_context(usual(name, options), optimizer=adam())


ADAM = {"rate_of_first": 0.01}
FEDDF = {"server_epochs": 2, "server_batch": 8}
EVG = {
    "per_class": 4, "first_step": 1.0, "last_step": 0.1, "noise": 0.02, "chain_steps": 2,
    "chain_step": 0.5, "chain_noise": 0.03, "synthetic": 0.3, "clip": 0.2,
}  # fmt: skip
# By composition. A second entry of one is marked after a space.
CASES = {
    "fedavg": Case(averaging.fedavg),
    "fedavg@released": Case(averaging.fedavg_released),
    "central": Case(averaging.central),
    "central cosine": Case(averaging.central, {"epochs": 1, "cosine": True}),
    "fedprox": Case(averaging.fedprox, {"mu": 0.3}),
    "fedprox@released": Case(averaging.fedprox_released, {"mu": 0.3}),
    "fedavg+fedavgm": Case(averaging.fedavgm),
    "fedavg+fedadagrad": Case(averaging.fedadagrad),
    "fedavg+fedadam": Case(averaging.fedadam),
    "fedavg+fedyogi": Case(averaging.fedyogi),
    "ima+fedavg": Case(averaging.ima, {"window": 2, "start": 0.34}),
    "ima+fedavg longer": Case(averaging.ima, {"window": 3, "start": 0.0}),
    "scaffold": Case(averaging.scaffold),
    "scaffold from gradients": Case(averaging.scaffold, {"from_gradients": True}, under_adam),
    "fednova": Case(averaging.fednova),
    "fedgma": Case(averaging.fedgma, {"threshold": 0.6}),
    "fedmgda": Case(averaging.fedmgda, {"radius": 0.2}),
    "fedasam": Case(averaging.fedasam, {"rho": 0.7, "eta": 0.2}),
    "fedfa": Case(averaging.fedfa, {"pull": 0.5, "momentum": 0.8, "calibration": 0.5}),
    "feddisco": Case(averaging.feddisco, {"a": 0.7, "b": 0.05}),
    "feduv": Case(averaging.feduv, {"variance": 2.5, "uniformity": 0.5}),
    "median+fedavg": Case(wrapping.median),
    "trimmed_mean+fedavg": Case(wrapping.trimmed_mean, {"share": 0.3}),
    "krum+fedavg": Case(wrapping.krum, {"share": 0.25}),
    "multi_krum+fedavg": Case(wrapping.multi_krum, {"share": 0.0, "number": 3}),
    "norm_clip+fedavg": Case(wrapping.norm_clip, {"bound": 0.3}),
    "dp+fedavg": Case(wrapping.dp, {"clip": 0.3, "noise_multiplier": 0.0}),
    "top_k+fedavg": Case(wrapping.top_k, {"share": 0.2}),
    "quantised+fedavg": Case(wrapping.quantised, {"bits": 4, "error_feedback": True}),
    "quantised+fedavg unbiased": Case(wrapping.quantised, {"bits": 3, "error_feedback": False}),
    "ditto": Case(personal.ditto, {"mu": 0.7, "personal_epochs": 1}),
    "ditto@released": Case(personal.ditto_released, {"mu": 0.7, "personal_epochs": 2}),
    "apfl": Case(personal.apfl, {"alpha": 0.3}),
    "apfl@released": Case(personal.apfl_released, {"alpha": 0.3}),
    "pfedme": Case(personal.pfedme, {"mu": 2.0}),
    "pfedme@released": Case(personal.pfedme_released, {"mu": 2.0}),
    "pfedme steps": Case(
        personal.pfedme_steps,
        {"mu": 2.0, "inner_steps": 3, "personal_lr": 0.04, "equal_weights": True},
    ),
    "fedper": Case(personal.fedper),
    "lg_fedavg": Case(personal.lg_fedavg),
    "fedrep": Case(personal.fedrep, {"body_epochs": 1}),
    "superfed_mm": Case(personal.superfed_mm, {"start": 0.34, "mu": 0.1, "nu": 1.0}),
    "superfed_lm": Case(personal.superfed_lm, {"start": 0.34, "mu": 0.1, "nu": 2.0}),
    "superfed_mm@released": Case(
        personal.superfed_mm_released, {"start": 0.34, "mu": 0.1, "nu": 1.0}
    ),
    "local": Case(personal.local),
    "fedbn": Case(personal.fedbn, {}, normalised),
    "feddyn": Case(correcting.feddyn, {"alpha": 0.3}),
    "fedsam": Case(correcting.fedsam, {"rho": 0.2}),
    "fedspeed": Case(correcting.fedspeed, {"mu": 0.3, "rho": 0.2, "alpha": 0.7}),
    "fedspeed@released": Case(correcting.fedspeed_released, {"mu": 0.3, "rho": 0.2, "alpha": 0.7}),
    "moon": Case(correcting.moon, {"mu": 2.0, "tau": 0.5}),
    "scaffnew": Case(correcting.scaffnew, {"p": 0.3}, plain, {"momentum": 0.0}),
    "per_fedavg": Case(personal.per_fedavg, {"alpha": 0.3, "hessian_free": True, "delta": 1e-3}),
    "per_fedavg first": Case(personal.per_fedavg, {"alpha": 0.3, "hessian_free": False}),
    "propfair": Case(fair.propfair, {"baseline": 1.5}),
    "qfedavg": Case(fair.qfedavg, {"q": 2.0}),
    "term": Case(fair.term, {"tilt": 1.5}),
    "afl": Case(fair.afl, {"lr": 0.2}),
    "aaggff_s+fedavg": Case(fair.aaggff_s),
    "aaggff_d+fedavg": Case(fair.aaggff_d),
    "fedtgp": Case(distilling.fedtgp, {"strength": 0.5, "margin": 100.0, "server_epochs": 3}),
    "feddf": Case(distilling.feddf, FEDDF),
    "fedgo": Case(distilling.fedgo, FEDDF),
    "fedgo domain": Case(distilling.fedgo_domain, {**FEDDF, "weighting": "domain"}),
    "fedgo entropy": Case(distilling.fedgo_entropy, {**FEDDF, "weighting": "entropy"}),
    "fedgo variance": Case(distilling.fedgo_variance, {**FEDDF, "weighting": "variance"}),
    "fedgkd_plus": Case(
        distilling.fedgkd_plus, {**FEDDF, "gamma": 0.4, "temperature": 3.0, "models": 2}
    ),
    "dafkd": Case(distilling.dafkd, {**FEDDF, "fakes": 5}),
    "discriminators": Case(
        generating.discriminators,
        {"fakes": 8},
        lambda name, options: in_context(pretraining_worlds.critic_world(3), batch_size=8),
    ),
    "generated": Case(
        generating.generated,
        {"number": 600},
        lambda name, options: pretraining_worlds.images_world(),
    ),
    "wgan_gp": Case(generating.wgan_gp, {"critic_steps": 5, "penalty": 10.0}, at_server, ADAM),
    "fedgan": Case(
        generating.fedgan,
        {"critic_steps": 2, "penalty": 10.0},
        lambda name, options: of_pairs(FedGAN(**options)),
        ADAM,
    ),
    "fedcgan": Case(
        generating.fedcgan, {}, lambda name, options: image_worlds.adversaries(rounds=3), ADAM
    ),
    "fedcvae": Case(
        generating.fedcvae, {}, lambda name, options: image_worlds.autoencoders(rounds=3), ADAM
    ),
    "fedcvae image": Case(
        generating.fedcvae,
        {"error": "image"},
        lambda name, options: image_worlds.autoencoders(rounds=3, **options),
        ADAM,
    ),
    "fedevg": Case(
        generating.fedevg,
        EVG,
        lambda name, options: image_worlds.energies(nn.Linear, rounds=3, **options),
        ADAM,
    ),
}


def usual(name: str, options: Options) -> Federation:
    part = name.partition("@")[0].partition("+")[0]
    return federation(name, {part: dict(options)}, weight_decay=1e-2, rounds=3)


def clients_of(world: Federation, case: Case) -> Clients:
    """What the oracle gets: samples, sizes of things, and further inputs, as arrays."""
    artifacts = world.context.artifacts
    given: dict[str, Any] = {"initial": arrays(world.initial)}
    if "unlabelled" in artifacts:
        given["unlabelled"] = artifacts["unlabelled"].tensors["x"].numpy()
    for name in ("generator", "discriminators"):
        if name in artifacts:
            given[name] = arrays(artifacts[name].tensors)
    assert isinstance(world.clients, Data)
    x, y = zip(*world.clients.tensors, strict=True)
    return Clients(
        [each.numpy() for each in x],
        [each.numpy() for each in y],
        world.context.rounds,
        world.context.cohort_size,
        world.context.batch_size,
        given=given,
        options=case.options,
        **case.inputs,
    )


def arrays(what: Any) -> dict[str, Any]:
    """Path -> array, of a tree of tensors or of arrays."""
    return {path: np.asarray(leaf) for path, leaf in tree.named(what)}


def assert_same(whose: str, found: Any, expected: Any) -> None:
    ours, theirs = arrays(found), arrays(expected)
    assert ours.keys() == theirs.keys(), whose
    for path, leaf in ours.items():
        np.testing.assert_allclose(
            leaf, theirs[path], rtol=1e-8, atol=1e-10, err_msg=f"{whose} {path}"
        )


@pytest.mark.parametrize("name", CASES)
def test_as_the_paper_says(name: str) -> None:
    case = CASES[name]
    world = (case.world or usual)(name.partition(" ")[0], case.options)
    state = play(world, until=0)
    rounds = 0
    for server, states in case.oracle(clients_of(world, case)):
        state = play(world, until=rounds + 1, state=state)
        rounds += 1
        assert_same(f"round {rounds}: the server's", state[0], server)
        kept = {str(client): own for client, own in state[1].known.items() if own}
        assert_same(
            f"round {rounds}: client", kept, {str(client): own for client, own in states.items()}
        )
    assert rounds >= 3


def test_every_part_has_an_oracle() -> None:
    """A new method, wrapper or server optimizer gets one, too."""
    covered = {part.partition("@")[0] for name in CASES for part in name.split(" ")[0].split("+")}
    assert covered == registry.parts().keys()
