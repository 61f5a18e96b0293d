"""The seam to the native core: what describes programs is typed, and what is none of what is accepted raises."""

import subprocess
import sys

import pytest

import weft as wf
from weft import _core
from weft.executor.emit import NOTHING


def builder(inputs=1, **options):
    return _core.ProgramBuilder("test", wf.cpu(0), inputs, **options)


@pytest.mark.parametrize(
    ("call", "accepted"),
    [
        (lambda b: b.add_load("sizes", 0, 0, 0), "'sizes'; accepted are size, extent, stride"),
        (lambda b: b.add_compute("mod", 0, 0, 0), "'mod'; accepted are add, sub, mul, div"),
        (
            lambda b: b.add_draw("gamma", wf.float32, 0, 0),
            "'gamma'; accepted are uniform, normal, integers, bits",
        ),
    ],
)
def test_unknown_words_raise(call, accepted):
    with pytest.raises(ValueError, match=accepted):
        call(builder())


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b.use(1, NOTHING),
        lambda b: b.use(-1, NOTHING),
        lambda b: b.use(0, 4),
        lambda b: b.use(0, -1),
        lambda b: b.add_constant(-1, 0),
        lambda b: b.add_constant(2**24, 0),
        lambda b: b.add_compute("add", 2**31 - 1, 0, 0),
        lambda b: builder(-1),
    ],
)
def test_what_is_out_of_range_raises(call):
    with pytest.raises(ValueError, match="ProgramBuilder: test:"):
        call(builder())


@pytest.mark.parametrize(
    ("describe", "fact"),
    [
        (lambda b: b.add_result(7), "value 7 is not in 0..1"),
        (lambda b: b.add_result(0, into=3), "input 3 is not in -1..1"),
        (lambda b: b.add_number(wf.float32, -2), "-2"),
        (lambda b: b.add_register(wf.float32, 5), "register 5"),
        (lambda b: b.add_view(wf.float32, 4, 0, [], []), "base 4"),
    ],
)
def test_what_refers_to_nothing_raises_when_the_plan_is_made(describe, fact):
    b = builder()
    describe(b)
    with pytest.raises(ValueError, match=fact):
        b.plan(0, False, "info")


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b.add_output("float33", -1, [], []),
        lambda b: b.add_step("kernel", [], 0, "", "", [], []),
        lambda b: b.add_part("plan", [], [], []),
        lambda b: b.plan("all", False, "info"),
        lambda b: _core.ReplaySpec("plan"),
        lambda b: setattr(_core.ReplaySpec(b.plan(0, False, "info")), "arrays", [("leaf", 0, None)]),
        lambda b: _core.Find.leaf("0"),
        lambda b: _core.Find.python(3),
    ],
)
def test_what_is_of_another_type_raises(call):
    with pytest.raises((TypeError, wf.DTypeError)):
        call(builder())


def test_a_builder_is_used_up():
    b = builder()
    b.add_result(0)
    b.plan(1, False, "info")
    with pytest.raises(ValueError, match="its program has been made"):
        b.add_result(0)
    with pytest.raises(ValueError, match="its program has been made"):
        b.plan(1, False, "info")


def test_values_are_numbered_behind_the_inputs():
    b = builder(2)
    b.add_constant(0, 3)
    made = [
        b.add_output(wf.float32, -1, [0], []),
        b.add_view(wf.float32, 2, 0, [0], [0]),
        b.add_kept(wf.float32, [0], [0]),
    ]
    assert made == [2, 3, 4]


def test_finds():
    x = wf.tensor([1.0, 2.0, 3.0])
    leaves, outputs = [x, 2.5], [wf.ones(2)]
    assert _core.Find.leaf(1).look_up(leaves) == 2.5
    assert _core.Find.output(0).look_up(leaves, outputs) is outputs[0]
    assert _core.Find.object(x).look_up([]) is x
    assert _core.Find.object(None).what is None
    assert _core.Find.python(lambda leaves: leaves[1] * 2).look_up(leaves) == 5.0
    part = _core.Find.leaf(0).with_window((1, (2,), (1,)))
    assert (part.kind, part.what, part.window) == ("leaf", 0, (1, (2,), (1,)))
    assert part.look_up(leaves).numpy().tolist() == [2.0, 3.0]
    with pytest.raises(ValueError, match="no leaf 2"):
        _core.Find.leaf(2).look_up(leaves)
    with pytest.raises(ValueError, match="is not in the memory of x"):
        part.with_window((2, (2,), (1,))).look_up(leaves)
    with pytest.raises(ValueError, match="a window of 17 sizes and 17 strides"):
        part.with_window((0, (1,) * 17, (1,) * 17))


@pytest.mark.parametrize("field", ["arrays", "numbers", "results", "gradients"])
def test_what_a_replay_spec_gives_is_its_own(field):
    """Not part of the field, whose memory goes when the field is set again."""
    spec = _core.ReplaySpec(builder().plan(0, False, "info"))
    find = _core.Find.object("x")
    content = [(find, True)] if field == "gradients" else [find]
    setattr(spec, field, content)
    items = [
        each[0] if field == "gradients" else each for each in (*getattr(spec, field), *getattr(spec, field))
    ]
    assert items[0] is not items[1]
    setattr(spec, field, [])
    assert [each.what for each in items] == ["x", "x"]
    assert find.what == "x"


def test_other_hooks_are_refused():
    with pytest.raises(TypeError, match=r"no hook planner; there are: array_loop, .*plan_call"):
        _core.register(planner=lambda: None)
    with pytest.raises(TypeError, match="as_dtype must be a function that gives it, got int"):
        _core.register(as_dtype=3)


def test_a_missing_hook_is_named():
    program = "import weft; from weft import _core; _core.empty(3, 'float32')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    wanted = "weft._core: no hook ever_scoped is registered; the module of weft that has it is not imported"
    assert done.stderr.splitlines()[-1] == f"RuntimeError: {wanted}"


def test_the_context_is_the_threads_own(in_threads):
    def look(k):
        assert _core.is_recording()
        assert (_core.get_recorder(), _core.layers(), _core.capture()) == (None, None, None)

    with wf.no_grad(), wf.lazy():
        assert not _core.is_recording()
        assert _core.get_recorder() is not None
        in_threads(look, range(2))
    look(0)
