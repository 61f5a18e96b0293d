"""What a traced function reads through Python's own machinery: classes in between, metaclasses, code that is assigned,
objects of the standard library, attributes that are not there yet. Each change is seen by the next call."""

import collections
import configparser
import functools
import os
import sys
import types
import typing

import pytest

import weft as wf
import weft.module as M


class Base:
    k = 1.0

    def method(self, x):
        return x * 2

    @property
    def size(self):
        return 2.0


def class_in_between():
    class Between(Base): ...

    class Last(Between): ...

    thing = Last()
    yield lambda x: thing.method(x) * thing.k * Last.k
    Between.k = 2.0
    yield
    Between.method = lambda self, x: x * 5
    yield
    Last.k = 3.0
    yield
    del Last.k
    yield
    Between.__bases__ = (type("Other", (Base,), {"size": 1}),)
    yield


def what_super_finds():
    class First:
        def method(self, x):
            return x * 2

    class Last(First):
        def method(self, x):
            return super().method(x) + 1

    thing = Last()
    yield lambda x: thing.method(x)
    First.method = lambda self, x: x * 7
    yield


def descriptors_of_classes():
    class Thing(Base):
        @staticmethod
        def scaled(x):
            return x * 2

    thing = Thing()
    yield lambda x: thing.scaled(x) * thing.size
    Thing.size = property(lambda self: 5.0)
    yield
    Thing.size = 6.0
    yield
    Thing.scaled = staticmethod(lambda x: x * 3)
    yield


def metaclass():
    class Meta(type):
        @property
        def double(cls):
            return cls.k * 2

    class Thing(metaclass=Meta):
        k = 1.0

    yield lambda x: x * Thing.double
    Thing.k = 2.0
    yield
    Meta.double = property(lambda cls: 7.0)
    yield


def assigned_code():
    def scaled(x, *, factor=2.0):
        return x * factor

    yield lambda x: scaled(x)
    scaled.__kwdefaults__ = {"factor": 3.0}
    yield
    scaled.__code__ = (lambda x, *, factor: x - factor).__code__
    yield


def own_attribute_access():
    class Thing:
        def __init__(self):
            self.real = 2.0

        def __getattribute__(self, name):
            return object.__getattribute__(self, "real" if name == "k" else name)

    thing = Thing()
    yield lambda x: x * thing.k
    thing.real = 3.0
    yield


def chosen_by_type():
    @functools.singledispatch
    def scaled(n, x):
        return x

    yield lambda x: scaled(1, x)
    scaled.register(int, lambda n, x: x * 2)
    yield


def partial_methods():
    class Thing:
        def scaled(self, x, k):
            return x * k * self.rate

        twice = functools.partialmethod(scaled, k=2.0)

    thing = Thing()
    thing.rate = 1.0
    yield lambda x: thing.twice(x)
    thing.rate = 3.0
    yield


def protocols():
    class Scaled(typing.Protocol):
        k = 1.0

        def factor(self):
            return self.k

    class Thing(Scaled):
        def other(self): ...

    thing = Thing()
    yield lambda x: x * thing.factor()
    Scaled.k = 2.0
    yield
    Scaled.factor = lambda self: 5.0
    yield


def maps_over_maps():
    first = {}
    chain, own = collections.ChainMap(first, {"k": 2.0}), collections.UserDict(k=2.0)
    yield lambda x: x * chain["k"] + own["k"]
    first["k"] = 3.0
    yield
    own["k"] = 4.0
    yield


def environment_variables():
    os.environ["WEFT_TEST_FACTOR"] = "2"
    yield lambda x: x * float(os.environ["WEFT_TEST_FACTOR"])
    os.environ["WEFT_TEST_FACTOR"] = "3"
    yield
    del os.environ["WEFT_TEST_FACTOR"]


def imported_inside():
    module = sys.modules["imported_inside"] = types.ModuleType("imported_inside")
    module.k = 2.0

    def function(x):
        from imported_inside import k

        return x * k

    yield function
    module.k = 3.0
    yield
    sys.modules["imported_inside"] = types.SimpleNamespace(k=4.0)
    yield
    del sys.modules["imported_inside"]


def items_that_the_first_call_adds():
    table, other = collections.defaultdict(lambda: 2.0), {}
    yield lambda x: x * table["k"] * other.setdefault("k", 2.0)
    table["k"] = 3.0
    yield
    other["k"] = 5.0
    yield
    other.clear()
    yield


class Forgiving(M.Module):
    def forward(self, x):
        return x * getattr(self, "factor", 3.0)


def attributes_that_are_missing():
    class Thing: ...

    thing, other, layer = Thing(), Thing(), Forgiving()

    def function(x):
        try:
            x = x * thing.k
        except AttributeError:
            x = x * 3
        return layer(x) if hasattr(other, "flag") else x

    yield function
    thing.k = 1.0
    yield
    del thing.k
    Thing.k = 7.0
    yield
    Thing.flag = True
    yield
    Forgiving.factor = 5.0
    yield
    del Forgiving.factor


CASES = [
    class_in_between,
    what_super_finds,
    descriptors_of_classes,
    metaclass,
    assigned_code,
    own_attribute_access,
    chosen_by_type,
    partial_methods,
    protocols,
    maps_over_maps,
    environment_variables,
    imported_inside,
    items_that_the_first_call_adds,
    attributes_that_are_missing,
]


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "at once"])
@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
def test_each_change_is_seen(case, lazy):
    """A second instance of the case, which is called without a trace, says what each call should give."""
    x, found, expected = wf.tensor([1.0, 2.0]), [], []
    for results, way in ((expected, lambda f: f), (found, lambda f: wf.trace(f, lazy=lazy, max_entries=16))):
        changes = case()
        call = way(next(changes))
        results.append(call(x).numpy().tolist())
        for _ in changes:
            results += [call(x).numpy().tolist() for _ in range(3)]
    assert found == expected


def test_what_only_the_standard_library_reads_is_doubted():
    options = configparser.ConfigParser()
    options["training"] = {"rate": "2"}
    traced = wf.trace(lambda x: x * options.getfloat("training", "rate"))
    x = wf.ones(())
    assert traced(x).item() == 2
    options["training"]["rate"] = "3"
    with pytest.warns(wf.TraceWarning, match="no guard covers"):
        assert traced(x).item() == 3
    options["training"]["rate"] = "4"
    assert traced(x).item() == 4


def assigned_class_method():
    class Thing:
        @classmethod
        def scaled(cls, x):
            return x * 2

    yield lambda x: Thing.scaled(x)
    Thing.scaled = classmethod(lambda cls, x: x * 9)
    yield


def assigned_class_of_an_object():
    class Thing:
        k = 1.0

    class Other:
        k = 2.0

    thing = Thing()
    yield lambda x: x * thing.k
    thing.__class__ = Other
    yield


def list_that_the_first_call_fills():
    cache = []

    def function(x):
        if not cache:
            cache.append(2.0)
        return x * cache[0]

    yield function
    cache[0] = 3.0
    yield


@pytest.mark.parametrize(
    "case", [assigned_class_method, assigned_class_of_an_object, list_that_the_first_call_fills]
)
def test_changes_that_no_guard_covers(case):
    test_each_change_is_seen(case, True)
