"""What tests know of the operators of weft.ops.families.ctc."""

import itertools

import numpy as np
from tests.ops.material import material

from weft.base.errors import ShapeError
from weft.ops.families.ctc import CtcLoss
from weft.ops.samples import Array, Sample, arrays


def integers(*values):
    return Array(np.shape(values), dtype="int64", values=values)


@material(CtcLoss)
class _:
    def reference(self, log_probs, targets, input_lengths, target_lengths):
        """By all paths, one after the other."""
        losses = []
        for n, (count, length) in enumerate(zip(input_lengths, target_lengths, strict=True)):
            want = [int(label) for label in targets[n, :length]]
            total = 0.0
            for path in itertools.product(range(log_probs.shape[2]), repeat=int(count)):
                read = [k for k, _ in itertools.groupby(path) if k != self.blank]
                if read == want:
                    total += np.exp(sum(log_probs[t, n, k] for t, k in enumerate(path)))
            loss = -np.log(total) if total else 0.0 if self.zero_infinity else np.inf
            losses.append(loss / max(length, 1) if self.reduction == "mean" else loss)
        losses = np.array(losses, dtype=np.float64)
        return losses if self.reduction == "none" else getattr(np, self.reduction)(losses)

    def torch_reference(self, torch, log_probs, targets, input_lengths, target_lengths):
        if log_probs.requires_grad:  # PyTorch's gradient is that of logits before a log_softmax
            return NotImplemented
        return torch.nn.functional.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )

    @classmethod
    def samples(cls):
        x = Array((4, 3, 3), low=-3.0, high=-0.1)
        targets, lengths = integers((1, 1), (2, 1), (2, 7)), integers(2, 2, 1)
        for reduction in ("none", "sum", "mean"):
            yield Sample(
                x, targets, integers(4, 3, 2), lengths, reduction=reduction, gradient=reduction != "mean"
            )
        yield Sample(x, targets, integers(2, 3, 0), lengths, zero_infinity=True)
        yield Sample(x, targets, integers(2, 4, 3), integers(2, 2, 0), reduction="none", gradient=False)
        yield Sample(x, integers((0, 1), (1, 0), (0, 0)), integers(4, 4, 4), lengths, blank=2)

    @classmethod
    def errors(cls):
        x, targets, lengths = arrays((4, 2, 3)), integers((1, 2), (1, 1)), integers(2, 2)
        yield ShapeError, "log_probs needs 3 dimensions", Sample(arrays((4, 3)), targets, lengths, lengths)
        yield ShapeError, "must have the shape (2,)", Sample(x, targets, integers(1), lengths)
        yield ShapeError, "blank 3 is not a class", Sample(x, targets, lengths, lengths, blank=3)
