"""Models and data with which a method would silently be another one: each is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedrepro as fr
from fedrepro.check.world import Memory, begin
from fedrepro.data.tensors.samples import Scaling, TensorSamples
from fedrepro.engine.context import Inputs
from fedrepro.engine.net import Net
from fedrepro.engine.round import play_round
from fedrepro.engine.steps import Steps, samples_of
from fedrepro.methods.feddf import FedDF
from fedrepro.methods.fedevg import FedEvg
from fedrepro.methods.fedtgp import FedTGP
from fedrepro.methods.moon import MOON
from fedrepro.methods.per_fedavg import PerFedAvg
from fedrepro.methods.registry import compose
from fedrepro.methods.wgan_gp import WganGp
from fedrepro.models import registry as models
from support import image_worlds
from support.refusals import refused
from support.worlds import federation

IMAGES = (1, 28, 28)


class Own(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Flatten(), *layers), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x))
        return out


def built(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Own()


def context(model: nn.Module, span: tuple[float, float] = (0.0, 1.0)) -> Any:
    made = image_worlds.energies().context
    return replace(made, net=Net(model), inputs=Inputs((1, 2, 3), 3, span))


def test_fedevg_refuses_a_model_in_which_samples_mix() -> None:
    """Real images, those of the set and the chain are one mini-batch."""
    FedEvg().check(context(Own(nn.LayerNorm(6))))
    with refused("value", file="fedevg", key="model"):
        FedEvg().check(context(Own(nn.BatchNorm1d(6, track_running_stats=False))))


def clients() -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(1)
    return [(draw.random((6, 1, 2, 3), dtype="f4"), np.arange(6) % 3) for _ in range(3)]


@pytest.mark.parametrize("method", ["superfed_mm", "superfed_lm"])
@pytest.mark.parametrize("way", ["initial", "keep", "changed"])
def test_superfed_refuses_given_weights_from_which_all_clients_would_start(
    method: str, way: str
) -> None:
    model, said = Own(), {}
    if way == "changed":
        nn.init.constant_(model.head.weight, 0.5)
    else:
        said = {"initial": Own().state_dict()} if way == "initial" else {"weights": "keep"}
    given: Any = built if way == "initial" else model
    world = {"clients": clients(), "rounds": 3, "lr": 0.1, "seed": 1, "test_fraction": 0.2}
    with refused("value", file=method, key="model"):
        fr.train(method, given, **world, **said)
    assert len(fr.train(method, built, **world).rounds) == 3
    assert len(fr.train("fedprox", given, **world, **said).rounds) == 3


def test_superfed_without_a_second_model_starts_from_given_weights() -> None:
    given = {"initial": Own().state_dict()}
    world = {"clients": clients(), "rounds": 2, "lr": 0.1, "seed": 1, "test_fraction": 0.2}
    run = fr.train("superfed_mm", built, **world, **given, start=1.0)
    assert len(run.rounds) == 2


def test_fedevg_s_clients_may_keep_given_weights_but_not_draw_them() -> None:
    model = Own()
    net = Net(model)
    given = net.init(torch.Generator().manual_seed(1))
    net.init = lambda rng: given  # type: ignore[method-assign]
    made = replace(context(model), net=net)
    with refused("value", file="fedevg", key="model"):
        FedEvg().check(made)
    FedEvg(reinitialise=False).check(made)


def of_pair(critic: nn.Module | None = None, **inputs: Any) -> Any:
    pair = models.build("wgan_gp_small", IMAGES, 1)
    if critic is not None:
        pair.critic = critic
    return replace(federation().context, net=Net(pair), inputs=Inputs(IMAGES, 10, **inputs))


@pytest.mark.parametrize(
    ("span", "makes"),
    [((-1.0, 1.0), True), ((0.0, 1.0), True), (None, True), ((-0.42, 2.82), False)],
)
def test_a_generator_can_make_the_pixels_of_the_data(
    span: tuple[float, float] | None, makes: bool
) -> None:
    """Those of arrays that nothing scales are not known."""
    if makes:
        WganGp().check(of_pair(span=span))
        return
    with refused("value", file="wgan_gp", key="scaling", value=span, names="-0.42"):
        WganGp().check(of_pair(span=span))


@pytest.mark.parametrize("kind", ["f4", "u1"])
def test_wgan_gp_trains_on_arrays(kind: str) -> None:
    draw = np.random.default_rng(1)
    images = (255 * draw.random((6, *IMAGES))).astype(kind) / (1 if kind == "u1" else 255)
    data = [(images.astype(kind), np.arange(6) % 3)] * 2
    run = fr.train("fedgan", "wgan_gp_small", data, rounds=1, batch_size=3, test_fraction=0.0)
    assert run.finished


class Frozen(nn.Sequential):
    """Its BatchNorm stays in testing mode."""

    def train(self, mode: bool = True) -> "Frozen":
        super().train(mode)
        for layer in self:
            if isinstance(layer, nn.BatchNorm1d):
                layer.eval()
        return self


@pytest.mark.parametrize("kind", [nn.Sequential, Frozen])
def test_a_critic_whose_images_mix_is_refused(kind: type[nn.Sequential]) -> None:
    ctx = of_pair(kind(nn.Flatten(), nn.BatchNorm1d(784), nn.Linear(784, 1)), span=(0.0, 1.0))
    if kind is Frozen:
        WganGp().check(ctx)
        return
    with refused("value", file="wgan_gp", key="model"):
        WganGp().check(ctx)


def test_a_pair_has_a_critic() -> None:
    ctx = of_pair()
    del ctx.net.module.critic
    with refused("value", file="wgan_gp", key="model", names="critic"):
        WganGp().check(ctx)


@pytest.mark.parametrize("drawn", ["head", "body"])
def test_superfed_refuses_weights_most_of_which_are_given(drawn: str) -> None:
    """As of a pre-trained body; a small part may start the same for all clients."""
    model = Own(nn.Linear(6, 6))
    net, rng = Net(model), torch.Generator().manual_seed(1)
    first, init = net.init(rng), net.init
    kept = [name for name in first if not name.startswith(drawn)]
    net.init = lambda rng: {**init(rng), **{name: first[name] for name in kept}}  # type: ignore[method-assign]
    if drawn == "body":
        net.require_draws("superfed_mm", "so")
        return
    with refused("value", file="superfed_mm", key="model"):
        net.require_draws("superfed_mm", "so")


@pytest.mark.parametrize(
    ("composition", "key"),
    [("ima+scaffnew", "wrapper"), ("median+norm_clip", "wrapper"), ("dp+norm_clip", "wrapper"),
     ("trimmed_mean+norm_clip", "wrapper"), ("median+ima+norm_clip", "wrapper")],
)  # fmt: skip
def test_compositions_that_would_be_others(composition: str, key: str) -> None:
    with refused("value", key=key, value=composition.partition("+")[0]):
        compose(composition)
    for other in ("norm_clip+median", "krum+norm_clip", "ima+scaffold", "norm_clip+ima"):
        compose(other)


@pytest.mark.parametrize("method", [MOON, FedTGP])
def test_terms_of_features_need_a_body_that_trains(method: type[Any]) -> None:
    made = context(Own(nn.Linear(6, 6)))
    method().check(made)
    weight = {"mu": 0.0} if method is MOON else {"strength": 0.0}
    for model in (Own(), Own(nn.Linear(6, 6).requires_grad_(False))):
        method(**weight).check(replace(made, net=Net(model)))
        with refused("value", key="body"):
            method().check(replace(made, net=Net(model)))


def test_per_fedavg_compares_gradients_of_one_network() -> None:
    made = replace(context(Own(nn.Linear(6, 6), nn.Dropout(0.1))), batch_size=6)
    PerFedAvg(hessian_free=False).check(made)
    PerFedAvg().check(replace(made, net=Net(Own(nn.Linear(6, 6)))))
    with refused("value", file="per_fedavg", key="hessian_free"):
        PerFedAvg().check(made)


def test_pfedme_averages_running_statistics() -> None:
    """Its parameters move by lr * mu of the way, which may be more than all of it."""
    data = [(5 + 0.1 * x, y) for x, y in clients()]

    def norm(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return Own(nn.BatchNorm1d(6))

    variances = []
    for method, said in (("pfedme", {"mu": 15.0}), ("fedavg", {})):
        run = fr.train(method, norm, data, rounds=2, lr=0.1, seed=1, test_fraction=0.2, **said)
        variances.append(dict(run.model.named_buffers())["body.1.running_var"])
    assert torch.allclose(*variances, rtol=1e-5) and variances[0].min() > 0


def test_samples_are_mirrored_whoever_runs_them() -> None:
    x, y = torch.arange(12.0).reshape(3, 1, 2, 2), torch.arange(3)
    samples = TensorSamples(x, y, Scaling(None, None))
    mask, order = torch.tensor([True, False, True]), torch.tensor([2, 0, 1])
    steps = Steps(samples, [order], 2, {}, flips=[mask])
    seen = samples_of(steps, 1)[0]
    assert torch.equal(seen, torch.cat([batch["x"] for batch in steps])[: len(seen)])
    assert torch.equal(seen[0], x[2].flip(-1)) and torch.equal(seen[1], x[0])


class Lone(FedDF):
    def server_update(self, *arguments: Any) -> Any:
        return nn.BatchNorm1d(6)(torch.ones(1, 6))


def test_a_lone_sample_of_the_server_is_one_line() -> None:
    made = federation(method=Lone())
    with refused("value", file=__name__.rpartition(".")[2]):
        play_round(made, begin(federation()), Memory(), 0)


@pytest.mark.parametrize(
    ("inner", "key"), [("fedrep", "body_epochs"), ("ditto", "personal_epochs")]
)
def test_ima_s_last_rounds_keep_the_epochs_of_the_method_in_it(inner: str, key: str) -> None:
    def check(rounds: int, wanted: int | None, **ima: Any) -> None:
        given = {"start": 0.5, "period": 2, "scheme": "epoch", **ima}
        method, _ = compose(f"ima+{inner}", {"ima": given, inner: {key: wanted}})
        method.check(replace(context(Own(nn.Linear(4, 6))), epochs=3, rounds=rounds))

    # Of 12 rounds, the last six have 3, 3, 2, 2, 1 and 1 epochs.
    for rounds, most in ((2, 3), (8, 2), (12, 1), (40, 1)):
        for wanted in (None, 1, 2, 3):
            if wanted is None or wanted <= most:
                check(rounds, wanted)
            else:
                with refused("value", file="ima", key="scheme", value="epoch", names=key):
                    check(rounds, wanted)
                check(rounds, wanted, scheme="constant")
                check(rounds, wanted, start=1.0)
