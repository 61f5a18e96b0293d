"""TextGenerator: texts continued by a language model, token by token, with caches and one program for all lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft import functional as F
from weft import random
from weft.arrays.creation import arange, asarray, zeros
from weft.arrays.tensor import Tensor
from weft.traces.trace import trace

__all__ = ["TextGenerator"]


class TextGenerator:
    """Continues texts by a language model with caches, such as Llama and GPT2.

    net: net(tokens, caches, last=True) -> logits of the last position [n, 1, vocabulary], and net.cache(n, capacity);
    in evaluation mode. stop: tokens that end a text. temperature: what logits are divided by before a token is drawn; 0
    takes the most likely one. top_k: only the k most likely tokens are drawn; top_p: only the most likely ones that are
    needed for this share of the probability, those of top_k being all. capacity: the most tokens of a text, its
    beginning included; None: what the network has positions for.

    generate(texts, limit, seed=0) returns the new tokens of each text, at most `limit`; a stop token is the last one.
    Texts of one call may have different lengths. Each call with the same texts, limit and seed gives the same tokens.
    The step is traced (`step`): one program reads beginnings of any length, another one every token after it. Caches
    are made at the first call, and again for another number of texts. Not to be used by several threads at once.
    Raises ValueError for a network in training mode, options out of range, texts that are empty or, with the limit,
    longer than the capacity.
    Source: Fan, Lewis, Dauphin 2018, Hierarchical neural story generation (top k); Holtzman et al. 2020, The curious
    case of neural text degeneration (top p); Gumbel 1954 (how tokens are drawn).

    >>> import weft as wf
    >>> from weft import models
    >>> wf.random.seed(0)
    >>> net = models.Llama(models.LlamaConfig(50, 16, 32, 2, 4, max_position_embeddings=32)).eval()
    >>> writer = models.TextGenerator(net, temperature=0.8, top_k=10)
    >>> new = writer.generate([[3, 1, 4], [1, 5, 9, 2, 6]], 8, seed=1)
    >>> [len(tokens) for tokens in new], new == writer.generate([[3, 1, 4], [1, 5, 9, 2, 6]], 8, seed=1)
    ([8, 8], True)
    """

    def __init__(
        self,
        net: Any,
        *,
        stop: Iterable[int] = (),
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        capacity: int | None = None,
    ) -> None:
        if net.training:
            raise ValueError(
                f"TextGenerator: {type(net).__name__} is in training mode; net.eval() changes that"
            )
        if not 0 <= temperature < float("inf"):
            raise ValueError(f"TextGenerator: temperature must be at least 0 and finite, got {temperature}")
        if top_k is not None and top_k < 1:
            raise ValueError(f"TextGenerator: top_k must be at least 1, got {top_k}")
        if not 0 < top_p <= 1:
            raise ValueError(f"TextGenerator: top_p must be above 0 and at most 1, got {top_p}")
        self.net, self.stop, self.capacity = net, frozenset(map(int, stop)), capacity
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.caches: list[Any] = []
        self.step: Any = None

    def generate(self, texts: Sequence[Sequence[int]], limit: int, *, seed: int = 0) -> list[list[int]]:
        """The new tokens of each text; see the class.

        >>> from weft import models
        >>> net = models.GPT2(models.GPT2Config(50, 8, n_embd=16, n_layer=1, n_head=2)).eval()
        >>> models.TextGenerator(net, stop=range(50)).generate([[3, 1, 4]], 5)[0].__len__()
        1
        """
        new: list[list[int]] = [[] for _ in texts]
        for tokens in self.stream(texts, limit, seed=seed):
            for text, token in zip(new, tokens, strict=True):
                if token is not None:
                    text.append(token)
        return new

    def stream(
        self, texts: Sequence[Sequence[int]], limit: int, *, seed: int = 0
    ) -> Iterator[list[int | None]]:
        """As generate, one step after the other: the next token of each text, None where it has ended.

        >>> from weft import models
        >>> net = models.GPT2(models.GPT2Config(50, 8, n_embd=16, n_layer=1, n_head=2)).eval()
        >>> len(list(models.TextGenerator(net).stream([[3, 1, 4]], 5)))
        5
        """
        lengths = [len(text) for text in texts]
        if not lengths or not min(lengths):
            raise ValueError(f"TextGenerator: each text needs a token, lengths are {lengths}")
        longest = max(lengths)
        self._prepare(len(lengths))
        capacity = self.caches[0].keys.shape[2]
        if longest + limit > capacity:
            raise ValueError(
                f"TextGenerator: {longest} tokens and {limit} new ones are more than the capacity of {capacity}"
            )
        device = self.caches[0].keys.device
        padded = np.zeros((len(lengths), longest), np.int64)  # texts end together, padding is in front
        for row, text in zip(padded, texts, strict=True):
            row[longest - len(text) :] = text
        for cache in self.caches:
            cache.reset()
        self.caches[0].starts[...] = asarray(longest - np.array(lengths, np.int64), device=device)
        tokens, key = asarray(padded, device=device), random.key(seed, device)
        is_open = [True] * len(lengths)
        for _ in range(limit):
            tokens = self.step(tokens, key)
            new = [token if is_open[k] else None for k, (token,) in enumerate(tokens.tolist())]
            yield new
            is_open = [was and token not in self.stop for was, token in zip(is_open, new, strict=True)]
            if not any(is_open):
                return

    def _prepare(self, count: int) -> None:
        """Caches and the step for so many texts."""
        if self.caches and self.caches[0].keys.shape[0] == count:
            return
        self.caches = caches = self.net.cache(count, self.capacity)
        starts = zeros((count,), dtype="int64", device=caches[0].keys.device)
        for cache in caches:
            cache.starts = starts

        def following(tokens: Tensor, key: Tensor) -> Tensor:
            logits = self.net(tokens, caches, last=True)[:, -1]
            return self._chosen(logits, random.fold_in(key, caches[0].length))[:, None]

        self.step = trace(following, dynamic={"tokens": 1})

    def _chosen(self, logits: Tensor, key: Tensor) -> Tensor:
        """A token of each row of logits [n, vocabulary], int64[n]."""
        if self.temperature == 0:
            return F.argmax(logits, axis=-1)
        scores = logits.astype("float32") / self.temperature
        noise = random.gumbel(shape=scores.shape, key=key, device=scores.device)
        if self.top_k is None and self.top_p == 1:
            return F.argmax(scores + noise, axis=-1)
        order = F.argsort(scores, axis=-1, descending=True)
        scores = F.take_along_axis(scores, order, axis=-1)
        ranks = arange(scores.shape[-1], device=scores.device)
        if self.top_k is not None:
            scores = F.where(ranks < self.top_k, scores, -float("inf"))
        if self.top_p < 1:
            shares = F.softmax(scores, axis=-1)
            likelier = F.cumulative_sum(shares, axis=-1) - shares
            scores = F.where((likelier < self.top_p) | (ranks == 0), scores, -float("inf"))
        rank = F.argmax(scores + noise, axis=-1, keepdims=True)
        token: Tensor = F.take_along_axis(order, rank, axis=-1)[:, 0]
        return token
