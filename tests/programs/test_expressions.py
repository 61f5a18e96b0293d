"""Programs of weft's functions alone: as symbols, and their gradients eagerly, traced and by executors."""

import pytest

import weft as wf
import weft.symbol as sym

from .programs import PROGRAMS
from .running import OTHER_SIZE, SIZE, assert_same_array

EXPRESSIONS = [name for name, build in PROGRAMS.items() if build().pure]


def arguments_of(case, size):
    wf.random.seed(size)
    return case.arguments(size)


def listed(results):
    return results if isinstance(results, tuple) else (results,)


def is_float(x):
    return x.dtype.kind == "float"


def gradients_of(function):
    """The gradients of the sum of all that a function gives, with respect to all it can be derived by."""

    def run(*args):
        def loss(*args):
            return sum(y.astype("float32").sum() for y in listed(function(*args)) if is_float(y))

        return wf.grad(loss, argnums=tuple(k for k, x in enumerate(args) if is_float(x)))(*args)

    return run


def has_gradients(case):
    args = arguments_of(case, SIZE)
    return any(map(is_float, args)) and any(map(is_float, listed(case.run(*args))))


DIFFERENTIABLE = [name for name in EXPRESSIONS if has_gradients(PROGRAMS[name]())]


def symbol_of(case, count):
    variables = [sym.var(f"a{k}") for k in range(count)]
    return sym.group(list(listed(case.run(*variables))))


def bound(case, args, grads):
    symbol = symbol_of(case, len(args))
    given = {f"a{k}": x for k, x in enumerate(args)}
    arguments, states = symbol.list_arguments(), symbol.list_auxiliary_states()
    return symbol.bind(
        args={name: given[name] for name in arguments},
        args_grad={name: dx for name, dx in grads.items() if name in arguments},
        aux_states={name: given[name] for name in states},
    )


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_as_a_symbol(name):
    case = PROGRAMS[name]()
    for size in (SIZE, OTHER_SIZE):
        args = arguments_of(case, size)
        exe = bound(case, args, {})
        for _ in range(2):
            for y, wanted in zip(exe.forward(), listed(case.run(*args)), strict=True):
                assert_same_array(y, wanted)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_as_a_symbol(name):
    case = PROGRAMS[name]()
    args = arguments_of(case, SIZE)
    floats = [k for k, x in enumerate(args) if is_float(x)]
    grads = {f"a{k}": wf.zeros_like(args[k]) for k in floats}
    exe = bound(case, args, grads)
    exe.forward(is_train=True)
    exe.backward()
    wanted = gradients_of(case.run)(*args)
    for k, dx in zip(floats, listed(wanted), strict=True):
        if f"a{k}" in exe.arg_dict:
            assert_same_array(grads[f"a{k}"], dx)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_traced(name, lazy):
    case = PROGRAMS[name]()
    eager = gradients_of(case.run)
    traced = wf.trace(eager, strict=True, lazy=lazy)
    for size in (SIZE, SIZE, OTHER_SIZE, OTHER_SIZE):
        args = arguments_of(case, size)
        for dx, wanted in zip(listed(traced(*args)), listed(eager(*args)), strict=True):
            assert_same_array(dx, wanted)
    assert len(traced.programs) == 2


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_lazy(name):
    case = PROGRAMS[name]()
    args = arguments_of(case, SIZE)
    with wf.lazy():
        found = gradients_of(case.run)(*args)
    for dx, wanted in zip(listed(found), listed(gradients_of(case.run)(*args)), strict=True):
        assert_same_array(dx, wanted)
