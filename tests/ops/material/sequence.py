"""What tests know of the operators of weft.ops.families.sequence."""

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.sequence import EmbeddingBag, OfSequences, SequenceLast, SequenceMask, SequenceReverse
from weft.ops.samples import Array, Sample, arrays


def integers(*values):
    return Array((len(values),), dtype="int64", values=values)


@material(OfSequences)
class _:
    def reference(self, x, lengths):
        first = np.moveaxis(x, self.axis, 0)
        rows = [self.row(first[:, n], int(length)) for n, length in enumerate(lengths)]
        y = np.stack(rows, axis=0 if self.name == "sequence_last" else 1)
        return y if self.name == "sequence_last" else np.moveaxis(y, 0, self.axis)

    @classmethod
    def samples(cls):
        lengths = integers(1, 4, 3)
        yield Sample(arrays((4, 3, 2)), lengths)
        yield Sample(arrays((3, 4, 2)), lengths, axis=1)
        yield Sample(arrays((4, 3)), lengths)

    @classmethod
    def errors(cls):
        yield ShapeError, "one length for each sequence", Sample(arrays((4, 3)), integers(1, 2))
        yield ValueError, "axis must be 0 or 1", Sample(arrays((4, 3)), integers(1, 2, 3), axis=2)


@material(SequenceMask)
class _:
    def row(self, x, length):
        is_inside = (np.arange(len(x)) < length).reshape(-1, *(1,) * (x.ndim - 1))
        return np.where(is_inside, x, np.asarray(self.value).astype(x.dtype))


@material(SequenceLast)
class _:
    def row(self, x, length):
        return x[length - 1]


@material(SequenceReverse)
class _:
    def row(self, x, length):
        return np.concatenate([x[:length][::-1], x[length:]])


@material(EmbeddingBag)
class _:
    def reference(self, indices, table, offsets=None, weights=None):
        if offsets is None:
            bags = list(indices)
            factors = list(np.ones(indices.shape) if weights is None else weights)
        else:
            bags = np.split(indices, offsets[1:])
            factors = np.split(np.ones(indices.shape) if weights is None else weights, offsets[1:])
        y = np.zeros((len(bags), table.shape[1]))
        for k, (bag, factor) in enumerate(zip(bags, factors, strict=True)):
            rows = table[bag] * factor[:, None]
            if self.mode == "max":
                y[k] = rows.max(axis=0)
            else:
                y[k] = rows.sum(axis=0) / (max(len(bag), 1) if self.mode == "mean" else 1)
        return y

    def torch_reference(self, torch, indices, table, offsets=None, weights=None):
        return torch.nn.functional.embedding_bag(
            indices, table, offsets, mode=self.mode, per_sample_weights=weights
        )

    @classmethod
    def samples(cls):
        rows = Array((3, 2), dtype="int64", values=[0, 3, 2, 2, 1, 0])
        table = arrays((4, 3), distinct=True)
        for mode in ("mean", "sum", "max"):
            yield Sample(rows, table, mode=mode, gradient=mode != "max")
        yield Sample(rows, table, None, arrays((3, 2)), mode="sum")
        flat, offsets = integers(0, 3, 3, 1, 2), integers(0, 2, 2)
        yield Sample(flat, table, offsets)
        yield Sample(flat, table, offsets, arrays((5,)), mode="sum")

    @classmethod
    def errors(cls):
        rows, table = Array((1, 2), dtype="int64", values=[0, 1]), arrays((4, 3))
        yield ValueError, "weights are for mode='sum'", Sample(rows, table, None, arrays((1, 2)))
        yield ShapeError, "indices needs 1 dimensions", Sample(rows, table, integers(0))
        flat = integers(0, 1)
        yield NotImplementedError, "takes bags as rows", Sample(flat, table, integers(0), mode="max")
