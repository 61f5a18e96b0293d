"""What tests know of the operators of weft.graph.own_gradient."""

from tests.ops.material import material

from weft.graph.own_gradient import NoOwnGradient, OwnGradient


@material(OwnGradient)
class _:
    def reference(self, *x):
        return x[: self.count]


@material(NoOwnGradient)
class _:
    def reference(self, *x):
        return x[: self.count]
