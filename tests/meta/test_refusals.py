"""Errors for arguments are weft's own: no signature of nanobind's reaches users."""

import pytest

import weft as wf
from weft import _core, storage
from weft.base.arguments import refusal
from weft.engine import Engine, default_engine

JUNK = [
    None,
    object(),
    "text",
    b"bytes",
    1.5,
    -3,
    2**70,
    1j,
    [],
    [1],
    {},
    (1, 2),
    print,
    wf.ones(2),
    wf.float32,
]
KEYWORDS = ["no_such_argument", "device", "name", "priority", "timeout_s"]
# Those that end what others need, or wait for ever.
LEFT_OUT = {"stop", "start", "wait_for_all", "check", "Engine", "default_engine", "set_limit", "trim"}


def public_callables():
    """Name -> callable, of the engine, storage and random numbers: functions, and methods of their objects."""
    found = {}
    for module in (wf.engine, storage, wf.random):
        for name in module.__all__:
            if callable(getattr(module, name)) and name not in LEFT_OUT:
                found[f"{module.__name__}.{name}"] = getattr(module, name)
    engine = default_engine()
    objects = {
        "engine": engine,
        "variable": engine.new_variable(),
        "operator": engine.new_operator(lambda rc: None),
        "memory": storage.alloc(8),
    }
    for kind, x in objects.items():
        for name in dir(x):
            if not name.startswith("_") and callable(getattr(x, name)) and name not in LEFT_OUT:
                found[f"{kind}.{name}"] = getattr(x, name)
    return found


@pytest.mark.parametrize("name", sorted(public_callables()))
def test_junk(name):
    function = public_callables()[name]
    calls = [((), {}), *(((x,), {}) for x in JUNK), *(((x, y), {}) for x in JUNK for y in JUNK[::3])]
    calls += [((x,) * 12, {}) for x in JUNK] + [
        ((lambda rc: None,), {key: x}) for key in KEYWORDS for x in JUNK
    ]
    calls += [((), {key: JUNK[1]}) for key in KEYWORDS]
    before = default_engine().set_bulk_size(1)
    for args, kwargs in calls:
        try:
            function(*args, **kwargs)
        except Exception as error:
            text = str(error)
            assert "incompatible function arguments" not in text, (args, kwargs, text)
            assert "nanobind" not in text
    default_engine().set_bulk_size(before)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda e: e.push(), "push: fn must be given"),
        (lambda e: e.push(print, prio=1), "push: no argument prio; there are: fn, device, const_vars"),
        (lambda e: e.push(print, priority="high"), "push: priority must be an int, got str"),
        (lambda e: e.push(print, priority=2**40), f"push: priority is out of range: {2**40}"),
        (lambda e: e.push(print, size_bytes=1.5), "push: size_bytes must be an int, got float"),
        (lambda e: e.push(print, None, [], [], [], 0, "", "io"), "push: takes 7 positional arguments, got 8"),
        (lambda e: e.push(print, None, device="cpu:0"), "push: device is given twice"),
        (
            lambda e: e.push_async(print, run_on_error="yes"),
            "push_async: run_on_error must be a bool, got str",
        ),
        (lambda e: e.wait_for_var(e.new_variable(), writes_only=3), "writes_only must be a bool, got int"),
        (lambda e: e.delete_variable(3), "delete_variable: variable must be a Variable, got int"),
        (lambda e: e.delete_operator(e.new_variable()), "delete_operator: operator must be a"),
        (lambda e: e.stats(1), "stats: takes 0 positional arguments, got 1; there are: none"),
        (lambda e: wf.engine.NativeFunction("here"), "NativeFunction: address must be an int, got str"),
        (lambda e: wf.engine.NativeFunction(), "NativeFunction: address must be given"),
    ],
)
def test_messages(call, words):
    with pytest.raises(TypeError) as caught:
        call(default_engine())
    assert words in str(caught.value)


def test_every_bound_function_explains_itself():
    """What the texts are made of: signatures that can be read."""
    silent = []
    for name, function in vars(_core).items():
        if type(function).__name__ != "nb_func":
            continue
        text = str(refusal(function, [object()] * 40, {}))
        if "takes" not in text and "do not fit" not in text:
            silent.append((name, text))
    assert silent == []


def test_the_message_of_a_call_inside_is_kept():
    """A function that calls another one in vain does not explain its own arguments."""
    with pytest.raises(TypeError, match="push: priority must be an int"), Engine(workers=1) as engine:
        _core.below_layers(lambda: engine.push(print, priority="high"))


def test_attributes_are_refused_as_arguments_are():
    with pytest.raises(TypeError) as error:
        _core.Replays().closed = None
    assert str(error.value) == "closed: value must be a bool, got None"
