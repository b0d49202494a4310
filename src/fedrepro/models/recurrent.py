"""LEAF's stacked LSTMs: for Reddit's next words and the next letter of Shakespeare's plays."""

from torch import Tensor, nn

from fedrepro.models.classifier import Classifier
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
