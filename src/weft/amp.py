"""Automatic mixed precision: products in a half type, sums and parameters in float32.

>>> import weft as wf
>>> x, w = wf.ones((2, 4)), wf.ones((3, 4))
>>> with wf.amp.autocast(dtype="bfloat16"):
...     y = wf.linear(x, w)
...     loss = wf.mean(y)
>>> y.dtype, loss.dtype
(bfloat16, float32)
"""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import ref

from weft import _core
from weft.arrays.creation import ones, tensor, zeros
from weft.base.dtype import DType, as_dtype, float32
from weft.base.name_hints import add_hints as _add_hints
from weft.gradients.gradient import no_grad
from weft.gradients.transformation import Transformation
from weft.ops import registry
from weft.ops.op import Op
from weft.recording.dependence import changed, depends_on, state_of

__all__ = ["FULL", "HALF", "GradScaler", "autocast"]

# Families of operators (Op.family). Products are what half types make fast, and kernels add them up in float32.
HALF = frozenset({"matrix", "convolution", "attention", "recurrent"})
# One number summarizes many elements here: a half type would keep three digits of it. Normalizations need no place:
# their kernels compute in float32 whatever x is, and parameters and statistics stay what they are.
FULL = frozenset({"reduction", "loss"})


class autocast(Transformation):  # its public name
    """Inside, float32 operands of products become `dtype`; half ones of reductions and losses become float32.

    dtype: "bfloat16" or "float16". enabled=False: nothing is converted, also inside of another one.
    Other operators take what comes, by the rules of promotion; float64 is never touched, nor are inputs that an
    operator writes. What a float32 tensor was converted to is kept as long as the tensor and the context last, and is
    made again after a write to it. Gradients have the types of what they belong to: those of weights are float32.
    Raises ValueError for another dtype.

    >>> import weft as wf
    >>> @wf.amp.autocast()
    ... def model(x, w):
    ...     return wf.relu(x @ w)
    >>> x, w = wf.ones((2, 3)), wf.ones((3, 3))
    >>> model(x, w).dtype, wf.grad(lambda w: wf.sum(model(x, w)))(w).dtype
    (bfloat16, float32)
    """

    kind: ClassVar[str] = "amp"
    only_one: ClassVar[bool] = True

    def __init__(self, dtype: DType | str = "bfloat16", enabled: bool = True) -> None:
        self.dtype, self.enabled = as_dtype(dtype), enabled
        if not _is_half(self.dtype):
            raise ValueError(f"autocast: dtype must be bfloat16 or float16, got {self.dtype}")
        self._conversions: dict[
            int, tuple[Any, Any, Any]
        ] = {}  # by id: the tensor, its state, what it became

    def emit(self, op: Op, args: tuple[Any, ...]) -> Any:
        types = [getattr(x, "dtype", None) for x in args]
        if not self.enabled or any(t is not None and t.is_floating and t.itemsize > 4 for t in types):
            return op(*args)
        target = self.dtype if op.family in HALF else float32 if op.family in FULL else None
        if target is None:
            return op(*args)
        written_inputs = op.writes_by_index(len(args))
        return op(
            *(
                self._convert(x, target)
                if t is not None and t.is_floating and t is not target and k not in written_inputs
                else x
                for k, (x, t) in enumerate(zip(args, types, strict=True))
            )
        )

    def trace_key(self) -> Any:
        return (type(self), self.dtype, self.enabled)

    def _convert(self, x: Any, dtype: DType) -> Any:
        cast = registry.function("cast")
        # What is written down has to show where its arrays come from.
        if type(x) is not _core.Tensor or dtype is float32 or _core.get_recorder() is not None:
            return cast(x, dtype=dtype)
        state = _core.state_of(x)
        entry = self._conversions.get(id(x))
        if entry is not None and entry[0]() is x and entry[1] == state:
            return entry[2]
        converted = cast(x, dtype=dtype)
        key, cache = id(x), self._conversions
        cache[key] = (ref(x, lambda _: cache.pop(key, None)), state, converted)
        return converted

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._conversions.clear()


def _is_half(dtype: DType) -> bool:
    return dtype.is_floating and dtype.itemsize == 2


class GradScaler:
    """Keeps gradients in float16 from vanishing: the loss is scaled up before backward, gradients down after it.

    init_scale: the first factor. A step whose gradients are not all finite is left out, and the factor becomes
    backoff_factor times as large; after growth_interval steps in a row that were not left out, growth_factor times.
    enabled=False: everything is passed on as it is, as is right for bfloat16, which has the range of float32.
    The factor and what was found live in tensors, so all of it may be in a traced function: there step() updates
    everything and keeps what was before where a gradient is not finite, and nothing waits. Outside, step() waits for
    the gradients. Raises ValueError for factors that do not grow or do not shrink.
    Source: Micikevicius et al. 2018, Mixed precision training; the interface is PyTorch's.

    >>> import weft as wf
    >>> import weft.optimizer as optim
    >>> w, x = wf.ones(2), wf.tensor([1., 2.])
    >>> manager, optimizer = wf.GradManager().attach([w]), optim.SGD([w], lr=0.5)
    >>> scaler = wf.amp.GradScaler(init_scale=1024.0)
    >>> with manager:
    ...     loss = wf.sum(w * x)
    ...     manager.backward(scaler.scale(loss))
    >>> scaler.step(optimizer), scaler.update()
    (True, None)
    >>> w, scaler.get_scale()
    (tensor([0.5, 0. ], dtype=float32, device=cpu:0), 1024.0)
    """

    _SETTINGS: ClassVar[tuple[str, ...]] = ("growth_factor", "backoff_factor", "growth_interval", "enabled")

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if not init_scale > 0 or not growth_factor > 1 or not 0 < backoff_factor < 1 or growth_interval < 1:
            raise ValueError(
                "GradScaler: init_scale must be positive, growth_factor above 1, backoff_factor between 0 and 1, "
                f"growth_interval at least 1; got {init_scale}, {growth_factor}, {backoff_factor}, {growth_interval}"
            )
        self.growth_factor, self.backoff_factor = growth_factor, backoff_factor
        self.growth_interval, self.enabled = growth_interval, enabled
        self._scale = tensor(float(init_scale), dtype="float64")
        self._finite_steps = zeros((), dtype="int64")  # steps in a row that were not left out
        # Since the last update: whether gradients were unscaled, and whether some were not finite.
        self._was_unscaled, self._has_nonfinite = zeros((), dtype="bool"), zeros((), dtype="bool")
        self._finite: dict[
            int, Any
        ] = {}  # by optimizer: those whose gradients are unscaled, and not yet used
        self._unscaled: set[int] = set()  # since update()
        self._stepped: set[int] = set()

    def get_scale(self) -> float:
        """The factor now, waited for; 1 if the scaler is not enabled."""
        return float(self._scale.item()) if self.enabled else 1.0

    def scale(self, loss: Any) -> Any:
        """The loss, or a list or tuple of them, times the factor. Of a 16-bit loss in float32, which has the range."""
        if isinstance(loss, list | tuple):
            return type(loss)(map(self.scale, loss))
        if not self.enabled:
            return loss
        wide = float32 if _is_half(loss.dtype) else loss.dtype
        return loss.astype(wide) * self._scale.to_device(loss.device).astype(wide)

    def unscale_(self, optimizer: Any) -> Any:
        """Divide the gradients of an optimizer's parameters by the factor; whether all are finite, a 0-d tensor.

        step() does it by itself; to be called before gradients are looked at or clipped. Gradients of parameters of
        16-bit types are divided in float32. Raises RuntimeError the second time before update().
        """
        if not self.enabled:
            return True
        if id(optimizer) in self._stepped:
            raise RuntimeError("GradScaler: unscale_ comes before step(), and once for each update()")
        if id(optimizer) in self._unscaled:
            raise RuntimeError(
                "GradScaler: unscale_ was called already for this optimizer since the last update()"
            )
        finite = None
        isfinite, all_ = registry.function("isfinite"), registry.function("all")
        with no_grad():
            inverse = 1.0 / self._scale
            for group in optimizer.param_groups:
                for p in group.params:
                    if (g := p.grad) is None:
                        continue
                    wide = g.astype("float32") if _is_half(g.dtype) else g
                    factor = inverse.to_device(g.device).astype(wide.dtype)
                    p.grad = (wide * factor).astype(g.dtype)  # not in place: it may be shared
                    good = all_(isfinite(p.grad)).to_device(self._scale.device)
                    finite = good if finite is None else finite & good
            finite = ones((), dtype="bool") if finite is None else finite
            self._was_unscaled[...] = True
            self._has_nonfinite[...] = self._has_nonfinite | ~finite
        self._finite[id(optimizer)] = finite
        self._unscaled.add(id(optimizer))
        return finite

    def step(self, optimizer: Any) -> Any:
        """optimizer.step() with unscaled gradients, unless one is infinite or NaN; whether it was done.

        In a traced function the answer is a 0-d tensor; else a bool, which is waited for. Raises RuntimeError the
        second time before update().
        """
        if not self.enabled:
            optimizer.step()
            return True
        if id(optimizer) in self._stepped:
            raise RuntimeError(
                "GradScaler: step was called already for this optimizer since the last update()"
            )
        if id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        finite = self._finite.pop(id(optimizer))
        self._stepped.add(id(optimizer))
        if _core.get_recorder() is not None:
            _step_where(finite, optimizer)
            return finite
        is_finite = bool(finite.item())
        if is_finite:
            optimizer.step()
        return is_finite

    def update(self, new_scale: float | None = None) -> None:
        """Adapt the factor to what the steps since the last update found, or set it."""
        depends_on(self)
        if not self.enabled:
            return
        where = registry.function("where")
        with no_grad():
            if new_scale is not None:
                if not new_scale > 0:
                    raise ValueError(f"GradScaler: new_scale must be positive, got {new_scale}")
                self._scale[...] = float(new_scale)
                self._finite_steps[...] = 0
            else:
                good = self._finite_steps + 1
                grows = good >= self.growth_interval
                factor = where(
                    self._has_nonfinite, self.backoff_factor, where(grows, self.growth_factor, 1.0)
                )
                self._scale[...] = where(
                    self._was_unscaled, self._scale * factor.astype("float64"), self._scale
                )
                steps = where(self._has_nonfinite | grows, good * 0, good)
                self._finite_steps[...] = where(self._was_unscaled, steps, self._finite_steps)
            self._was_unscaled[...] = False
            self._has_nonfinite[...] = False
        self._finite.clear()
        self._unscaled.clear()
        self._stepped.clear()

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name in self._SETTINGS:
            changed()

    def __weft_state__(self) -> Any:
        return state_of([getattr(self, name) for name in self._SETTINGS])

    def state_dict(self) -> dict[str, Any]:
        """What training goes on from, by PyTorch's names. Waits for the steps.

        scale: the factor; growth_tracker: how many steps in a row were good; and the three numbers of the constructor.
        """
        return {
            "scale": float(self._scale.item()),
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "growth_tracker": int(self._finite_steps.item()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state. Raises ValueError for one without "scale" and "growth_tracker"; other numbers stay."""
        if not {"scale", "growth_tracker"} <= state.keys():
            raise ValueError(
                f"GradScaler: a state has scale and growth_tracker, this one {', '.join(map(str, state))}"
            )
        for name in ("growth_factor", "backoff_factor", "growth_interval"):
            setattr(self, name, state.get(name, getattr(self, name)))
        self._scale[...], self._finite_steps[...] = float(state["scale"]), int(state["growth_tracker"])


def _step_where(condition: Any, optimizer: Any) -> None:
    """optimizer.step() in a program: what it has written keeps its former content where the condition is False."""
    where = registry.function("where")
    with no_grad():
        step_groups = [step_group for group in optimizer.param_groups for step_group in group.step_groups]
        variables = [
            x
            for c in step_groups
            for x in (*c.parameters, *(y for of in c.state.values() for y in of), c.step)
        ]
        before = [x * 1 for x in variables]  # no copy: in a program the product is what x was
        optimizer.step()
        for x, previous in zip(variables, before, strict=True):
            x[...] = where(condition.to_device(x.device), x, previous)


_add_hints(globals())
