"""What tests know of the operators of weft.transform.batched."""

import numpy as np
from tests.ops.material import material

from weft.base.dtype import as_dtype
from weft.graph.graph import reference_of
from weft.ops.node import Node, input_value
from weft.ops.types import TensorType
from weft.transform.batched import Batched


@material(Batched)
class _:
    def reference(self, *x):
        of = self.of
        types = self.examples([None if a is None else TensorType(np.shape(a), as_dtype(a.dtype)) for a in x])
        values = [None if t is None else input_value(t) for t in types]
        inferred = of.infer(*types)
        node = Node(of, values, (inferred,) if isinstance(inferred, TensorType) else tuple(inferred))
        made = [
            reference_of(
                of,
                node,
                [
                    a if a is None or rank < 0 else np.reshape(a[k], t.shape if t is not None else ())
                    for a, rank, t in zip(x, self.ranks, types, strict=True)
                ],
            )
            for k in range(self.size)
        ]
        return tuple(np.stack(each) for each in zip(*made, strict=True))
