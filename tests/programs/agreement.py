"""Whether a drawn program is the same in every form: eager, traced, lazy, with its gradient traced, and loaded."""

import dataclasses
import re
import tempfile
from pathlib import Path

import numpy as np

import weft as wf
from weft.base.errors import GraphError

from .drawn import C, M, R, S

CALLS = ((1, 0.5), (2, 0.25), (3, -0.5), (4, 0.25))  # the seed and the float of each
WANTED = ("w", "v", "k", "l")
TOLERANCE = {"float64": (1e-8, 1e-11), "float32": (2e-3, 1e-5)}  # of the greatest element, and besides


class Different(AssertionError):
    """A form of a program does not come to what the eager one does."""


@dataclasses.dataclass
class Call:
    """What a call came to: results, whether they are recorded, gradients, the surroundings, the random streams."""

    results: list
    recorded: list
    gradients: list
    state: np.ndarray
    streams: dict


def as_array(x):
    return None if x is None else x.numpy()


def shape_of(x, n, m):
    return {(n, m): M, (m,): R, (n, 1): C, (): S}[tuple(x.shape)]


def slopes(f, given, manager, s):
    """Results of f, whether they are recorded, and the gradients of what is wanted."""
    n, m = given["w"].shape
    with manager:
        results = f(given["w"], given["v"], s)
        recorded = [y.requires_grad for y in results]
        ends = [y for y in results if y.requires_grad]
        if ends:
            manager.backward(ends, [given["dys"][shape_of(y, n, m)] for y in ends])
    gradients = [given[name].grad for name in WANTED]
    for name in WANTED:
        given[name].grad = None
    return results, recorded, gradients


def called(step, given, calls=CALLS):
    """What a form of a program comes to, call by call."""
    found = []
    for seed, s in calls:
        wf.random.seed(seed)
        results, recorded, gradients = step(s)
        found.append(
            Call(
                [as_array(y) for y in results],
                list(recorded),
                [as_array(dx) for dx in gradients],
                given["buf"].numpy().copy(),
                wf.random.get_state(),
            )
        )
    return found


def plain(function):
    return function


def eagerly(program):
    given = program.given(wf)
    manager = wf.GradManager().attach([given[name] for name in WANTED])
    f = program.build(plain, given)
    return called(lambda s: slopes(f, given, manager, s), given)


def through(program, trace, nested=plain, first=False):
    """The gradient goes through a traced function; first: which has been called before anything was recorded."""
    given = program.given(wf)
    manager = wf.GradManager().attach([given[name] for name in WANTED])
    f = trace(program.build(nested, given))
    if first:
        kept = given["buf"].copy()
        f(given["w"], given["v"], 0.125)
        given["buf"][...] = kept
    return called(lambda s: slopes(f, given, manager, s), given)


def whole(program, trace, nested=plain):
    """A step with its gradient is traced."""
    given = program.given(wf)
    manager = wf.GradManager().attach([given[name] for name in WANTED])
    f = program.build(nested, given)
    return called(trace(lambda s: slopes(f, given, manager, s)), given)


def lazily(program):
    given = program.given(wf)
    manager = wf.GradManager().attach([given[name] for name in WANTED])
    f = program.build(plain, given)

    def step(s):
        with wf.lazy():
            return slopes(f, given, manager, s)

    return called(step, given)


def loaded(program):
    given = program.given(wf)
    manager = wf.GradManager().attach([given[name] for name in WANTED])
    f = wf.trace(program.build(plain, given), strict=True)
    for s in (0.5, 0.25):
        f(given["w"], given["v"], s)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program"
        f.export(path)
        g = wf.load_program(path)
    return called(lambda s: slopes(g, given, manager, s), given)


def strict(f):
    return wf.trace(f, strict=True)


def lazy(f):
    return wf.trace(f, strict=True, lazy=True)


FORMS = {
    "eager, with traced functions inside": lambda p: through(p, plain, wf.trace),
    "gradient through a trace": lambda p: through(p, strict),
    "gradient through a trace called before": lambda p: through(p, strict, first=True),
    "gradient through a trace with traces inside": lambda p: through(p, strict, wf.trace),
    "gradient through a lazy trace": lambda p: through(p, lazy),
    "traced step": lambda p: whole(p, strict),
    "traced step of a traced function": lambda p: whole(p, strict, wf.trace),
    "lazy traced step": lambda p: whole(p, lazy),
    "lazy step": lazily,
    "loaded program": loaded,
}
# What they can be asked for: calls of a loaded program have arrays of their own in place of the surroundings.
NEEDS = {
    "eager, with traced functions inside": lambda p: "nested" in p.kinds,
    "gradient through a trace with traces inside": lambda p: "nested" in p.kinds,
    "traced step of a traced function": lambda p: "nested" in p.kinds,
    "loaded program": lambda p: "surroundings" not in p.kinds,
}


def compare(wanted, found, program, form):
    """Raises Different, with the call and what differs.

    A graph may know that a gradient is zero, which then is None, where the eager one computes it.
    """
    share, besides = TOLERANCE[program.dtype]
    own = form == "loaded program"
    # In a graph, a loop or branch is one operator: what has no influence on its results has a gradient of zeros.
    loose = not program.kinds.isdisjoint({"foreach", "while_loop", "cond"})
    for number, (a, b) in enumerate(zip(wanted, found, strict=True)):
        parts = [(f"result {k}", x, y) for k, (x, y) in enumerate(zip(a.results, b.results, strict=True))]
        names = WANTED[:2] if own else WANTED
        parts += [
            (f"gradient of {name}", x, y) for name, x, y in zip(names, a.gradients, b.gradients, strict=False)
        ]
        parts += [("buf", a.state, b.state)]
        for name, x, y in parts:
            if x is None and y is not None and not (loose and not y.any()):
                raise Different(f"{form}, call {number}: {name} is not None")
            if y is None and x is not None and x.any():
                raise Different(f"{form}, call {number}: {name} is None")
            if x is None or y is None:
                continue
            if x.shape != y.shape or x.dtype != y.dtype:
                raise Different(
                    f"{form}, call {number}: {name} is {y.dtype}{y.shape}, not {x.dtype}{x.shape}"
                )
            error = np.abs(x.astype("float64") - y).max(initial=0.0)
            if not error <= share * np.abs(x).max(initial=0.0) + besides:
                raise Different(f"{form}, call {number}: {name} differs by {error:.3g}")
        if not own and not loose and any(y and not x for x, y in zip(a.recorded, b.recorded, strict=True)):
            raise Different(f"{form}, call {number}: recorded are {b.recorded}, not {a.recorded}")
        if a.streams != b.streams:
            raise Different(f"{form}, call {number}: the random streams are elsewhere")


def sound(calls):
    """Whether numbers are such that rounding errors stay small."""
    arrays = [x for c in calls for x in (*c.results, *c.gradients, c.state) if x is not None]
    return all(np.isfinite(x).all() and np.abs(x).max(initial=0.0) < 1e6 for x in arrays)


def check(program, forms=FORMS):
    """Compares all forms with the eager one; gives for each of these "same", or why it cannot be had."""
    try:
        wanted = eagerly(program)
    except (
        ValueError,
        NotImplementedError,
    ) as error:  # in-place writes to what a gradient needs, and the like
        return {"eager": first_line(error)}
    if not sound(wanted):
        return {"eager": "unsound"}
    outcome = {"eager": "same"}
    for form in forms:
        if form in NEEDS and not NEEDS[form](program):
            continue
        try:
            found = FORMS[form](program)
        except GraphError as error:
            outcome[form] = first_line(error)
            continue
        except ValueError as error:
            # A program that writes an array that its gradient reads: the eager call had kept what it made of it.
            if "which has been overwritten since" not in str(error):
                raise Different(f"{form}: ValueError: {error}") from error
            outcome[form] = "ValueError: overwritten"
            continue
        except Exception as error:
            raise Different(f"{form}: {type(error).__name__}: {error}") from error
        compare(wanted, found, program, form)
        outcome[form] = "same"
    return outcome


def first_line(error):
    return re.sub(r"\d+", "0", f"{type(error).__name__}: {str(error).splitlines()[0]}")


# Smaller programs.


def without_one(lines):
    """Each list of statements with one of them left out, or made shorter."""
    for k, line in enumerate(lines):
        yield lines[:k] + lines[k + 1 :]
        if line.instead and line.instead != line.text:
            yield [
                *lines[:k],
                dataclasses.replace(line, text=line.instead, instead="", body=None),
                *lines[k + 1 :],
            ]
        if line.body:
            for body in without_one(line.body):
                yield [*lines[:k], dataclasses.replace(line, body=body), *lines[k + 1 :]]


def smaller(program):
    for size in ((3, 4), (70, 1501)):
        if size < (program.n, program.m):
            yield dataclasses.replace(program, n=size[0], m=size[1])
    if len(program.results) > 1:
        for k in range(len(program.results)):
            yield dataclasses.replace(program, results=program.results[:k] + program.results[k + 1 :])
    for body in without_one(program.body):
        yield dataclasses.replace(program, body=body)
    for before in without_one(program.before):
        yield dataclasses.replace(program, before=before)


def shrunk(program, form, limit=150):
    """A smaller program that differs in that form."""
    tries = 0
    changed = True
    while changed:
        changed = False
        for candidate in smaller(program):
            tries += 1
            if tries > limit:
                return program
            try:
                check(candidate, [form])
            except Exception as error:  # a name may not be defined any more
                if isinstance(error, Different) and not isinstance(error.__cause__, NameError):
                    program, changed = candidate, True
                    break
    return program
