"""The stacked LSTM that LEAF predicts Reddit's next words with, as in AAggFF's released code."""

from torch import Tensor, nn

from fedrepro.errors import bad_value
from fedrepro.models.classifier import Classifier

EMBEDDING, HIDDEN, LAYERS = 200, 256, 2


class _Recurrent(nn.Module):
    """Numbers of words [n, length] to features [n, length, 256]."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, HIDDEN, LAYERS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        features, _ = self.lstm(self.embedding(x))
        return features  # type: ignore[no-any-return]


def stacked_lstm(input_shape: tuple[int, ...], outputs: int) -> Classifier:
    """Embeddings of 200, two LSTM layers of 256: 5,565,328 parameters for 10,000 words.

    The paper's "200 embeddings, 256 dims" is read as the code has it (discrepancy 16). The output
    is [n, length, words]: the next word at every place.
    """
    if len(input_shape) != 1:
        raise bad_value("stacked LSTM", "input shape", input_shape, "(length,)")
    return Classifier(_Recurrent(outputs), nn.Linear(HIDDEN, outputs))
