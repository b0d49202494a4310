"""Networks of sequences: LEAF's stacked LSTMs of words and letters, and M5 of a spoken word."""

from torch import Tensor, nn

from fedrepro.models.classifier import Classifier, features_of
from fedrepro.support.errors import bad_value

HIDDEN, LAYERS = 256, 2


class _Recurrent(nn.Module):
    """Tokens (words or letters) [n, length] to features [n, length, 256]."""

    def __init__(self, words: int, embedding: int, bias: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        self.lstm = nn.LSTM(embedding, HIDDEN, LAYERS, bias=bias, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        features, _ = self.lstm(self.embedding(x))
        return features  # type: ignore[no-any-return]


class _Last(_Recurrent):
    """The features of the last position only [n, 256]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, -1]


def stacked_lstm(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """Embeddings of 200, two LSTM layers of 256: 5,565,328 parameters for 10,000 words.

    The paper's "200 embeddings, 256 dims" is read as in the code (discrepancy 16). The output is
    [n, length, words]: the next word at every position.
    """
    _require_text("stacked LSTM", input_shape)
    return Classifier(_Recurrent(outputs, 200, bias=True), nn.Linear(HIDDEN, outputs))


def next_char_lstm(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """SuPerFed's NextCharLM: embeddings of 8, no bias, 821,024 parameters for 100 letters.

    The output is [n, letters]: the letter after the last one. LEAF's alphabet has 80 letters, the
    released code's the 100 of Python's ``string.printable`` (discrepancy 31).
    """
    _require_text("next-letter LSTM", input_shape)
    model = Classifier(_Last(outputs, 8, bias=False), nn.Linear(HIDDEN, outputs, bias=False))
    model.xavier = True  # type: ignore[assignment]
    return model


def _require_text(name: str, input_shape: tuple[int, ...]) -> None:
    if len(input_shape) != 1:
        raise bad_value(name, "input shape", input_shape, "(length,)")


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
