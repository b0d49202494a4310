"""Inception v3 for Fréchet inception distances, with weights that are drawn instead of learned."""

import torch
from safetensors.torch import save

from fedrepro.models.pretrained import features, inception
from fedrepro.models.registry import LearnedWeights
from support.refusals import refused


def test_features_are_those_of_torchvisions_network_before_its_last_layer() -> None:
    torch.manual_seed(0)
    from torchvision.models import inception_v3  # imports PyTorch's compiler

    whole = inception_v3(weights=None, init_weights=False, transform_input=False).eval()
    network = inception(LearnedWeights("x.safetensors", save(whole.state_dict())))
    grey = torch.randint(0, 256, (3, 1, 299, 299), dtype=torch.uint8)
    found = features(network, grey, batch=2)
    assert found.shape == (3, 2048)
    whole.fc = torch.nn.Identity()
    with torch.inference_mode():
        # As its weights were trained: three channels in [-1, 1].
        expected = whole(2 * grey[:1].float().expand(-1, 3, -1, -1) / 255 - 1)
    torch.testing.assert_close(found[:1], expected, rtol=1e-4, atol=1e-5)
    small = features(network, grey[:, :, ::10, ::10])
    assert small.shape == (3, 2048) and small.isfinite().all()


def test_other_weights_are_refused() -> None:
    content = save({"fc.weight": torch.zeros(2, 2)})
    with refused(names=("inception_v3", "weights")):
        inception(LearnedWeights("x.safetensors", content))
