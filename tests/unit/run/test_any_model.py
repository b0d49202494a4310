"""What researchers bring as a model trains: each kind, per client and stacked, or one line."""

import math
import re
from collections.abc import Callable
from functools import partial
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.models as vision
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torchvision.models import efficientnet, mobilenetv3, regnet, resnet
from torchvision.models.convnext import CNBlockConfig

import fedrepro as fr
from fedrepro.engine import executors
from fedrepro.models.classifier import Classifier
from fedrepro.support.errors import UserError
from support.places import ROOT

rng = np.random.default_rng(1)
Y = np.arange(8) % 2
VECTORS = rng.normal(size=(8, 6)).astype("float32")
SEQUENCES = rng.normal(size=(8, 5, 4)).astype("float32")
VOLUMES = rng.normal(size=(8, 1, 5, 5, 5)).astype("float32")
WORDS = rng.integers(0, 11, (8, 6))
MASK = np.arange(6) < rng.integers(1, 7, 8)[:, None]


def images(size: int) -> Any:
    return rng.normal(size=(8, 3, size, size)).astype("float32")


class Tokens(nn.Module):
    """Parameters of its own, attention, RMSNorm and PReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm, self.act, self.last = nn.RMSNorm(4), nn.PReLU(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.last(self.act(x[:, 0]))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(11, 4, padding_idx=0), nn.Linear(4, 2)
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.encoder(self.embedding(x)).mean(1))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    def __init__(self, layer: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4, padding_idx=0)
        self.layer = layer(4, 5, batch_first=True, bidirectional=True)
        self.last = nn.Linear(10, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(self.embedding(x))[0][:, -1])  # type: ignore[no-any-return]


class Tied(nn.Module):
    """One weight in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out, self.last = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 2)
        self.out.weight = self.into.weight

    def forward(self, x: Tensor) -> Tensor:
        back = functional.linear(self.into(x).tanh(), self.into.weight.T)
        return self.last(self.out(back))  # type: ignore[no-any-return]


PAGE = (ROOT / "docs/models.md").read_text(encoding="utf-8")
EXAMPLES = [*map(dedent, re.findall(r"^ *```python\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL))]


def on_page(index: int, name: str, **given: Any) -> Any:
    """What an example of docs/models.md defines."""
    known = {"torch": torch, "nn": nn, "math": math, "fr": fr, "Classifier": Classifier, **given}
    exec(EXAMPLES[index], known)
    return known[name]


LoRA: Any = on_page(3, "LoRA")


def adapted() -> nn.Module:
    body = nn.Sequential(LoRA(nn.Linear(6, 8)), nn.ReLU(), LoRA(nn.Linear(8, 4)))
    return Classifier(body, nn.Linear(4, 2))


def frozen() -> nn.Module:
    body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    body[0].requires_grad_(False)
    return Classifier(body, nn.Linear(4, 2))


VISITS = (np.arange(8) % 5, VECTORS[:, :3], Y)
TwoTowers: Any = on_page(2, "TwoTowers", visits=[VISITS, VISITS])


class Volumes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv3d(1, 2, 3), nn.ConvTranspose3d(2, 2, 2)
        self.norm, self.last = nn.InstanceNorm3d(2, affine=True), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.up(self.down(x)).relu())
        return self.last(x.amax((2, 3, 4)))  # type: ignore[no-any-return]


def norms() -> nn.Module:
    body = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True),
        nn.LocalResponseNorm(2), nn.Flatten(), nn.Linear(144, 4), nn.LayerNorm(4),
    )  # fmt: skip
    return Classifier(body, nn.Linear(4, 2))


def batch_norms() -> nn.Module:
    conv, line = nn.Conv2d(3, 4, 3), nn.Linear(144, 4)
    body = nn.Sequential(conv, nn.BatchNorm2d(4), nn.Flatten(), line, nn.BatchNorm1d(4))
    return Classifier(body, nn.Linear(4, 2))


def reparametrized(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    return nn.Sequential(wrap(nn.Linear(6, 4)), nn.ReLU(), nn.Linear(4, 2))


class UNet(nn.Module):
    """A number for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x).relu()
        coarse = self.second(functional.max_pool2d(fine, 2)).relu()
        return self.last(torch.cat([fine, self.up(coarse)], 1))  # type: ignore[no-any-return]


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=8, num_labels=2,
    )  # fmt: skip
    module: nn.Module = transformers.BertForSequenceClassification(config)
    return module


def bert_with_lora() -> nn.Module:
    module = bert().requires_grad_(False)
    module.classifier.requires_grad_(True)
    attention: Any = module.get_submodule("bert.encoder.layer.0.attention.self")
    attention.query, attention.value = LoRA(attention.query), LoRA(attention.value)
    return module


def bert_of_peft() -> nn.Module:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="SEQ_CLS")
    module: nn.Module = peft.get_peft_model(bert(), config)
    return module


def of_vision(name: str, *arguments: Any, **named: Any) -> Callable[[], nn.Module]:
    return partial(getattr(vision, name), *arguments, **named)


def split_resnet() -> nn.Module:
    """The page's example, with a smaller network."""
    body = vision.ResNet(resnet.BasicBlock, [1, 1, 1, 1])
    body.layer3 = body.layer4 = nn.Sequential()
    body.fc = nn.Linear(128, 1)
    module: nn.Module = on_page(
        1, "resnet", torchvision=SimpleNamespace(models=SimpleNamespace(resnet18=lambda: body))
    )((3, 8, 8), 2)
    return module


def plain_vgg() -> nn.Module:
    features = vision.vgg.make_layers([4, "M", 8, "M"], batch_norm=True)
    body = nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5))
    return Classifier(body, nn.Linear(8, 2))


def regular_net() -> nn.Module:
    blocks = regnet.BlockParams.from_init_params(4, 8, 4.0, 2.0, 4, 0.25)
    return regnet.RegNet(blocks, num_classes=2, stem_width=4)


KINDS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "perceptron": (partial(on_page(0, "my_mlp"), (6,), 2), VECTORS),
    "parameters and attention": (Tokens, SEQUENCES),
    "transformer encoder": (Encoder, WORDS),
    "lstm": (partial(Recurrent, nn.LSTM), WORDS),
    "gru": (partial(Recurrent, nn.GRU), WORDS),
    "tied weights": (Tied, VECTORS),
    "frozen layer": (frozen, VECTORS),
    "lora": (adapted, VECTORS),
    "two towers, tuple": (TwoTowers, VISITS[:2]),
    "two towers, dict": (TwoTowers, {"item": VISITS[1], "user": VISITS[0]}),
    "3-d and transposed": (Volumes, VOLUMES),
    "norms": (norms, images(8)),
    "batch norms": (batch_norms, images(8)),
    "weight_norm": (partial(reparametrized, parametrizations.weight_norm), VECTORS),
    "spectral_norm": (partial(reparametrized, parametrizations.spectral_norm), VECTORS),
    "orthogonal": (partial(reparametrized, parametrizations.orthogonal), VECTORS),
    "u-net": (UNet, images(4)),
    "bert": (bert, WORDS),
    "bert with lora": (bert_with_lora, {"input_ids": WORDS, "attention_mask": MASK.astype(int)}),
    "peft": (bert_of_peft, WORDS),
    "vit": (of_vision("VisionTransformer", 8, 4, 1, 2, 8, 8, num_classes=2), images(8)),
    "resnet": (split_resnet, images(8)),
    "densenet": (of_vision("DenseNet", 4, (1, 1), 4, num_classes=2), images(16)),
    "squeezenet": (of_vision("squeezenet1_1", num_classes=2), images(32)),
    "mobilenet": (of_vision("MobileNetV2", 2, 0.1, [[1, 4, 1, 1]]), images(16)),
    "mobilenet v3": (
        of_vision(
            "MobileNetV3",
            [mobilenetv3.InvertedResidualConfig(16, 3, 8, 8, True, "HS", 2, 1, 1.0)],
            8,
            num_classes=2,
        ),
        images(16),
    ),
    "shufflenet": (
        of_vision("ShuffleNetV2", [1, 1, 1], [4, 8, 8, 8, 8], num_classes=2), images(32)
    ),
    "efficientnet": (
        of_vision(
            "EfficientNet",
            [efficientnet.MBConvConfig(2, 3, 1, 4, 8, 1)],
            0.2,
            num_classes=2,
            last_channel=8,
        ),
        images(16),
    ),
    "regnet": (regular_net, images(16)),
    "convnext": (
        of_vision("ConvNeXt", [CNBlockConfig(4, 8, 1), CNBlockConfig(8, None, 1)], num_classes=2),
        images(16),
    ),
    "maxvit": (
        of_vision("MaxVit", (16, 16), 4, 2, [8], [1], 4, 0.0, num_classes=2), images(16)
    ),
    "swin": (
        of_vision("SwinTransformer", [2, 2], 4, [1, 1], [1, 2], [2, 2], num_classes=2), images(8)
    ),
    "vgg": (plain_vgg, images(8)),
}  # fmt: skip
# What stacked clients cannot have, by a word of the line that refuses it.
REFUSED = {
    **dict.fromkeys(("batch norms", "resnet", "densenet", "mobilenet"), "BatchNorm"),
    **dict.fromkeys(("mobilenet v3", "vgg", "maxvit"), "BatchNorm"),
    **dict.fromkeys(("shufflenet", "efficientnet", "regnet"), "BatchNorm"),
    "spectral_norm": "keeps state", "bert": "dropout", "peft": "dropout",
    "bert with lora": "dropout", "squeezenet": "dropout", "convnext": "dropout", "swin": "dropout",
}  # fmt: skip


def clients_of(x: Any, y: Any) -> list[Any]:
    def some(rows: slice) -> Any:
        if isinstance(x, dict):
            return {name: values[rows] for name, values in x.items()}
        return tuple(values[rows] for values in x) if isinstance(x, tuple) else x[rows]

    return [(some(rows), y[rows]) for rows in (slice(4), slice(4, 7))]


def trained(name: str, method: str, executor: Any = "sequential", instance: bool = False) -> fr.Run:
    build, x = KINDS[name]
    model = build() if instance else build
    per_pixel = name == "u-net"
    y = x.sum(1, keepdims=True) if per_pixel else Y
    options: Any = {"rounds": 2, "batch_size": 2, "lr": 0.01, "evaluate_every": 2, "seed": 1}
    options |= {"task": "regression"} if per_pixel else {}
    clients = clients_of(x, y)
    if name in REFUSED:  # BatchNorm does without a last mini-batch of one sample
        clients[1] = clients[0]
    return fr.train(method, model, clients, test=clients[0], executor=executor, **options)


@pytest.mark.filterwarnings("ignore:method fedper", "error:There is a performance drop")
@pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore:.*is_gradient_check")
@pytest.mark.parametrize("name", KINDS)
def test_it_trains(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)
    monkeypatch.setitem(executors.EXECUTORS, "vectorised", lambda *about: executors.eager)
    _, x = KINDS[name]
    run = trained(name, "fedavg")
    # What is given back scores as it did, and what is sent is what is trained.
    clients = clients_of(x, Y)
    whole = clients[0][0]
    with torch.no_grad():
        if isinstance(whole, dict):
            outputs = run.model(**{key: torch.as_tensor(values) for key, values in whole.items()})
        else:
            parts = whole if isinstance(whole, tuple) else (whole,)
            outputs = run.model(*map(torch.as_tensor, parts))
    outputs = getattr(outputs, "logits", outputs)
    if name != "u-net":
        loss = functional.cross_entropy(outputs, torch.as_tensor(Y[:4])).item()
        assert loss == pytest.approx(run.rounds["test_loss"].iloc[-1], rel=1e-4, abs=1e-5)
    if name not in REFUSED:
        sent = sum(leaf.numel() for leaf in run.model.parameters() if leaf.requires_grad)
        assert run.rounds["bytes_up"].iloc[-1] == 2 * 4 * sent
    one = trained(name, "scaffold").model.state_dict()
    if name in REFUSED:
        with pytest.raises(UserError, match=f"{REFUSED[name]}.*'sequential'"):
            trained(name, "scaffold", "vectorised")
    else:
        other = trained(name, "scaffold", "vectorised").model.state_dict()
        for path, leaf in one.items():
            torch.testing.assert_close(other[path], leaf, rtol=1e-3, atol=1e-5)
    stacked = "sequential" if name in REFUSED else "vectorised"
    trained(name, "ima+fedadam", stacked, instance=True)
    if isinstance(run.model, Classifier):
        trained(name, "fedper", stacked)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_recurrent_layers_are_refused_before_they_are_compiled(name: str) -> None:
    with pytest.raises(UserError, match=r"LSTM, GRU or RNN.*'sequential'"):
        trained(name, "fedavg", "vectorised")
