"""Architectures: numbers of parameters as printed or counted in released code (facts/ima.md)."""

import pytest
import torch

from fedrepro import models
from fedrepro.errors import UserError
from fedrepro.net import Net
from fedrepro.rng import stream


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "parameters"),
    [
        ("logistic", (15,), 1, 16),
        ("logistic", (1, 28, 28), 10, 7_850),
        ("twonn", (1, 28, 28), 10, 199_210),
        ("mcmahan_cnn", (1, 28, 28), 10, 1_663_370),
        ("ima_fmnist_cnn", (1, 28, 28), 10, 274_026),
        ("ima_cifar_cnn", (3, 32, 32), 10, 772_682),
        ("ima_resnet18", (3, 32, 32), 10, 11_235_786),
        ("ima_resnet18", (3, 32, 32), 100, 11_247_396),
    ],
)
def test_parameters(name: str, shape: tuple[int, ...], outputs: int, parameters: int) -> None:
    module = models.build(name, shape, outputs)
    assert sum(leaf.numel() for leaf in module.parameters()) == parameters
    net = Net(module)
    theta = net.init(stream(1, "init"))
    logits = net(theta, torch.zeros(2, *shape))
    assert logits.shape == (2, outputs)
    assert net.head(theta) and not net.head(theta).keys() & net.body(theta).keys()
    assert net.features(theta, torch.zeros(2, *shape)).shape[0] == 2


def test_every_model_names_an_existing_file() -> None:
    assert all(models.module_file(name).is_file() for name in models.MODELS)


def test_initial_weights_follow_pytorch() -> None:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases alike."""
    theta = Net(models.build("twonn", (1, 28, 28), 10)).init(stream(1, "init"))
    weight = theta["body.1.weight"]
    assert float(weight.abs().max()) <= 784**-0.5
    assert float(weight.std()) == pytest.approx(784**-0.5 / 3**0.5, rel=0.02)
    assert float(theta["body.1.bias"].abs().max()) <= 784**-0.5


def test_initial_weights_come_from_the_stream_alone() -> None:
    net = Net(models.build("ima_fmnist_cnn", (1, 28, 28), 10))
    torch.manual_seed(1)
    one = net.init(stream(5, "init"))
    torch.manual_seed(2)
    two = net.init(stream(5, "init"))
    other = net.init(stream(6, "init"))
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not torch.equal(one["head.weight"], other["head.weight"])


@pytest.mark.parametrize(
    ("name", "shape"),
    [("ima_fmnist_cnn", (15,)), ("ima_cifar_cnn", (3, 8, 8)), ("ima_resnet18", (10,))],
)
def test_input_that_does_not_fit(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="input shape"):
        models.build(name, shape, 10)


def test_unknown_model() -> None:
    with pytest.raises(UserError, match="did you mean 'twonn'"):
        models.build("twnn", (1, 28, 28), 10)
