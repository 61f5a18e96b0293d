"""Cases of gradients that once went wrong."""

import pytest

import weft as wf
import weft.functional as F


def test_gradients_add_up_in_tensors_of_several_elements():
    x = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach([x])
    for _ in range(2):
        with gm:
            gm.backward(x * x)
    assert x.grad.numpy().tolist() == [4.0, 8.0]


def test_a_gradient_goes_with_its_tensor():
    from weft.imperative import gradient

    before = len(gradient._gradients)
    x = wf.tensor([1.0, 2.0])
    x.grad = wf.ones(2)
    assert len(gradient._gradients) == before + 1
    del x
    assert len(gradient._gradients) == before


@pytest.mark.parametrize("name", ["all", "any", "argmax", "argsort", "count_nonzero"])
def test_what_has_no_gradient_may_be_called_while_recording(name):
    x = wf.tensor([1.0, 2.0])
    gm = wf.GradManager().attach([x])
    with gm:
        assert not getattr(F, name)(x).requires_grad
        gm.backward(x * 2)
    assert x.grad.numpy().tolist() == [2.0, 2.0]
