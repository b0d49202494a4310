"""Architectures: numbers of parameters as printed or counted in released code (facts/ima.md)."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedrepro.engine.net import Net
from fedrepro.models import pretrained
from fedrepro.models import registry as models
from fedrepro.models.classifier import Classifier, features_of
from fedrepro.models.energy import PowerIterationLinear, SpectralLinear
from fedrepro.models.pretrained import load_into, untrained
from fedrepro.support.errors import UserError
from fedrepro.support.plugins import Folders
from fedrepro.support.rng import stream
from support.refusals import refused


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "parameters"),
    [
        ("logistic", (15,), 1, 16),
        ("logistic", (1, 28, 28), 10, 7_850),
        ("twonn", (1, 28, 28), 10, 199_210),
        ("mcmahan_cnn", (1, 28, 28), 10, 1_663_370),
        ("ima_fmnist_cnn", (1, 28, 28), 10, 274_026),
        ("ima_cifar_cnn", (3, 32, 32), 10, 772_682),
        ("ima_digits_cnn", (3, 28, 28), 10, 806_090),
        ("ima_vgg11", (3, 32, 32), 100, 9_304_548),
        ("ima_alexnet", (3, 224, 224), 7, 12_438_599),
        ("ima_resnet18", (3, 32, 32), 10, 11_235_786),
        ("ima_resnet18", (3, 32, 32), 100, 11_247_396),
        ("celeba_cnn", (3, 84, 84), 1, 29_569),
        ("m5", (1, 16_000), 35, 150_819),
        ("superfed_twonn", (1, 28, 28), 10, 238_800),
        ("superfed_twonn_earlier", (1, 28, 28), 10, 199_210),
        ("superfed_twocnn", (3, 28, 28), 10, 722_800),
        ("superfed_twocnn_earlier", (3, 28, 28), 10, 683_010),
        ("superfed_resnet9", (3, 28, 28), 100, 5_054_784),  # 5.05 M
        ("superfed_mobilenet", (3, 64, 64), 200, 364_480),
        ("superfed_vgg9", (1, 28, 28), 62, 1_718_416),  # 1.72 M
    ],
)
def test_parameters(name: str, shape: tuple[int, ...], outputs: int, parameters: int) -> None:
    module = models.build(name, shape, outputs)
    assert sum(leaf.numel() for leaf in module.parameters()) == parameters
    net = Net(module)
    params = net.init(stream(1, "init"))
    logits = net(params, torch.zeros(2, *shape))
    assert logits.shape == (2, outputs)
    assert net.head(params) and not net.head(params).keys() & net.body(params).keys()
    assert net.features(params, torch.zeros(2, *shape)).shape[0] == 2


def count(module: nn.Module) -> int:
    return sum(leaf.numel() for leaf in module.parameters())


def test_stacked_lstm() -> None:
    net = Net(models.build("stacked_lstm", (10,), 10_000))
    assert count(net.module) == 5_565_328  # 5.57 M
    words = torch.arange(20, dtype=torch.int32).reshape(2, 10)
    assert net(net.init(stream(1, "init")), words).shape == (2, 10, 10_000)


def test_next_char_lstm() -> None:
    net = Net(models.build("next_char_lstm", (80,), 100))
    assert count(net.module) == 821_024
    letters = torch.arange(160, dtype=torch.int32).reshape(2, 80) % 100
    params = net.init(stream(1, "init"))
    logits = net(params, letters)
    assert logits.shape == (2, 100)
    for place in (0, -1):  # the first letter reaches the last place
        others = letters.clone()
        others[:, place] += 1
        assert not torch.equal(net(params, others), logits)


def test_initial_weights_of_lstms_are_as_wide_as_their_state() -> None:
    """U(-1/sqrt(hidden), 1/sqrt(hidden)) for all of a layer, whatever its inputs."""
    net = Net(models.build("stacked_lstm", (10,), 500))
    params, seen = net.init(stream(1, "init")), set()
    for name, layer in net.module.named_modules():
        if isinstance(layer, nn.LSTM):
            bound = layer.hidden_size**-0.5
            seen.add(layer.input_size == layer.hidden_size)
            for own, _ in layer.named_parameters():
                leaf = params[f"{name}.{own}"]
                assert float(leaf.abs().max()) <= bound
                assert float(leaf.std()) == pytest.approx(bound / 3**0.5, rel=0.05)
    assert False in seen


def test_no_shortcut_is_the_identity_in_superfeds_resnet() -> None:
    net = Net(models.build("superfed_resnet9", (3, 28, 28), 10))
    block = next(each for each in net.module.modules() if getattr(each, "shortcut", 0) is None)
    last = [each for each in block.modules() if isinstance(each, nn.BatchNorm2d)][-1]
    torch.nn.init.zeros_(last.weight)
    assert not block(torch.ones(2, 64, 7, 7)).any()


def one_layer(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Linear(shape[0], outputs)


def test_a_model_that_is_an_object_is_known_while_it_is_given_only() -> None:
    """Also one of a packaged name, one within another, and after an error."""
    before = models.known()
    with models.given("logistic", one_layer):
        assert isinstance(models.build("logistic", (3,), 2), nn.Linear)
        with models.given("inner", one_layer), models.given("other", None):
            assert {"logistic", "inner"} <= {*models.names()} and models.names().count(
                "logistic"
            ) == 1
            assert "other" not in models.known()
            entry = models.find("inner")
            assert entry.own and entry.weights is None and entry.family == "convolutional"
            assert models.build("inner", (5,), 4).weight.shape == (4, 5)  # type: ignore[union-attr]
        assert "inner" not in models.names() and models.known()["logistic"].own
        assert isinstance(models.build("logistic", (3,), 2), nn.Linear)
    assert models.known() == before and not models.find("logistic").own
    with pytest.raises(KeyError), models.given("mine", one_layer):
        raise KeyError
    assert models.known() == before
    with refused(key="name", value="mine"):
        models.build("mine", (3,), 2)


def test_a_model_of_one_s_own_is_a_copy_where_it_can_be() -> None:
    module = nn.Linear(3, 2)
    made = models.made("mine", lambda shape, outputs: module, (3,), 2)
    assert made is not module and torch.equal(made.weight, module.weight)  # type: ignore[arg-type]
    locked = nn.Linear(3, 2)
    locked.lock = threading.Lock()  # type: ignore[assignment]
    with refused(names=("mine", "copied")):  # else it would be trained in place
        models.made("mine", lambda shape, outputs: locked, (3,), 2)

    def build(shape: tuple[int, ...], outputs: int) -> nn.Module:
        layer = nn.Linear(shape[0], outputs)
        layer.lock = threading.Lock()  # type: ignore[assignment]
        return layer

    with refused(names=("mine", "copied")):  # nor may a part of it be
        models.made("mine", lambda shape, outputs: nn.Sequential(locked, nn.Linear(2, 2)), (3,), 2)
    before = torch.get_rng_state()
    one = models.made("mine", build, (3,), 2)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    assert torch.equal(build((3,), 2).weight, one.weight)  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), after)
    for wrong in (lambda shape, outputs: 7, lambda shape, outputs: nn.ReLU()):
        with refused(names="mine"):
            models.made("mine", wrong, (3,), 2)


@pytest.mark.parametrize("shapes", [((3,), (4,)), {"user": (3,), "item": (4,)}])
def test_samples_of_several_inputs_need_a_model_of_one_s_own(shapes: Any) -> None:
    with refused(key="model", value="logistic"):
        models.build("logistic", shapes, 2)
    with models.given("two", lambda shape, outputs: nn.Linear(len(shape), outputs)):
        assert models.build("two", shapes, 5).weight.shape == (5, 2)  # type: ignore[union-attr]


def test_a_model_s_file_says_its_family(tmp_path: Path) -> None:
    """Anywhere in it; one that says none is run as a large one."""
    text = "from torch import nn\n{}\ndef {}(shape, outputs): return nn.Linear(shape[0], outputs)\n"
    families = {"plain": "", "single": "FAMILY = 'mlp'", "double": 'N = 1\nFAMILY = "linear"'}
    for name, line in families.items():
        (tmp_path / f"{name}.py").write_text(text.format(line, name))
    folders = Folders(models=tmp_path)
    found = {name: models.find(name, folders) for name in families}
    assert [entry.family for entry in found.values()] == ["convolutional", "mlp", "linear"]
    assert all(entry.own for entry in found.values())
    assert {*models.names(folders)} == {*models.known(folders)} == {*models.MODELS, *families}
    assert models.module_file("single", folders) == tmp_path / "single.py"
    assert models.build("double", (7,), 2, folders=folders).weight.shape == (2, 7)  # type: ignore[union-attr]
    with models.given("plain", lambda shape, outputs: nn.Linear(1, 1)):  # before a file
        assert models.build("plain", (7,), 2, folders=folders).weight.shape == (1, 1)  # type: ignore[union-attr]
    (tmp_path / "resnet18.py").write_text(text.format("", "resnet18"))
    with refused(names="resnet18.py"):
        models.find("plain", folders)


def test_a_body_is_looked_at_without_a_trace() -> None:
    body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten())
    assert features_of(body, (1, 5, 6)) == 2 * 3 * 4
    assert body.training and not body[1].running_mean.any()
    with refused(key="input shape", value=(1, 2, 2)):
        features_of(body, (1, 2, 2))
    assert body.training


class Encoder(nn.Module):
    """In place of a transformer: features say which tokens and which mask it got."""

    def __init__(self) -> None:
        super().__init__()
        self.config = type("Config", (), {"dim": 5})
        self.table = nn.Embedding(9, 5)

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        return (self.table(tokens) * attention_mask[..., None], torch.zeros(1))


def test_the_head_on_a_transformer_gets_the_first_token_s_features() -> None:
    encoder = Encoder()
    module = pretrained.on_distilbert(encoder, 3)
    x = torch.tensor([[[4, 1, 7], [1, 1, 0]], [[2, 8, 0], [0, 1, 1]]])
    with torch.no_grad():
        features = module.body(x)
    assert torch.equal(features[0], encoder.table.weight[4]) and not features[1].any()
    widths = [layer.weight.shape for layer in module.head if isinstance(layer, nn.Linear)]
    assert widths == [(5, 5), (3, 5)]
    kinds = [type(layer) for layer in module.head]
    assert kinds == [nn.Linear, nn.ReLU, nn.Dropout, nn.Linear] and module.head[2].p == 0.1


def test_models_stay_as_drawn_where_nothing_is_trained() -> None:
    module = nn.Linear(3, 2)
    with untrained():
        with untrained():
            load_into(module, "x", None, "")
        load_into(module, "x", None, "")
    with refused(names=("weights.x", "missing")):
        load_into(module, "x", None, "")


@pytest.mark.parametrize("layer", [SpectralLinear, PowerIterationLinear])
def test_a_spectral_norm_is_the_largest_singular_value(layer: Any) -> None:
    """Of a model that has diverged, the outputs show it."""
    made = layer(6, 4)
    made.bias.data.zero_()
    x = torch.randn(9, 6, generator=stream(1, "x"))
    for _ in range(100):
        found = made(x).detach()
    wanted = x @ made.weight.T / torch.linalg.matrix_norm(made.weight, 2)
    torch.testing.assert_close(found, wanted.detach(), rtol=1e-3, atol=1e-4)
    made.weight.data[0, 0] = torch.nan
    assert made(x)[:, 0].isnan().all()


SUPERFED = {
    "superfed_twonn": (1, 28, 28),
    "superfed_twocnn": (3, 28, 28),
    "superfed_resnet9": (3, 28, 28),
    "superfed_mobilenet": (3, 64, 64),
    "superfed_vgg9": (1, 28, 28),
    "next_char_lstm": (80,),
}


@pytest.mark.parametrize("name", SUPERFED)
def test_superfed_starts_xavier_normal_without_bias(name: str) -> None:
    """No two layers of equal shape are equal, as they are in the released code (item 28)."""
    net = Net(models.build(name, SUPERFED[name], 10))
    params = net.init(stream(1, "init"))
    assert not list(net.module.buffers())
    for layer, module in net.module.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            assert module.bias is None
            weight = params[f"{layer}.weight"]
            field = weight[0, 0].numel()
            std = (2 / (field * (weight.shape[0] + weight.shape[1]))) ** 0.5
            # Six standard errors of a sample's standard deviation.
            rel = 6 / (2 * weight.numel()) ** 0.5
            assert float(weight.std()) == pytest.approx(std, rel=rel)
        elif isinstance(module, nn.BatchNorm2d):
            assert (params[f"{layer}.weight"] == 1).all() and (params[f"{layer}.bias"] == 0).all()
    drawn = [leaf for leaf in params.values() if leaf.dim() > 1]
    assert not any(
        torch.equal(one, two)
        for place, one in enumerate(drawn)
        for two in drawn[place + 1 :]
        if one.shape == two.shape
    )


@pytest.mark.parametrize(
    ("name", "shape", "biases", "wide", "fans"),
    [
        ("twonn", (1, 28, 28), ("body.1", "body.3", "head"), "body.1", 784 + 200),
        ("twocnn", (3, 28, 28), ("body.7", "head"), "body.7", 3136 + 200),
    ],
)
def test_the_earlier_networks_have_biases_that_start_at_zero_and_one_layer_in_their_head(
    name: str, shape: tuple[int, ...], biases: tuple[str, ...], wide: str, fans: int
) -> None:
    net = Net(models.build(f"superfed_{name}_earlier", shape, 10))
    params = net.init(stream(1, "init"))
    found = {name: float(leaf.abs().sum()) for name, leaf in params.items() if "bias" in name}
    assert found == {f"{layer}.bias": 0 for layer in biases}
    assert float(params[f"{wide}.weight"].std()) == pytest.approx((2 / fans) ** 0.5, rel=0.01)
    assert list(net.head(params)) == ["head.weight", "head.bias"]


def test_where_superfed_cuts_off_its_head() -> None:
    """The released code's `classifier`: three layers of TwoCNN, one of the LSTM, else two."""
    nets = {name: Net(models.build(name, shape, 10)) for name, shape in SUPERFED.items()}
    layers = {name: len(net.head(net.init(stream(1, "init")))) for name, net in nets.items()}
    assert layers == dict.fromkeys(SUPERFED, 2) | {"superfed_twocnn": 3, "next_char_lstm": 1}


def test_batches_are_standardised_by_themselves_when_testing() -> None:
    net = Net(models.build("superfed_resnet9", (3, 28, 28), 10))
    params = net.init(stream(1, "init"))
    x = torch.randn(4, 3, 28, 28, generator=stream(1, "x"))
    training = net(params, x)
    net.module.eval()
    assert torch.equal(net(params, x), training)
    assert not torch.allclose(net(params, x[:2]), training[:2], atol=1e-2)
    assert net.mixes_samples and not Net(models.build("twonn", (1, 28, 28), 10)).mixes_samples


def test_efficientnet_b0() -> None:
    from torchvision.models import efficientnet_b0  # imports PyTorch's compiler

    module = pretrained.on_efficientnet(efficientnet_b0(weights=None).features, 8)
    assert Net(module).draws  # dropout and stochastic depth
    assert count(module) == 4_509_316  # 4.01 M and 62,720 x 8 + 8
    assert module(torch.zeros(2, 3, 200, 200)).shape == (2, 8)


def test_distilbert() -> None:
    transformers = pytest.importorskip("transformers")
    module = pretrained.on_distilbert(
        transformers.DistilBertModel(transformers.DistilBertConfig()), 1
    )
    assert count(module) == 66_954_241
    assert module(torch.ones(2, 2, 12, dtype=torch.int32)).shape == (2, 1)


def test_mobilevit() -> None:
    pytest.importorskip("timm")
    net = Net(models.build("mobilevit", (3, 64, 64), 200))
    assert count(net.module) == 1_015_224
    assert net(net.init(stream(1, "init")), torch.zeros(2, 3, 64, 64)).shape == (2, 200)


def test_learned_weights_are_kept_unless_redrawn() -> None:
    """Discrepancy 14: the released code draws them anew."""

    def network() -> Classifier:
        body = nn.Sequential(nn.Linear(50, 40), nn.LayerNorm(40))
        with torch.no_grad():
            body[0].weight.fill_(7)
            body[1].weight.fill_(7)
        body.keeps_weights = True
        return Classifier(body, nn.Linear(40, 2))

    kept, redrawn = network(), network()
    redrawn.redrawn = True
    before = kept.head.weight.clone()
    kept_params, params = (Net(each).init(stream(1, "init")) for each in (kept, redrawn))
    assert (kept_params["body.0.weight"] == 7).all()
    assert not torch.equal(kept_params["head.weight"], before)
    assert (params["body.1.weight"] == 7).all()  # no linear layer
    assert float(params["body.0.weight"].std()) == pytest.approx((2 / 90) ** 0.5, rel=0.05)
    assert (params["head.bias"] == 0).all()


def test_every_model_names_an_existing_file() -> None:
    assert all(models.module_file(name).is_file() for name in models.MODELS)


def test_initial_weights_follow_pytorch() -> None:
    """U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases alike."""
    params = Net(models.build("twonn", (1, 28, 28), 10)).init(stream(1, "init"))
    weight = params["body.1.weight"]
    assert float(weight.abs().max()) <= 784**-0.5
    assert float(weight.std()) == pytest.approx(784**-0.5 / 3**0.5, rel=0.02)
    assert float(params["body.1.bias"].abs().max()) <= 784**-0.5


@pytest.mark.parametrize(
    ("name", "shape", "outputs"),
    [("ima_fmnist_cnn", (1, 28, 28), 10), ("next_char_lstm", (80,), 90)],
)
def test_initial_weights_come_from_the_stream_alone(
    name: str, shape: tuple[int, ...], outputs: int
) -> None:
    net = Net(models.build(name, shape, outputs))
    torch.manual_seed(1)
    one = net.init(stream(5, "init"))
    torch.manual_seed(2)
    two = net.init(stream(5, "init"))
    other = net.init(stream(6, "init"))
    for key, leaf in one.items():
        assert torch.equal(leaf, two[key]) and not torch.equal(leaf, other[key]), key


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("ima_fmnist_cnn", (15,)),
        ("ima_cifar_cnn", (3, 8, 8)),
        ("ima_resnet18", (10,)),
        ("ima_vgg11", (3, 28, 28)),
        ("ima_alexnet", (3, 32, 32)),
        ("ima_digits_cnn", (3, 7, 7)),
        ("m5", (1, 200)),
        ("m5", (16_000,)),
        ("celeba_cnn", (84,)),
        ("stacked_lstm", (1, 10)),
        ("next_char_lstm", (1, 10)),
        ("superfed_twocnn", (784,)),
        ("superfed_vgg9", (1, 12, 12)),
        ("superfed_resnet9", (3, 16, 16)),  # one number left, which BatchNorm can't standardise
        ("superfed_mobilenet", (3, 28, 28)),
        ("distilbert", (200,)),
        ("distilbert", (3, 200)),
        ("distilbert", (2, 200, 1)),
    ],
)
def test_input_that_does_not_fit(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="input shape"):
        models.build(name, shape, 10)


def test_unknown_model() -> None:
    with refused(key="name", value="twnn", names="'twonn'"):
        models.build("twnn", (1, 28, 28), 10)
