"""Calls that would silently mean something else."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym

x = wf.tensor([0.0, 1.0, 2.0])


def test_powers_have_no_modulus():
    with pytest.raises(TypeError, match="pow"):
        pow(x, 2, 3)
    assert pow(x, 2).numpy().tolist() == [0, 1, 4]


@pytest.mark.parametrize("function", [wf.grad, wf.value_and_grad])
def test_an_argument_counts_once(function):
    with pytest.raises(ValueError, match=r"argnums names an argument twice: \(0, 0\)"):
        function(lambda a: a.sum(), argnums=(0, 0))


def test_asynchronous_functions_are_not_traced():
    async def function(x):
        return x * 2

    with pytest.raises(TypeError, match="function is asynchronous"):
        wf.trace(function)


def test_what_was_never_recorded_has_no_backward():
    w = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach(w)
    outside = (w * w).sum()
    for y in (outside, wf.tensor([1, 2]), [wf.ones(()), outside]):
        with gm, pytest.raises(ValueError, match="nothing of y was recorded"):
            gm.backward(y)
    assert w.grad is None
    with gm:  # one that is recorded is enough
        gm.backward([(w * w).sum(), wf.ones(())])
    assert w.grad.numpy().tolist() == [2, 4]


def test_extremes_of_empty_rows_of_booleans():
    for shape in ((0,), (2, 0)):
        empty = wf.zeros(shape, dtype="bool")
        assert not F.max(empty, axis=-1).any().item()
        assert F.min(empty, axis=-1).all().item()


def test_windows_that_end_before_the_image():
    image = wf.arange(24.0).reshape(1, 1, 4, 6)
    assert F.max_pool2d(image, 1, 3, ceil_mode=True).numpy().tolist() == [[[[0, 3], [18, 21]]]]
    assert F.avg_pool2d(image, 1, 3, ceil_mode=True).numpy().tolist() == [[[[0, 3], [18, 21]]]]


def test_output_padding_below_the_dilation():
    made = F.conv_transpose1d(wf.ones((1, 1, 3)), wf.ones((1, 1, 2)), output_padding=1, dilation=2)
    assert made.numpy().tolist() == [[[1, 1, 2, 1, 1, 0]]]


def test_shapes_of_cross_entropy_with_weights():
    loss = F.cross_entropy(sym.var("x"), sym.var("t"), sym.var("w"))
    assert loss.infer_shape(x=(4, 3), t=(4,), w=(3,)) == ([(4, 3), (4,), (3,)], [()], [])


def test_programs_take_other_strides(tmp_path):
    traced = wf.trace(lambda x: x * 2, strict=True)
    traced(wf.ones(3)), traced.export(tmp_path / "p")
    loaded = wf.load_program(tmp_path / "p")
    assert loaded(wf.arange(6.0)[::2]).numpy().tolist() == [0, 4, 8]
    assert loaded(np.arange(6, dtype="float32")[::-2]).numpy().tolist() == [10, 6, 2]


def test_shapes_of_simple_operators_know_attributes():
    @wf.simple_op(shape=lambda x, n: (n, *x))
    def several(x, *, n: int = 2, scale=1.0):
        return x * scale

    assert several(wf.ones(3)).shape == (2, 3)
    assert several(wf.ones(3), n=4, scale=3.0).sum().item() == 36
    assert wf.trace(lambda x: several(x, n=5), strict=True)(wf.ones(3)).shape == (5, 3)
    assert several(sym.var("x"), n=4).infer_shape(x=(3,))[1] == [(4, 3)]
    with pytest.raises(TypeError, match="n is given at run time; annotate it int"):

        @wf.simple_op(shape=lambda x, n=2: (n, *x))
        def late(x, *, n=2):
            return x * 1

    with pytest.raises(TypeError, match="k is not an attribute"):

        @wf.simple_op(shape=lambda x, k: (k, *x))
        def unknown(x, *, n: int = 2):
            return x * 1


def test_a_number_among_flattened_arrays_takes_their_type():
    x = wf.tensor([-2, -1], dtype="int32")
    for f in (lambda x: F.concat([1, x], axis=None), wf.trace(lambda x: F.concat([1, x], axis=None))):
        for _ in range(2):
            assert (f(x).tolist(), f(x).dtype) == ([1, -2, -1], wf.int32)
