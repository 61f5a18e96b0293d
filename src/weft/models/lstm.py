"""A language model of LSTM layers."""

from __future__ import annotations

from weft.arrays.tensor import Tensor
from weft.module import LSTM, Embedding, Linear, Module

__all__ = ["LSTMLanguageModel"]


class LSTMLanguageModel(Module):
    """Embedding, LSTM layers of the same width, and a linear layer to the vocabulary, with weights of its own.

    forward(tokens, state=None): tokens int[t, n], time first -> logits float[t, n, vocabulary] and the state
    (h, c), each float[layers, n, width], from which the next part of the text goes on. Without a state it is zero.
    Source: Zaremba, Sutskever, Vinyals 2014, Recurrent neural network regularization, without its dropout.

    >>> import weft as wf
    >>> from weft import models
    >>> net = models.LSTMLanguageModel(vocabulary=50, width=16, layers=2)
    >>> logits, (h, c) = net(wf.zeros((7, 3), dtype="int64"))
    >>> logits.shape, h.shape
    ((7, 3, 50), (2, 3, 16))
    """

    repr_attributes = ("vocabulary", "width")

    def __init__(self, vocabulary: int, width: int, layers: int = 2) -> None:
        self.vocabulary, self.width = vocabulary, width
        self.embedding = Embedding(vocabulary, width)
        self.lstm = LSTM(width, width, layers)
        self.head = Linear(width, vocabulary)

    def forward(
        self, tokens: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, state = self.lstm(self.embedding(tokens), state)
        return self.head(h), state
