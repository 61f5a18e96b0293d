"""What tests know of the operators of weft.ops.families.optimizer."""

from tests.ops.material import material

from weft.base.errors import DTypeError, ShapeError
from weft.ops.families.optimizer import (
    AdamLike,
    AdamUpdate,
    CountUpdate,
    NadamProductUpdate,
    RmspropUpdate,
    SgdUpdate,
    SignumUpdate,
    Update,
    _Narrowed,
)
from weft.ops.samples import Sample, arrays


@material(Update)
class _:
    def reference(self, *operands):
        numbers = {a.name: getattr(self, a.name) for a in self.attributes if a.runtime}
        numbers |= dict(zip(self.scalars, operands, strict=False))
        made = {}
        for inputs, outputs in self.groups(len(operands)):
            found = self.new_values(_Narrowed(numbers, None), *(operands[k] for k in inputs))
            made |= dict(zip(outputs, found, strict=True))
        return tuple(made[k] for k in sorted(made))

    @classmethod
    def samples(cls):
        shapes = ((2, 3), (4,), (0,))
        numbers = {"lr": 0.125, "step": 3, "product": 0.25}
        for attributes in cls.variants():
            tensors = [arrays(s, low=0.1) for _ in cls(**attributes).roles() for s in shapes]
            given = [numbers[name] for name in cls.scalars]
            yield Sample(*given, *tensors, gradient=False, **attributes)
            held = [arrays((), values=x) for x in given]
            yield Sample(*held, *tensors, gradient=False, **attributes)

    @classmethod
    def variants(cls):
        """Attributes to be tested."""
        yield {}
        yield {"maximize": True}

    @classmethod
    def errors(cls):
        x = arrays((2,))
        count, numbers = len(cls().roles()), (1,) * len(cls.scalars)
        yield ShapeError, "shapes differ", Sample(*numbers, x, arrays((3,)), *(x,) * (count - 2))
        yield ValueError, "then as many of each", Sample(*numbers, *(x,) * (count + 1))
        yield ShapeError, "must be a number or a 0-d tensor", Sample(*(x,) * len(numbers), *(x,) * count)


@material(CountUpdate)
class _:
    def reference(self, step, witness):
        return step + 1

    @classmethod
    def samples(cls):
        for dtype in ("float32", "bfloat16", "float64"):
            for shape in ((), (3, 2)):
                yield Sample(arrays((), values=3, dtype="int64"), arrays(shape, dtype=dtype), gradient=False)

    @classmethod
    def errors(cls):
        step = arrays((), values=3, dtype="int64")
        yield (
            ShapeError,
            "step needs 0 dimensions, [], it has 1",
            Sample(arrays((2,), dtype="int64"), arrays(())),
        )
        yield DTypeError, "takes floating-point types as witness", Sample(step, step)


@material(SgdUpdate)
class _:
    @classmethod
    def variants(cls):
        yield {"momentum": 0.9, "weight_decay": 0.01}
        yield {"momentum": 0.9, "dampening": 0.5, "nesterov": True}
        yield {"with_momentum": False, "weight_decay": 0.01}


@material(NadamProductUpdate)
class _:
    def reference(self, product, step, witness):
        return product * self.beta1 * (1 - 0.5 * 0.96 ** (step * self.momentum_decay))

    @classmethod
    def samples(cls):
        product, step = arrays((), values=0.25, dtype="float64"), arrays((), values=3, dtype="int64")
        for dtype in ("float32", "bfloat16", "float64"):
            for shape in ((), (3, 2)):
                settings = {"beta1": 0.75, "momentum_decay": 2.0, "gradient": False}
                yield Sample(product, step, arrays(shape, dtype=dtype), **settings)

    @classmethod
    def errors(cls):
        product, step = arrays((), values=0.25, dtype="float64"), arrays((), values=3, dtype="int64")
        yield ShapeError, "step needs 0 dimensions", Sample(product, arrays((2,), dtype="int64"), product)
        yield DTypeError, "takes float64 as product", Sample(step, step, product)


@material(AdamLike)
class _:
    @classmethod
    def variants(cls):
        yield {"weight_decay": 0.01, "maximize": True}
        yield {"weight_decay": 0.01, "decoupled": True}


@material(AdamUpdate)
class _:
    @classmethod
    def variants(cls):
        yield {"weight_decay": 0.01}
        yield {"weight_decay": 0.01, "decoupled": True}
        yield {"amsgrad": True}


@material(RmspropUpdate)
class _:
    @classmethod
    def variants(cls):
        yield {"weight_decay": 0.01}
        yield {"centered": True}


@material(SignumUpdate)
class _:
    @classmethod
    def variants(cls):
        yield {"weight_decay": 0.01}
        yield {"weight_decay": 0.01, "decoupled": True}
