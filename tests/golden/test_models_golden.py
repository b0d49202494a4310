"""Every model from its seed to its outputs, as landed runs had it.

Layers, numbers of parameters and rules of initial weights have their own tests; what stands between
layers (activations, their slopes, what is added or left out) shows in outputs only.
"""

from collections import Counter

import pytest
import torch
from torch import nn

from fedrepro.check.world import in_float64
from fedrepro.engine.net import Net
from fedrepro.models import registry as models
from fedrepro.support.rng import stream
from support import pinned

# Others take images of 3 x 32 x 32. Those that start from a file, and that of another package, have
# tests of their own.
SHAPES: dict[str, tuple[int, ...]] = {
    "logistic": (12,), "m5": (1, 2000), "stacked_lstm": (12,), "next_char_lstm": (12,),
    "ima_alexnet": (1, 96, 96), "superfed_mobilenet": (3, 64, 64), "fedcgan": (1, 64, 64),
    "fedcvae": (1, 64, 64),
}  # fmt: skip
SMALL = ("wgan_gp_small", "fedcgan_small", "fedcvae_small", "discriminator_small")
NAMES = [name for name, entry in models.MODELS.items() if not entry.weights and name != "mobilevit"]
WITH_CHOICES = (nn.Dropout, nn.LeakyReLU, nn.ELU)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_as_it_was(name: str) -> None:
    shape = (1, 28, 28) if name in SMALL else SHAPES.get(name, (3, 32, 32))
    outputs = 1 if name.startswith(("discriminator", "wgan")) else 7
    with in_float64():
        net = Net(models.build(name, shape, outputs))
        params = net.init(stream(1, "init"))
        module, rng = net.module, stream(2, "inputs")
        kinds = [type(layer) for layer in module.modules()]
        of_kind = {"linear": 1, "mlp": kinds.count(nn.Linear)}
        family = "recurrent" if nn.LSTM in kinds else max(of_kind, key=lambda key: of_kind[key])
        is_convolutional = any(issubclass(kind, nn.Conv1d | nn.Conv2d) for kind in kinds)
        assert models.find(name).family == ("convolutional" if is_convolutional else family)
        chosen = Counter(str(each) for each in module.modules() if isinstance(each, WITH_CHOICES))
        for layer in module.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0  # its draws depend on how PyTorch was built
        x = torch.rand((2, *shape), generator=rng)
        x = (7 * x).long() if models.find(name).family == "recurrent" else x
        some = torch.cat([leaf.ravel()[::101] for leaf in params.values()])
        spread = torch.stack([leaf.square().mean() for leaf in params.values()])
        found = {"initial": [pinned.summary(each) for each in (some, spread)]}
        module.load_state_dict(params, strict=False)
        parts = [each for each in ("generator", "decoder") if hasattr(module, each)]
        batches = any("BatchNorm" in type(each).__name__ for each in module.modules())
        for training in (False, True)[: 1 + (batches or bool(net.running_statistics))]:
            module.train(training)
            with torch.no_grad():
                made = [module(x)]
                for part in parts:
                    width = module.latent + getattr(module, "classes", 0)
                    made.append(module.get_submodule(part)(torch.rand(2, width, generator=rng)))
            found["train" if training else "eval"] = [pinned.summary(each) for each in made]
        moving = [each.ravel() for each in module.buffers() if each.is_floating_point()]
        found["buffers"] = [pinned.summary(torch.cat(moving) if moving else [])]
    pinned.check("models.json", name, {"choices": dict(chosen), **found})
