"""ResNet-18 (He et al., CVPR 2016) with GroupNorm and a stem for small images."""

from torch import Tensor, nn
from torch.nn import functional

from fedrepro.models.classifier import Classifier, require_image

GROUPS = 2  # IMA's released code; GroupNorm has no running statistics to aggregate


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, a 1x1 convolution if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(GROUPS, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(GROUPS, outputs)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(GROUPS, outputs)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def ima_resnet18(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """IMA's ResNet-18 with GroupNorm: 11,235,786 parameters for 10 classes.

    The fully connected layers are 512-128 and 128-classes without activation between them.
    """
    require_image("IMA's ResNet-18", input_shape)
    layers: list[nn.Module] = [
        nn.Conv2d(input_shape[0], 64, 3, padding=1, bias=False),
        nn.GroupNorm(GROUPS, 64),
        nn.ReLU(),
    ]
    inputs = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, channels, stride), Block(channels, channels, 1)]
        inputs = channels
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 128)]
    return Classifier(nn.Sequential(*layers), nn.Linear(128, outputs))
