"""What tests know of the operators of weft.ops.families.placement."""

from tests.ops.material import material

from weft.ops.families.placement import ToDevice
from weft.ops.samples import Sample, arrays


@material(ToDevice)
class _:
    def reference(self, x):
        return x

    def torch_reference(self, torch, x):
        return x

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), device="cpu:1", gradient=False)  # which is on another device than x
        yield Sample(arrays((2, 3)), device="cpu:0")
        yield Sample(arrays((3,), dtype="int32"), device="cpu:1")

    @classmethod
    def errors(cls):
        yield TypeError, "to_device: device must be given", Sample(arrays((2,)))
