"""M5 (Dai et al., ICASSP 2017): convolutions over the waveform of a spoken word."""

from torch import nn

from fedrepro.models.classifier import Classifier, features_of
from fedrepro.support.errors import bad_value

WIDTH = 64


def m5(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """M5 with 64 channels in the first layer: 150,819 parameters for one channel and 35 words.

    As in AAggFF's released code: a first stride of 4, padded later convolutions, the mean over
    time, one linear layer.
    """
    if len(input_shape) != 2:
        raise bad_value("M5", "input shape", input_shape, "(channels, samples)")
    layers: list[nn.Module] = []
    inputs = input_shape[0]
    for outputs_here, kernel, stride, padding in (
        (WIDTH, 80, 4, 0),
        (WIDTH, 3, 1, 1),
        (2 * WIDTH, 3, 1, 1),
        (4 * WIDTH, 3, 1, 1),
    ):
        layers += [
            nn.Conv1d(inputs, outputs_here, kernel, stride, padding),
            nn.BatchNorm1d(outputs_here),
            nn.ReLU(),
            nn.MaxPool1d(4),
        ]
        inputs = outputs_here
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten())
    features_of(body, input_shape)  # refuses samples that are too short
    return Classifier(body, nn.Linear(inputs, outputs))
