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


def test_the_gradient_of_a_view_whose_own_gradient_lies_otherwise():
    """A backward plan that is but a view, made for the strides of the forward result, given transposed memory."""
    x = wf.zeros(6)
    c = wf.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    for view in (
        lambda x: F.reshape(x, (2, 3)),
        lambda x: x.reshape(2, 3),
        lambda x: F.flatten(x.reshape(2, 3, 1), 1),
    ):
        dx = wf.grad(lambda x, view=view: (F.permute_dims(view(x), (1, 0)) * c).sum())(x)
        assert dx.numpy().tolist() == [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]
