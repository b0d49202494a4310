"""Networks that start from pre-trained weights and keep them, and how weights are loaded.

A file of weights is read as tensors, without executing anything in it. AAggFF's released code
redraws its networks' weights (discrepancy 14), as do the models whose names end in ``_redrawn``.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from safetensors.torch import load as from_safetensors
from torch import Tensor, nn
from torch.nn import functional

from fedrepro.models.classifier import Classifier, require_image
from fedrepro.models.layers import FieldMeans
from fedrepro.models.registry import INCEPTION, LearnedWeights
from fedrepro.support.errors import UserError, bad_value, missing_value, refusal

_untrained = ContextVar("untrained", default=False)


@contextmanager
def untrained() -> Iterator[None]:
    """A context in which models keep their initial weights, for speed measurements."""
    token = _untrained.set(True)
    try:
        yield
    finally:
        _untrained.reset(token)


def load_into(module: nn.Module, name: str, weights: LearnedWeights | None, prefix: str) -> None:
    """Load the weights of the model ``name`` that begin with ``prefix`` into ``module``.

    Raises:
        UserError: if there are none, or the file does not contain these weights.
    """
    if _untrained.get():
        return
    if weights is None:
        raise missing_value("config/datasets.yaml", f"weights.{name}", "an entry")
    try:
        tensors = _tensors(weights)
        own = {
            key.removeprefix(prefix): tensor
            for key, tensor in tensors.items()
            if key.startswith(prefix)
        }
        module.load_state_dict(own)
    # Any exception: a damaged zip, a class that it refuses to create, a surplus tensor.
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0] or type(error).__name__
        why = f"not the weights of {name}: {first_line}"
        raise refusal(weights.file, why, code="damaged") from None


def _tensors(weights: LearnedWeights) -> dict[str, Tensor]:
    if weights.file.endswith(".safetensors"):
        return from_safetensors(weights.content)
    # torchvision publishes no other format. `weights_only` creates tensors and plain containers and
    # refuses every other object in a pickle.
    load = torch.load  # noqa: TID251
    file = io.BytesIO(weights.content)
    tensors: dict[str, Tensor] = load(file, map_location="cpu", weights_only=True)
    return tensors


def _not_installed(package: str, extra: str) -> UserError:
    why = f"not installed: `pip install '.[{extra}]'` in the clone"
    return refusal(package, why, code="missing")


class _FirstToken(nn.Module):
    """A transformer's features of [CLS], the first token; inputs [n, 2, length]: tokens, mask."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.encoder(x[:, 0], attention_mask=x[:, 1])[0][:, 0]
        return features


def on_distilbert(encoder: nn.Module, outputs: int) -> Classifier:
    """AAggFF's head on a DistilBERT: 768, ReLU, dropout 0.1, one logit."""
    width = int(encoder.config.dim)  # type: ignore[arg-type]
    head = nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, outputs)
    )
    return Classifier(_FirstToken(encoder), head)


def distilbert(
    input_shape: tuple[int, ...], outputs: int, weights: LearnedWeights | None
) -> Classifier:
    """DistilBERT (Sanh et al., 2019) with its weights: 66,954,241 parameters for one logit.

    Raises:
        UserError: if transformers is not installed, or its weights are missing or do not fit.
    """
    if len(input_shape) != 2 or input_shape[0] != 2:
        raise bad_value("DistilBERT", "input shape", input_shape, "(2, length): tokens and mask")
    try:
        from transformers import DistilBertConfig, DistilBertModel
    except ImportError:
        raise _not_installed("transformers", "text") from None
    # The defaults are those of distilbert-base-uncased: no configuration file is needed.
    encoder: Any = DistilBertModel(DistilBertConfig())
    load_into(encoder, "distilbert", weights, "distilbert.")
    model = on_distilbert(encoder.train(), outputs)
    model.body.keeps_weights = True  # type: ignore[assignment]
    return model


def distilbert_redrawn(
    input_shape: tuple[int, ...], outputs: int, weights: LearnedWeights | None
) -> Classifier:
    """DistilBERT as in AAggFF's released code: linear layers are redrawn (Xavier-normal)."""
    model = distilbert(input_shape, outputs, weights)
    model.redrawn = True  # type: ignore[assignment]
    return model


def on_efficientnet(features: nn.Module, outputs: int) -> Classifier:
    """AAggFF's head on EfficientNet-B0: pooled to 7 x 7, dropout 0.1, one linear layer."""
    body = nn.Sequential(features, FieldMeans(7), nn.Flatten())
    return Classifier(body, nn.Sequential(nn.Dropout(0.1), nn.Linear(1280 * 7 * 7, outputs)))


def efficientnet_b0(
    input_shape: tuple[int, ...], outputs: int, weights: LearnedWeights | None
) -> Classifier:
    """EfficientNet-B0 (Tan and Le, 2019) with its weights: 4,509,316 parameters for 8 classes.

    Raises:
        UserError: if its weights are missing or do not fit.
    """
    require_image("EfficientNet-B0", input_shape)
    from torchvision.models import efficientnet_b0 as build

    features = build(weights=None).features
    load_into(features, "efficientnet_b0", weights, "features.")
    model = on_efficientnet(features, outputs)
    model.body.keeps_weights = True  # type: ignore[assignment]
    return model


def efficientnet_b0_redrawn(
    input_shape: tuple[int, ...], outputs: int, weights: LearnedWeights | None
) -> Classifier:
    """EfficientNet-B0 as in AAggFF's released code: nearly all weights are redrawn."""
    model = efficientnet_b0(input_shape, outputs, weights)
    model.redrawn = True  # type: ignore[assignment]
    return model


class _MobileViTBody(nn.Module):
    """All of a MobileViT but its last layer."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.whole(x)
        return features


def mobilevit(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """MobileViT-XXS (Mehta and Rastegari, ICLR 2022), from timm, not pre-trained.

    1,015,224 parameters for 200 classes. The paper does not say which of the three sizes it used.

    Raises:
        UserError: when timm is not installed.
    """
    require_image("MobileViT", input_shape)
    try:
        import timm
    except ImportError:
        raise _not_installed("timm", "vision") from None
    whole: Any = timm.create_model("mobilevit_xxs", in_chans=input_shape[0], num_classes=0)
    return Classifier(_MobileViTBody(whole), nn.Linear(whole.num_features, outputs))


INCEPTION_SIDE = 299


class Inception(nn.Module):
    """Torchvision's Inception v3 up to its 2048 pooled features, of images [n, 1 or 3, h, w].

    It is the network of FedEvg's released code, with torchvision's weights. Most papers compute
    FIDs with the TensorFlow network of 2015, which gives other numbers.
    """

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.body = whole

    def forward(self, x: Tensor) -> Tensor:
        """Features [n, 2048] of pixels in [0, 1]."""
        x = x.expand(-1, 3, -1, -1)
        x = functional.interpolate(
            x, (INCEPTION_SIDE, INCEPTION_SIDE), mode="bilinear", antialias=True
        )
        features: Tensor = self.body(2 * x - 1)  # the range that its weights were trained with
        return features


def inception(weights: LearnedWeights) -> Inception:
    """The network with its weights, in testing mode.

    Raises:
        UserError: if the file does not contain its weights.
    """
    from torchvision.models import inception_v3

    whole = inception_v3(weights=None, init_weights=False, transform_input=False)
    load_into(whole, INCEPTION, weights, "")
    whole.fc = nn.Identity()
    whole.AuxLogits = None
    return Inception(whole).eval()


def features(network: Inception, images: Tensor, batch: int = 50) -> Tensor:
    """Features [n, 2048] of images uint8 [n, 1 or 3, h, w]."""
    with torch.inference_mode():
        return torch.cat([network(part.float() / 255) for part in images.split(batch)])
