"""Every layer of PyTorch: the seed draws its weights, or one line says what to do."""

import inspect
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import torchvision
from torch import Tensor, nn

from fedrepro.engine.initialise import initialise, is_fresh
from fedrepro.engine.modules import leaves_of, refuse_unusable
from fedrepro.engine.net import Net, Own
from fedrepro.support.errors import UserError
from fedrepro.support.rng import drawing_on, stream
from support.refusals import refused

LAYERS = {
    name: cls
    for name, cls in vars(nn).items()
    if inspect.isclass(cls) and issubclass(cls, nn.Module) and not name.startswith("_")
}
# The first with which a layer can be made.
ARGUMENTS: tuple[tuple[object, ...], ...] = (
    (), (4,), (4, 4), (4, 4, 3), (4, 4, [2]), (2, 2, 8, [2, 4]),
)  # fmt: skip
SPECIAL: dict[str, Callable[[], nn.Module]] = {
    "AdaptiveLogSoftmaxWithLoss": lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 9, [3]),
    "RNNBase": lambda: nn.RNNBase("GRU", 4, 4),
    "RNNCellBase": lambda: nn.modules.rnn.RNNCellBase(4, 4, True, 3),
    "Unflatten": lambda: nn.Unflatten(1, (2, 2)),
    "NLLLoss2d": nn.NLLLoss,
    "Transformer": lambda: nn.Transformer(4, 2, 1, 1, 8, batch_first=True),
    "TransformerEncoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1
    ),
    "TransformerDecoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8), 1),
    "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(4, 2, 8),
    "TransformerDecoderLayer": lambda: nn.TransformerDecoderLayer(4, 2, 8),
    "MultiheadAttention": lambda: nn.MultiheadAttention(4, 2, add_bias_kv=True),
    "InstanceNorm1d": lambda: nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
    "ParameterList": lambda: nn.ParameterList([torch.randn(3)]),
    "ParameterDict": lambda: nn.ParameterDict({"w": torch.randn(3)}),
    "Container": nn.Module,
}
CONSTANT = ("Norm", "PReLU", "ParameterList", "ParameterDict")  # layers that draw nothing


def make(name: str) -> nn.Module:
    if name in SPECIAL:
        return SPECIAL[name]()
    for arguments in ARGUMENTS:
        try:
            return LAYERS[name](*arguments)
        except (TypeError, ValueError):
            continue
    raise AssertionError(f"no arguments are known for {name}")


def bits(module: nn.Module) -> dict[str, Tensor]:
    return {name: leaf.detach().clone() for name, leaf in leaves_of(module).items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """The global generators are where they were."""
    before = torch.get_rng_state(), np.random.get_state()[2], random.getstate()  # noqa: NPY002
    yield
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (np.random.get_state()[2], random.getstate())  # noqa: NPY002


def refusal(module: nn.Module) -> str | None:
    """The line about a module that no rule draws, or None."""
    try:
        with torch.no_grad():
            initialise(module, stream(1, "init"))
    except UserError as error:
        return str(error)
    return None


def check(build: Callable[[], nn.Module], random_weights: bool) -> None:
    """Both ways of drawing: by the rules, and while the model is built."""

    def built(seed: int) -> nn.Module:
        with drawing_on(stream(seed, "init")):
            return build()

    def drawn(seed: int) -> dict[str, Tensor]:
        module = built(9)
        with torch.no_grad():
            initialise(module, stream(seed, "init"))
        return bits(module)

    ways: list[Callable[[int], dict[str, Tensor]]] = [lambda seed: bits(built(seed))]
    if (line := refusal(built(1))) is None:
        ways.append(drawn)
    else:
        assert "\n" not in line
        assert not is_fresh(built(1))  # so that it is kept unless asked otherwise
    for way in ways:
        one, again, other = way(1), way(1), way(2)
        assert same(one, again)
        assert all(bool(leaf.isfinite().all()) for leaf in one.values())
        if random_weights and one:
            assert not same(one, other)


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_the_seed_draws_every_layer(name: str) -> None:
    with drawing_on(stream(0, "unused")):
        module = make(name)
    if name.startswith("Lazy"):
        with refused(names=("shape", "known")):
            refuse_unusable(module)
        return
    draws = bool([*module.parameters()]) and not any(part in name for part in CONSTANT)
    check(lambda: make(name), draws)


def test_layers_whose_rule_is_not_public_are_drawn_too() -> None:
    for name in (
        "MultiheadAttention",
        "TransformerEncoderLayer",
        "Transformer",
        "GRUCell",
        "PReLU",
    ):
        with drawing_on(stream(0, "unused")):
            module = make(name)
        assert refusal(module) is None, name


SMALL = ("mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_5", "regnet_y_400mf")
CLASSIFIERS = torchvision.models.list_models(module=torchvision.models)


@pytest.mark.parametrize("name", SMALL)
def test_the_seed_draws_models_of_torchvision(name: str) -> None:
    check(lambda: torchvision.models.get_model(name, num_classes=3), True)


def test_the_seed_draws_a_small_vision_transformer() -> None:
    check(lambda: torchvision.models.VisionTransformer(16, 8, 1, 2, 8, 16, num_classes=3), True)


# A RegNet computes its widths with tensors, which must have numbers.
@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if "regnet" not in name])
def test_every_classifier_of_torchvision_has_rules_or_one_line(name: str) -> None:
    with torch.device("meta"):
        options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        module = torchvision.models.get_model(name, **options)
    if line := refusal(module):
        assert line.startswith("model: layer ")
        assert name.startswith(("vit", "swin", "maxvit", "convnext"))


@pytest.mark.parametrize(
    "wrap",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.parametrizations.orthogonal,
        nn.utils.spectral_norm,
        pytest.param(
            nn.utils.weight_norm, marks=pytest.mark.filterwarnings("ignore::FutureWarning")
        ),
    ],
)
def test_the_seed_draws_weights_under_a_norm(wrap: Callable[[nn.Module], nn.Module]) -> None:
    check(lambda: nn.Sequential(wrap(nn.Linear(3, 8)), nn.Linear(8, 3)), True)


@pytest.mark.parametrize("row", [0, 2, 4, -1])
def test_the_row_of_padding_is_zero(row: int) -> None:
    with drawing_on(stream(0, "unused")):
        module = nn.Embedding(5, 4, padding_idx=row)
    drawn = Net(module).init(stream(1, "init"))["weight"]
    assert [bool(each.any()) for each in drawn] == [each != row % 5 for each in range(5)]


def test_a_module_is_fresh_until_somebody_changes_it() -> None:
    def trained(module: nn.Module) -> None:
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        module(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def loaded(module: nn.Module) -> None:
        module.load_state_dict({name: leaf * 1 for name, leaf in module.state_dict().items()})

    def written(module: nn.Module) -> None:
        for leaf in module.parameters():
            leaf.data.mul_(1.5)

    def in_training(module: nn.Module) -> None:
        module(torch.ones(2, 3))

    def with_gradients(module: nn.Module) -> None:
        module[:1](torch.ones(2, 3)).sum().backward()  # type: ignore[operator,index]

    with drawing_on(stream(0, "unused")):
        for change in (trained, loaded, written, in_training, with_gradients):
            module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LSTM(4, 2), nn.Flatten(0))
            module = module if change in (loaded, written) else module[:2]
            assert is_fresh(module)
            change(module)
            assert not is_fresh(module), change.__name__


FRESH: dict[str, Callable[[], nn.Module]] = {
    "narrow": lambda: nn.Linear(1, 1),
    "linear": lambda: nn.Linear(60, 20),
    "convolution": lambda: nn.Conv2d(3, 8, 5),
    "deep convolution": lambda: nn.Conv3d(2, 4, 3),
    "embedding": lambda: nn.Embedding(300, 8, padding_idx=0),
    "recurrent": lambda: nn.GRU(6, 12),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 16),
    "bilinear": lambda: nn.Bilinear(8, 8, 8),
    "norm": lambda: nn.Sequential(nn.BatchNorm1d(4), nn.LayerNorm(4), nn.PReLU()),
}


@pytest.mark.parametrize("kind", FRESH)
def test_no_layer_as_torch_made_it_is_taken_for_a_changed_one(kind: str) -> None:
    for seed in range(30):
        with drawing_on(stream(seed, "unused")):
            module = FRESH[kind]()
        assert is_fresh(module), seed


WRITTEN: dict[str, Callable[[Tensor], object]] = {
    "zeros": lambda leaf: leaf.zero_(),
    "a constant": lambda leaf: leaf.fill_(0.01),
    "a normal distribution": lambda leaf: leaf.normal_(0, 0.02),
    "another range": lambda leaf: leaf.uniform_(-0.1, 0.1),
}


@pytest.mark.parametrize("how", WRITTEN)
@pytest.mark.parametrize("kind", ["linear", "embedding", "recurrent", "deep convolution", "norm"])
def test_weights_written_through_data_are_no_fresh_ones(kind: str, how: str) -> None:
    with drawing_on(stream(1, "unused")):
        module = FRESH[kind]()
        for leaf in module.parameters():
            WRITTEN[how](leaf.data)
        assert not is_fresh(module)
        another = FRESH[kind]()
        for leaf in another.parameters():
            leaf.data = WRITTEN[how](leaf.detach().clone())
        assert not is_fresh(another)


def test_a_class_that_overrides_the_rule_of_torch_draws_by_its_own() -> None:
    class Zero(nn.Linear):
        def reset_parameters(self) -> None:
            nn.init.zeros_(self.weight)
            nn.init.constant_(self.bias, 3)

    class Narrow(nn.Embedding):
        def reset_parameters(self) -> None:
            nn.init.uniform_(self.weight, 1, 2)

    with drawing_on(stream(0, "unused")):
        module = nn.ModuleDict({"zero": Zero(4, 2), "narrow": Narrow(4, 2)})
    drawn, other = (Net(module).init(stream(seed, "init")) for seed in (1, 2))
    assert not drawn["zero.weight"].any() and bool((drawn["zero.bias"] == 3).all())
    assert bool((drawn["narrow.weight"] >= 1).all())
    assert not torch.equal(drawn["narrow.weight"], other["narrow.weight"])


def test_a_layer_that_draws_a_part_of_its_weights_is_refused() -> None:
    with drawing_on(stream(0, "unused")):
        module = nn.ModuleDict({"1": nn.PReLU(), "10": nn.Bilinear(2, 2, 2)})
    assert refusal(module) is None
    module["10"].other = Other()  # type: ignore[assignment]
    with refused(names=("10.other.weight", "draws")), torch.no_grad():
        initialise(module, stream(1, "init"))


class Other(nn.Module):
    """A layer whose rule leaves a row as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, 2))

    def reset_parameters(self) -> None:
        self.weight[:2].normal_()


def test_weights_that_initialise_does_not_know_are_those_of_the_function() -> None:
    class Token(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.randn(3))

    with drawing_on(stream(0, "unused")):
        net = Net(Token(), own=Own(Token))
    one, again, other = (net.init(stream(seed, "init"))["token"] for seed in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)
    with refused(names=("parameter", "draws")):
        Net(net.module).init(stream(1, "init"))
