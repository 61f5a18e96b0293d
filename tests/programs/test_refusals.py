"""What cannot be written down: strict traces say where, others keep running as Python."""

import inspect
import warnings
from pathlib import Path

import pytest

import weft as wf
import weft.module as M
import weft.optimizer as optim
from weft.base.errors import GraphError


def as_float(x):
    return x * float(x.sum())


def as_item(x):
    return x * x.sum().item()


def as_array(x):
    return wf.tensor(x.numpy() * 2)


def as_condition(x):
    if x.sum() > 0:
        x = x * 2
    return x


def as_text(x):
    return x, str(x)


def as_index(x):
    return [x[k] for k in range(int(x.sum()))]


def by_mask(x):
    return x[x > 0]


READERS = [as_float, as_item, as_array, as_condition, as_text, as_index, by_mask]


def place_of(reader):
    return f"{Path(__file__)}:{inspect.getsourcelines(reader)[1] + 1}"


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("reader", READERS)
def test_strict_traces_name_the_line(reader, lazy):
    traced = wf.trace(reader, strict=True, lazy=lazy)
    x = wf.ones(3)
    for _ in range(2):
        with pytest.raises(GraphError, match=reader.__name__) as caught:
            traced(x)
        assert place_of(reader) in str(caught.value)
        assert not traced.programs
    assert (x + 1).sum().item() == 6  # and all goes on
    assert wf.trace(lambda x: x * 2, strict=True)(x).sum().item() == 6


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("reader", READERS)
def test_others_keep_running_as_python(reader, lazy):
    traced = wf.trace(reader, lazy=lazy)
    x = wf.ones(3)
    with pytest.warns(wf.TraceWarning, match=reader.__name__) as caught:
        traced(x)
    assert [f"{warning.filename}:{warning.lineno}" for warning in caught] == [place_of(reader)]
    wf.random.seed(0)
    found = traced(x)
    wf.random.seed(0)
    assert str(found) == str(reader(x))
    assert not traced.programs


def test_what_was_done_before_is_done():
    """A function that ends up as Python has run once, not twice."""
    for lazy in (False, True):
        count = wf.zeros(())

        def run(x, count=count):
            count += 1
            return float(x.sum()), x * count

        traced = wf.trace(run, lazy=lazy)
        with pytest.warns(wf.TraceWarning):
            assert traced(wf.ones(3))[0] == 3.0
        assert count.item() == 1.0
        traced(wf.ones(3))
        assert count.item() == 2.0


def test_values_of_constants_may_be_looked_at():
    """They are the same at each call."""
    traced = wf.trace(lambda x: x * wf.tensor([2.0, 3.0])[1].item(), strict=True)
    for _ in range(2):
        assert traced(wf.ones(2)).numpy().tolist() == [3.0, 3.0]
    assert len(traced.programs) == 1


@pytest.mark.parametrize("lazy", [False, True])
def test_arguments_that_share_memory_in_part(lazy):
    x = wf.arange(6).astype("float32")
    traced = wf.trace(lambda a, b: a + b, strict=True, lazy=lazy)
    with pytest.raises(GraphError, match="share memory in part"):
        traced(x[:4], x[2:])
    assert traced(x[:3], x[3:]).numpy().tolist() == [3.0, 5.0, 7.0]


def test_an_argument_that_is_also_found_elsewhere():
    w = wf.zeros(3)

    def run(x):
        w[...] = w + 1
        return x * 1

    traced = wf.trace(run, strict=True)
    with pytest.raises(GraphError, match="shares memory with an array found elsewhere"):
        traced(w)
    assert traced(wf.ones(3)).sum().item() == 3.0
    with pytest.raises(GraphError, match="shares memory with an array found elsewhere"):
        traced(w)  # not by the program for other arguments


def test_each_call_makes_arrays_that_stay():
    kept = []
    traced = wf.trace(lambda x: kept.append(x * 2), strict=True)
    traced(wf.ones(3)), traced(wf.ones(3))
    with pytest.raises(GraphError, match="each call makes arrays that are kept elsewhere"):
        traced(wf.ones(3))
    kept.clear()
    traced = wf.trace(lambda x: kept.append(x * 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            traced(wf.ones(3))
    assert len(caught) == 1
    assert len(kept) == 5


class Sum(M.Module):
    def __init__(self):
        self.total = wf.zeros(2)

    def forward(self, x):
        self.total = self.total * 0.5 + x
        return self.total


class Count(M.Module):
    def __init__(self):
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Schedule:
    def __init__(self):
        self.weight = wf.ones(2)
        self.optimizer = optim.SGD([self.weight], lr=1.0)
        self.manager = wf.GradManager().attach([self.weight])
        self.schedule = optim.lr_scheduler.ExponentialLR(self.optimizer, gamma=0.5)

    def __call__(self, x):
        with self.manager:
            self.manager.backward((self.weight * x).sum())
        self.optimizer.step().clear_grad()
        self.schedule.step()
        return self.weight * 1


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("thing", "fact"),
    [
        (Sum, "attributes, on which it depends, of Sum"),
        (Count, "of Count"),
        (Schedule, "a learning rate was set"),
    ],
)
def test_each_call_changes_what_it_depends_on(thing, fact, lazy):
    eager, plain, strict = thing(), thing(), thing()
    traced = wf.trace(lambda x: plain(x), lazy=lazy)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(6):
            assert traced(wf.ones(2)).numpy().tolist() == eager(wf.ones(2)).numpy().tolist()
    assert [fact in str(w.message) for w in caught] == [True]
    traced = wf.trace(lambda x: strict(x), strict=True, lazy=lazy)
    with pytest.raises(GraphError, match=fact):
        list(map(traced, [wf.ones(2)] * 6))


def test_arguments_of_trace():
    with pytest.raises(TypeError, match="takes a function, got int"):
        wf.trace(3)
    with pytest.raises(ValueError, match="max_entries must be at least 1, got 0"):
        wf.trace(abs, max_entries=0)


def test_results_that_are_used_up():
    def generator(x):
        yield x * 2
        yield x * 3

    for function in (generator, lambda x: iter([x * 2, x * 3])):
        with pytest.raises(GraphError, match="the result is an iterator"):
            wf.trace(function, strict=True)(wf.ones(()))
        traced = wf.trace(function)
        with pytest.warns(match="the result is an iterator"):
            traced(wf.ones(()))
        for _ in range(2):
            assert [y.item() for y in traced(wf.ones(()))] == [2.0, 3.0]


def test_old_programs_are_dropped():
    traced = wf.trace(lambda x, n: x * n, max_entries=2)
    x = wf.ones(3)
    traced(x, 0), traced(x, 1)
    with pytest.warns(wf.TraceWarning, match=r"traced 3 times.*max_entries=2") as caught:
        traced(x, 2)
    assert caught[0].filename == __file__
    traced(x, 3)  # said once only
    assert len(traced.programs) == 2
    assert [traced(x, n).sum().item() for n in (2, 3)] == [6.0, 9.0]


def test_a_function_that_is_traced_again_and_again_runs_as_python():
    """After 16 programs that went before they ran again; a warning has the reason, and it is given once."""
    calls = []

    def double(x, n):
        calls.append(n)
        return x * 2 + n

    traced = wf.trace(double, max_entries=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [traced(wf.ones(2 + k), k).sum().item() for k in range(30)]
    assert found == [(2 + k) ** 2 for k in range(30)]
    first, last = (str(each.message) for each in caught)
    here = wf.as_device(None)
    assert f"x was f32[3]@{here} and is f32[4]@{here}" in first
    assert 'dynamic={"x": 0}' in first
    assert "last 16 programs" in last
    assert f"x was f32[18]@{here} and is f32[19]@{here}" in last
    assert {each.filename for each in caught} == {__file__}
    assert len(traced.programs) == 2
    before = len(calls)
    assert [traced(wf.ones(19), 17)[0].item() for _ in range(3)] == [19.0] * 3  # a program that was kept
    assert len(calls) == before
    assert [traced(wf.ones(3), 1)[0].item() for _ in range(3)] == [3.0] * 3
    assert len(calls) == before + 3


def test_programs_that_run_again_are_made_for_ever():
    traced = wf.trace(lambda x: x * 2, max_entries=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(2, 40):
            traced(wf.ones(n)), traced(wf.ones(n))
    assert ["traced 3 times" in str(each.message) for each in caught] == [True]
    assert len(traced.programs) == 2
    assert traced.programs[-1].example[0][0].shape == (39,)


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([(3, "a"), (3, "b")], "option was 'a' and is 'b'; floats and tensors make no new program"),
        ([(3, 2), (3, 3)], "option was 2 and is 3"),
        ([(3, {"k": [1, 2]}), (3, {"k": [1, 5]})], "option, leaf 1, was 2 and is 5"),
        ([((2, 3), 1), ((4, 5), 1)], r'dynamic={"x": \(0, 1\)}'),
        ([(3, 1), ((3, 1), 1)], "arrays of another type, rank or layout"),
    ],
)
def test_reasons_of_traces(calls, reason):
    traced = wf.trace(lambda x, option: x * 2, max_entries=1)
    (shape, option), again = calls
    traced(wf.ones(shape), option)
    with pytest.warns(wf.TraceWarning, match=reason):
        traced(wf.ones(again[0]), again[1])


def test_dynamic_axes_that_are_traced_again_and_again():
    traced = wf.trace(lambda x, n: x * n, dynamic={"x": 0}, max_entries=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [traced(wf.ones(n), n)[0].item() for n in range(2, 25)]
    assert found == list(range(2, 25))
    first, last = (str(each.message) for each in caught)
    assert "traced 2 times" in first
    assert "n was 2 and is 3" in first
    assert "last 16 programs" in last
    assert len(traced.programs) == 1


def test_late_errors_of_programs():
    """They name the function's line and leave everything usable."""

    @wf.trace(strict=True)
    def pick(x, i):
        y = x * 2
        return y[i] + 1

    x, good, bad = wf.ones(3), wf.tensor([0, 1]), wf.tensor([0, 7])
    pick(x, good), pick(x, good)
    line = inspect.getsourcelines(pick.function)[1] + 3
    with pytest.raises(IndexError, match="index 7 is out of range for axis 0 of size 3") as caught:
        pick(x, bad).numpy()
    assert f"{__file__}:{line}" in str(caught.value)
    with pytest.raises(IndexError, match="pick"):
        wf.waitall()  # which tells of all that failed, once
    wf.waitall()
    assert pick(x, good).numpy().tolist() == [3.0, 3.0]


@pytest.mark.parametrize("lazy", [False, True])
def test_exceptions_leave_everything_usable(lazy):
    count = wf.zeros(())

    def run(x, n):
        x += 1
        if n > 1:
            raise KeyError(n)
        x @ wf.ones((n, 7))
        count[...] = count + 1
        return x

    traced = wf.trace(run, strict=True, lazy=lazy)
    for n, kind in ((2, KeyError), (0, ValueError)):
        x = wf.ones(3)
        with pytest.raises(kind):
            traced(x, n)
        assert x.sum().item() == 6.0  # what came before the exception is done
    assert not traced.programs
    with wf.lazy():
        y = wf.ones(3) * 2
    assert y.sum().item() == 6.0
    x = wf.ones((3, 1))
    assert traced(x, 1).sum().item() == 6.0
    assert count.item() == 1.0


def test_an_exception_in_lazy_evaluation():
    x = wf.ones(3)

    def fail():
        with wf.lazy():
            x[...] = x + 1
            raise KeyError(0)

    with pytest.raises(KeyError):
        fail()
    assert x.sum().item() == 6.0


def test_an_argument_that_is_a_parameter():
    net = M.Linear(3, 3, bias=False)
    traced = wf.trace(lambda x: net(x), strict=True)
    with pytest.raises(GraphError, match="shares memory with an array found elsewhere"):
        traced(net.weight)
