"""Every operator says what it means in others, but for a short list of primitives."""

import pytest

from weft.ops import registry
from weft.ops.op import Op, op

# What has no decomposition: the class that declares it, with its subclasses.
PRIMITIVES = {
    # one scalar function at each element, or at each step of an optimizer
    "Pointwise",
    "PointwiseGradient",
    "Update",
    # one number for each row
    "Reduction",
    "CountRatio",
    "DivideByCount",
    # views, and what is put together from them
    "Viewing",
    "ViewGradient",
    "BroadcastLike",
    "AsStrided",
    "PutStrided",
    "Assemble",
    "Spread",
    "BasicPut",
    # arrays made of nothing
    "Creation",
    "FilledLike",
    "PlacesLike",
    # elements found by their values or by indices
    "Sorting",
    "Topk",
    "Take",
    "CheckIndices",
    "CrossEntropyRows",
    "CheckLabels",
    # what LAPACK computes
    "Factorization",
    # random numbers
    "Random",
    "Dropout",
    "Drawn",
    "Position",
    # control flow, other devices, Python
    "Control",
    "Batched",
    "ToDevice",
    "PythonOp",
    "OfBits",
    "UniformLike",
}


def declaring(cls):
    return next(base for base in cls.__mro__ if "primitive" in vars(base))


def operators():
    import weft.distributed.collective
    import weft.executor.control
    import weft.transform.batched  # noqa: F401

    return [registry.get(name) for name in registry.names() if registry.is_builtin(name)] + [
        cls for cls in registry._classes.values() if cls.__module__.startswith("weft.")
    ]


def test_primitives_are_those_of_the_list():
    found = {declaring(cls).__name__ for cls in operators() if cls.primitive}
    assert found == PRIMITIVES
    assert len(PRIMITIVES) <= 34


def test_all_others_decompose():
    assert not [cls.__name__ for cls in operators() if not cls.primitive and cls.decompose is Op.decompose]


def test_an_operator_without_a_meaning_is_refused():
    with pytest.raises(
        TypeError, match=r"operator 'meaningless': class Meaningless has no decompose; give its"
    ):

        @op
        class Meaningless(Op):
            def infer(self, x):
                return x.like()

    assert registry.find("meaningless") is None


def test_what_can_be_composed_is():
    """These have loops that win against their composition (docs/design/kernels.md), and mean the composition."""
    for name in [
        "softmax",
        "log_softmax",
        "layer_norm",
        "rms_norm",
        "mean",
        "var",
        "std",
        "logsumexp",
        "vector_norm",
        "vecdot",
        "embedding",
        "tril",
    ]:
        assert registry.get(name).decompose is not Op.decompose, name
