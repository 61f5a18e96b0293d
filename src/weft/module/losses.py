"""Losses and distances as layers: each is one function with the attributes that the layer was made with."""

from __future__ import annotations

from typing import Any

from weft import functional as F
from weft.arrays.tensor import Tensor
from weft.module.functions import OperatorLayer

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
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "PairwiseDistance",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
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
