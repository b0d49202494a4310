"""FedDisco and FedUV: degenerate cases and closed forms."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedrepro.check.world import CLASSES, play
from fedrepro.engine.context import Context
from fedrepro.engine.method import Method, name_of
from fedrepro.engine.net import Net, differentiate
from fedrepro.engine.round import context_of, steps_of
from fedrepro.engine.task import BINARY
from fedrepro.methods.fedavg import FedAvg
from fedrepro.methods.feddf import FedDF
from fedrepro.methods.feddisco import FedDisco, coefficients, imbalance
from fedrepro.methods.fedfa import FedFA
from fedrepro.methods.fedtgp import FedTGP
from fedrepro.methods.feduv import FedUV, uniformity_term, variance_term
from fedrepro.models.classifier import Classifier
from fedrepro.support.rng import stream
from support.closeness import assert_close
from support.refusals import refused
from support.worlds import federation


def test_feddisco_without_its_hyperparameters_is_fedavg_to_the_bit() -> None:
    ours, _, _ = play(federation(method=FedDisco(a=0.0, b=0.0)))
    theirs, _, _ = play(federation(method=FedAvg()))
    assert_close(ours, theirs, 0)


def test_feddisco_reports_how_far_classes_are_from_balance() -> None:
    """log(classes) of a client with one class, the divergence of its counts of any other."""
    world = federation("feddisco", cohort=6)
    ctx, server = context_of(world, 0, list(range(6))), play(world, until=0)[0]
    message, method = world.method.broadcast(ctx, server), world.method
    for client in range(6):
        update, _ = method.client_update(ctx, message, {}, steps_of(world, ctx, client))
        _, y = world.clients.tensors[client]
        frequencies = torch.bincount(y, minlength=CLASSES).double() / len(y)
        entropy = -sum(float(p) * math.log(p) for p in frequencies if p > 0)
        assert float(update["imbalance"]) == pytest.approx(math.log(CLASSES) - entropy, abs=1e-6)
    assert float(imbalance(torch.tensor([0.0, 7.0, 0.0]))) == pytest.approx(math.log(3))


def test_feddisco_where_nothing_would_be_left_is_fedavg() -> None:
    """The released code fails there (A9)."""
    sizes = torch.tensor([10.0, 30.0])
    shares = coefficients(sizes, torch.tensor([1.0, 1.0]), a=10.0, b=0.0)
    assert torch.equal(shares, sizes / 40)
    # Balanced clients are no further apart than their sizes.
    assert torch.equal(coefficients(sizes, torch.zeros(2), a=1.0, b=0.0), sizes / 40)


def test_feduv_without_its_terms_is_fedavg() -> None:
    ours, _, _ = play(federation(method=FedUV(variance=0.0, uniformity=0.0)), until=3)
    theirs, _, _ = play(federation(method=FedAvg()), until=3)
    assert_close(ours["params"], theirs["params"])


def as_released(features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """FedUV's terms as written in the authors' code (sonhamin/FedUV, UVReg)."""
    distances = torch.pdist(features).square()
    scale = torch.median(distances[distances != 0])
    gamma = torch.eye(logits.shape[1]).std(0).mean().double()
    return (
        torch.relu(gamma - logits.softmax(1).std(0)).mean(),
        (-distances / scale).exp().mean(),
    )


@pytest.mark.parametrize(("samples", "classes"), [(12, 3), (7, 10), (2, 5)])
def test_feduv_terms_and_their_gradients(samples: int, classes: int) -> None:
    rng = stream(1, "feduv")
    features = torch.randn(samples, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    logits = torch.randn(samples, classes, generator=rng, dtype=torch.float64, requires_grad=True)
    real = torch.ones(samples, dtype=torch.float64)
    ours = variance_term(logits, real), uniformity_term(features, real)
    theirs = as_released(features, logits)
    for one, other, of in zip(ours, theirs, (logits, features), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(
            *(torch.autograd.grad(each, of, retain_graph=True)[0] for each in (one, other)),
            rtol=1e-6,
            atol=1e-8,
        )


def test_feduv_does_not_see_padding() -> None:
    rng = stream(2, "feduv")
    features = torch.randn(9, 4, generator=rng, dtype=torch.float64)
    logits = torch.randn(9, 3, generator=rng, dtype=torch.float64)
    real = torch.tensor([1, 0, 1, 1, 0, 1, 1, 0, 1], dtype=torch.float64)
    kept, all_of_them = real > 0, torch.ones(6, dtype=torch.float64)
    torch.testing.assert_close(
        variance_term(logits, real), variance_term(logits[kept], all_of_them)
    )
    torch.testing.assert_close(
        uniformity_term(features, real), uniformity_term(features[kept], all_of_them)
    )


def test_feduv_gamma() -> None:
    """Predictions that are all alike fall short by gamma: 0.3162 for 10 classes, 0.1 for 100."""
    for classes in (10, 100):
        alike = torch.ones(4, classes, dtype=torch.float64)
        term = variance_term(alike, torch.ones(4, dtype=torch.float64))
        assert float(term) == pytest.approx(classes**-0.5, rel=1e-12)
        balanced = 1e3 * torch.eye(classes, dtype=torch.float64)
        none = variance_term(balanced, torch.ones(classes, dtype=torch.float64))
        assert float(none) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("samples", [1, 3])
def test_feduv_where_samples_are_alike_has_finite_gradients(samples: int) -> None:
    same = torch.ones(samples, 4, dtype=torch.float64, requires_grad=True)
    real = torch.ones(samples, dtype=torch.float64)
    total = variance_term(same, real) + uniformity_term(same, real)
    assert float(total.detach()) == (0 if samples == 1 else pytest.approx(4**-0.5 + 1))
    (gradient,) = torch.autograd.grad(total, same)
    assert (gradient == 0).all()


def test_one_pass_gives_features_and_output_and_moves_statistics_once() -> None:
    body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    net = Net(Classifier(body, nn.Linear(4, 2)))
    params = net.init(stream(1, "init"))
    x = torch.randn(5, 3, generator=stream(1, "x"))
    bound = net.bind(params)
    features, output = net.features_and_output(bound, x)
    moved = bound["body.1.running_mean"].clone()
    torch.testing.assert_close(moved, 0.1 * body[0](x).mean(0))
    assert net.outputs(params) == 2 and features.shape == (5, 4)
    gradient = differentiate(
        lambda params: net.features_and_output(params, x)[1].square().sum(), bound
    )
    assert gradient.keys() == net.trainable(params).keys()
    torch.testing.assert_close(net(net.bind(params), x), output)


@pytest.mark.parametrize("method", [FedDF(), FedDisco(), FedFA(), FedTGP(), FedUV()])
def test_binary_tasks_are_refused(method: Method) -> None:
    ctx: Context = replace(federation().context, task=BINARY)
    with refused(file=name_of(method), key="task", value="binary"):
        method.check(ctx)
    method.check(federation().context)
