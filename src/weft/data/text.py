"""Text for models: vocabularies, tokenisation by bytes and words, models of the `tokenizers` package, language models.

>>> vocabulary = Vocabulary.of(words(line) for line in ["a rose is a rose", "is it"])
>>> vocabulary.tokens
['<pad>', '<unk>', 'a', 'is', 'rose', 'it']
>>> vocabulary.encode(["a", "daisy"])
[2, 1]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.base.name_hints import add_hints as _add_hints
from weft.data.dataset import Dataset

__all__ = ["Bptt", "Tokenizer", "Vocabulary", "from_bytes", "to_bytes", "words"]

WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def words(text: str, *, lower: bool = False) -> list[str]:
    """Words and punctuation marks of a text.

    >>> words("Don't stop, now.")
    ["Don't", 'stop', ',', 'now', '.']
    """
    return WORD.findall(text.lower() if lower else text)


def to_bytes(text: str) -> np.ndarray:
    """A text as its bytes in UTF-8, u8[n]: a vocabulary of 256 that encodes every text.

    >>> to_bytes("hé").tolist()
    [104, 195, 169]
    """
    return np.frombuffer(text.encode(), np.uint8)


def from_bytes(indices: Any) -> str:
    """The text of bytes; what is not UTF-8 becomes U+FFFD.

    >>> from_bytes([104, 195, 169])
    'hé'
    """
    return np.asarray(indices, np.uint8).tobytes().decode(errors="replace")


class Vocabulary:
    """Tokens and their indices. `unknown` takes the place of tokens that are not in it; without it they raise KeyError.

    Raises ValueError if a token occurs twice.
    """

    def __init__(self, tokens: Sequence[str], unknown: str | None = "<unk>") -> None:
        self.tokens = list(tokens)
        self.indices = {token: index for index, token in enumerate(self.tokens)}
        if len(self.indices) < len(self.tokens):
            raise ValueError("Vocabulary: a token occurs twice")
        self.unknown = self.indices[unknown] if unknown is not None else None

    @classmethod
    def of(
        cls,
        texts: Iterable[Iterable[str]],
        *,
        size: int | None = None,
        least: int = 1,
        special: Sequence[str] = ("<pad>", "<unk>"),
    ) -> Vocabulary:
        """The special tokens and the most frequent others: at most `size` in all, each at least `least` times.

        Equally frequent ones are in alphabetical order.
        """
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        for token in special:
            counts.pop(token, None)
        ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        frequent = [token for token, count in ordered if count >= least]
        tokens = [*special, *frequent][: size if size is not None else None]
        return cls(tokens, "<unk>" if "<unk>" in special else None)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, token: str) -> int:
        index = self.indices.get(token, self.unknown)
        if index is None:
            raise KeyError(token)
        return index

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Indices of tokens."""
        return [self[token] for token in tokens]

    def decode(self, indices: Iterable[int]) -> list[str]:
        """Tokens of indices."""
        return [self.tokens[int(index)] for index in indices]


class Tokenizer:
    """A model of the `tokenizers` package: from a tokenizer.json, or one of its Tokenizer objects.

    encode() gives an array i64[n], which datasets can return. Raises ImportError if the package is missing.
    """

    def __init__(self, model: Any) -> None:
        if isinstance(model, str) or hasattr(model, "__fspath__"):
            try:
                from tokenizers import Tokenizer as Model
            except ImportError:
                raise ImportError("Tokenizer: needs the package tokenizers: pip install tokenizers") from None
            model = Model.from_file(str(model))
        self.model = model

    def __len__(self) -> int:
        return int(self.model.get_vocab_size())

    def encode(self, text: str) -> np.ndarray:
        """The text's indices."""
        return np.array(self.model.encode(text).ids, np.int64)

    def decode(self, indices: Any) -> str:
        """The text of indices."""
        text: str = self.model.decode(np.asarray(indices).tolist())
        return text


class Bptt(Dataset):
    """Pieces of a long sequence for language models: sample k is (x, y), [batch_size, length] each, y one step later.

    The sequence is cut into batch_size equal streams, one for each row; piece k + 1 goes on where piece k ended, so a
    recurrent network's state can be handed on. Use it with DataLoader(..., batch_size=1, collator=...) or directly.
    The rest that does not fill a row is left out; the last piece may be shorter.
    Raises ValueError if there is not one step for each row.

    >>> x, y = Bptt(range(10), batch_size=2, length=3)[0]
    >>> x.tolist(), y.tolist()
    ([[0, 1, 2], [5, 6, 7]], [[1, 2, 3], [6, 7, 8]])
    """

    def __init__(self, indices: Any, batch_size: int, length: int) -> None:
        sequence = np.asarray(indices)
        if batch_size < 1 or length < 1:
            raise ValueError(f"Bptt: batch_size and length must be at least 1, got {batch_size} and {length}")
        steps = len(sequence) // batch_size
        if steps < 2:
            raise ValueError(f"Bptt: {len(sequence)} indices are less than 2 for each of {batch_size} rows")
        self.rows = sequence[: steps * batch_size].reshape(batch_size, steps)
        self.length = length

    def __len__(self) -> int:
        return -(-(self.rows.shape[1] - 1) // self.length)

    def __getitem__(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        if not -len(self) <= k < len(self):
            raise IndexError(f"Bptt: index {k} is not one of {len(self)} pieces")
        begin = k % len(self) * self.length
        end = min(begin + self.length, self.rows.shape[1] - 1)
        return self.rows[:, begin:end], self.rows[:, begin + 1 : end + 1]


_add_hints(globals())
