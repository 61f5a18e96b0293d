"""Losses and distances as layers: each is one function with the attributes that the layer was made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType
from weft.module.functions import OperatorLayer
from weft.module.linear import Linear
from weft.module.module import Module
from weft.ops import registry

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CosineSimilarity",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HingeLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "LinearCrossEntropyLoss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "PairwiseDistance",
    "PoissonNLLLoss",
    "SDMLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class _Weighted(OperatorLayer):
    """Base: weight, an array of factors or None, is a buffer, given to the function by its name."""

    weight: Tensor | None

    def __init__(self, *, weight: Tensor | None = None, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._set_factors("weight", weight)

    def _set_factors(self, name: str, factors: Tensor | None) -> None:
        if factors is None:
            setattr(self, name, None)
        else:
            self.register_buffer(name, factors)

    def forward(self, *inputs: Tensor) -> Any:
        attributes = {name: getattr(self, name) for name in self._operator_attributes}
        return getattr(F, self.operator)(*inputs, weight=self.weight, **attributes)


class L1Loss(OperatorLayer, operator="l1_loss"):
    """The absolute error. See weft.functional.l1_loss."""


class MSELoss(OperatorLayer, operator="mse_loss"):
    """The squared error. See weft.functional.mse_loss.

    >>> import weft as wf
    >>> MSELoss()(wf.tensor([1., 3.]), wf.tensor([1., 1.])).item()
    2.0
    """


class SmoothL1Loss(OperatorLayer, operator="smooth_l1_loss"):
    """The squared error near 0, the absolute one elsewhere. See weft.functional.smooth_l1_loss."""


class HuberLoss(OperatorLayer, operator="huber_loss"):
    """The squared error near 0, delta times the absolute one elsewhere. See weft.functional.huber_loss."""


class KLDivLoss(OperatorLayer, operator="kl_div"):
    """What logarithms of probabilities lack of target probabilities. See weft.functional.kl_div."""


class SoftMarginLoss(OperatorLayer, operator="soft_margin_loss"):
    """The logistic loss of targets 1 and -1. See weft.functional.soft_margin_loss."""


class HingeLoss(OperatorLayer, operator="hinge_loss"):
    """The loss of support vector machines. See weft.functional.hinge_loss."""


class HingeEmbeddingLoss(OperatorLayer, operator="hinge_embedding_loss"):
    """Of distances of pairs that are alike or not. See weft.functional.hinge_embedding_loss."""


class MarginRankingLoss(OperatorLayer, operator="margin_ranking_loss"):
    """forward(x1, x2, target): which of two scores should be greater. See weft.functional.margin_ranking_loss."""


class PoissonNLLLoss(OperatorLayer, operator="poisson_nll_loss"):
    """What Poisson distributions lack of counts. See weft.functional.poisson_nll_loss."""


class GaussianNLLLoss(OperatorLayer, operator="gaussian_nll_loss"):
    """forward(x, target, var): what normal distributions lack of targets. See weft.functional.gaussian_nll_loss."""


class CosineEmbeddingLoss(OperatorLayer, operator="cosine_embedding_loss"):
    """forward(x1, x2, target): the cosine of pairs, alike or not. See weft.functional.cosine_embedding_loss."""


class TripletMarginLoss(OperatorLayer, operator="triplet_margin_loss"):
    """forward(anchor, positive, negative): a margin between two distances. See weft.functional.triplet_margin_loss."""


class TripletMarginWithDistanceLoss(Module):
    """forward(anchor, positive, negative): a margin between distances of any kind.

    distance: a function of two arrays, or a module, whose parameters are then this one's, too. See
    weft.functional.triplet_margin_with_distance_loss.

    >>> import weft as wf
    >>> loss = TripletMarginWithDistanceLoss(lambda a, b: abs(a - b).sum(axis=-1), margin=2.0)
    >>> loss(wf.zeros((1, 2)), wf.zeros((1, 2)), wf.ones((1, 2))).item()
    0.0
    """

    repr_attributes = ("margin", "swap", "reduction")

    def __init__(
        self,
        distance: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        self.distance, self.margin, self.swap, self.reduction = distance, margin, swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Any:
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, self.distance, self.margin, self.swap, self.reduction
        )


class SDMLLoss(OperatorLayer, operator="sdml_loss"):
    """forward(x1, x2): how little rows pick their own among all. See weft.functional.sdml_loss."""


class MultiLabelMarginLoss(OperatorLayer, operator="multilabel_margin_loss"):
    """A margin between the classes of a row and the others. See weft.functional.multilabel_margin_loss."""


class CTCLoss(OperatorLayer, operator="ctc_loss"):
    """forward(log_probs, targets, input_lengths, target_lengths). See weft.functional.ctc_loss."""


class CosineSimilarity(OperatorLayer, operator="cosine_similarity"):
    """forward(x1, x2): the cosine of the angle between them. See weft.functional.cosine_similarity."""


class PairwiseDistance(OperatorLayer, operator="pairwise_distance"):
    """forward(x1, x2): the norm of their difference. See weft.functional.pairwise_distance."""


class BCELoss(_Weighted, operator="binary_cross_entropy"):
    """What probabilities lack of targets. See weft.functional.binary_cross_entropy."""


class CrossEntropyLoss(_Weighted, operator="cross_entropy"):
    """What the softmax of logits lacks of classes. See weft.functional.cross_entropy.

    >>> import weft as wf
    >>> CrossEntropyLoss(weight=wf.tensor([1., 3.]), reduction="sum")(wf.zeros((1, 2)), wf.tensor([1])).item()
    2.07944...
    """


class LinearCrossEntropyLoss(Module):
    """Linear and CrossEntropyLoss in one, forward(x, target), without the logits of all rows in memory.

    linear: the layer, of x [..., in_features] and one result for each class; weight: factors of classes, a buffer, or
    None. See weft.functional.linear_cross_entropy.

    >>> import weft as wf
    >>> from weft.module import Linear
    >>> loss = LinearCrossEntropyLoss(4, 10, chunk_rows=2)
    >>> loss(wf.zeros((3, 4)), wf.tensor([1, 2, 3])).shape, loss.linear.weight.shape
    ((), (10, 4))
    """

    repr_attributes = ("reduction", "ignore_index", "label_smoothing", "chunk_rows")
    weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        classes: int,
        bias: bool = True,
        *,
        weight: Tensor | None = None,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        chunk_rows: int | None = None,
        dtype: DType | str = "float32",
        device: Device | str | None = None,
    ) -> None:
        self.linear = Linear(in_features, classes, bias, dtype=dtype, device=device)
        self.reduction, self.ignore_index = reduction, ignore_index
        self.label_smoothing, self.chunk_rows = label_smoothing, chunk_rows
        registry.get("linear_cross_entropy")(**self._options())  # raises what the function would raise
        if weight is None:
            self.weight = None
        else:
            self.register_buffer("weight", weight)

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.repr_attributes}

    def forward(self, x: Tensor, target: Tensor) -> Any:
        layer = self.linear
        return F.linear_cross_entropy(x, layer.weight, target, layer.bias, self.weight, **self._options())


class NLLLoss(_Weighted, operator="nll_loss"):
    """The target's part of logarithms of probabilities. See weft.functional.nll_loss."""


class MultiMarginLoss(_Weighted, operator="multi_margin_loss"):
    """A margin between the class of a row and the others. See weft.functional.multi_margin_loss."""


class MultiLabelSoftMarginLoss(_Weighted, operator="multilabel_soft_margin_loss"):
    """The mean over classes of the loss of logits. See weft.functional.multilabel_soft_margin_loss."""


class BCEWithLogitsLoss(_Weighted, operator="binary_cross_entropy_with_logits"):
    """What the sigmoid of logits lacks of targets. See weft.functional.binary_cross_entropy_with_logits."""

    pos_weight: Tensor | None

    def __init__(
        self, *, weight: Tensor | None = None, pos_weight: Tensor | None = None, **attributes: Any
    ) -> None:
        super().__init__(weight=weight, **attributes)
        self._set_factors("pos_weight", pos_weight)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        attributes = {name: getattr(self, name) for name in self._operator_attributes}
        return F.binary_cross_entropy_with_logits(x, target, self.weight, self.pos_weight, **attributes)
