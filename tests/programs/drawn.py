"""Random functions with everything that gradients and traces have to agree about, as Python source.

A drawn program is the text of `build(nested)`, which returns a function f(w, v, s) of two arrays and a float. Its
statements are drawn from a seed: arithmetic, reductions, products, views, `no_grad`, `detach`, custom functions,
dropout and other random numbers, `recompute`, writes in place and to arrays of the surroundings, control flow, inner
gradients, and calls of functions that `nested` may trace. Statements form a tree, so that a failing program can be
made smaller by leaving some out.

Values stay near 1, comparisons are of exact values: no rounding decides what a program computes.
"""

import dataclasses

import numpy as np

M, R, C, S = "M", "R", "C", "S"  # shapes: [n, m], [m], [n, 1], []
SIZES = (
    (3, 4),
    (5, 1),
    (1, 6),
    (6, 33),
    (70, 1501),
    (261, 403),
    (1100, 97),
)  # the last three are divided among threads

PRELUDE = '''
import weft as wf
import weft.functional as F


class Through(wf.Function):
    """Rounds; the gradient passes, scaled by what forward was given besides."""

    def forward(self, x, scale):
        self.scale = scale
        return F.floor(x * 4) / 4

    def backward(self, dy):
        return dy * self.scale, None


class Clipped(wf.Function):
    """Gives its operand itself; its backward writes to what it is given."""

    def forward(self, x):
        return x

    def backward(self, dy):
        dy *= 1.5
        return F.clip(dy, -0.5, 0.5)


class Pair(wf.Function):
    """Two results, one of which backward reads; keeps something that it computes without recording."""

    def forward(self, x, y):
        with wf.no_grad():
            self.kept = F.tanh(x)
        return x * y, F.sin(y)

    def backward(self, da, db):
        return da * self.kept, db - da.detach()
'''


@dataclasses.dataclass
class Line:
    """One statement; body: statements inside. instead: a shorter statement that defines the same name."""

    text: str
    body: "list[Line] | None" = None
    last: str = ""  # of a function: what it returns
    instead: str = ""

    def lines(self, indent):
        yield indent + self.text
        if self.body is not None:
            for line in self.body:
                yield from line.lines(indent + "    ")
            yield indent + "    " + (self.last or "pass")


@dataclasses.dataclass
class Drawn:
    """A program: statements of `build` before f, those of f, and what f returns."""

    seed: int
    n: int
    m: int
    dtype: str
    before: list[Line]
    body: list[Line]
    results: list[str]
    kinds: set[str]

    @property
    def source(self):
        text = [PRELUDE, "", "def build(nested, given):"]
        text += ["    k, l, buf, idx, mask = (given[name] for name in ('k', 'l', 'buf', 'idx', 'mask'))"]
        text += ["    w, v = given['w0'], given['v0']"]  # of functions outside f; f has its own
        text += [f"    n, m, dtype = {self.n}, {self.m}, {self.dtype!r}"]
        for line in self.before:
            text += line.lines("    ")
        text += ["", "    def f(w, v, s):"]
        for line in self.body:
            text += line.lines("        ")
        text += [f"        return {', '.join(self.results)},", "", "    return f", ""]
        return "\n".join(text)

    def build(self, nested, given):
        scope = {}
        exec(compile(self.source, f"<program {self.seed}>", "exec"), scope)
        return scope["build"](nested, given)

    def given(self, wf):
        """New arrays: those that f is called with, and those of its surroundings."""
        rng = np.random.default_rng(self.seed + 7)
        n, m = self.n, self.m

        def normal(*shape, scale=1.0):
            return wf.tensor(rng.normal(0, scale, shape), dtype=self.dtype)

        arrays = {
            "w": normal(n, m),
            "v": normal(m),
            "k": normal(m, 8, scale=m**-0.5),
            "l": normal(8, m, scale=0.35),
        }
        arrays |= {"w0": normal(n, m), "v0": normal(m), "buf": normal(m)}
        arrays["idx"] = wf.tensor(rng.integers(0, n, n))
        arrays["mask"] = wf.tensor(rng.random((n, m)) < 0.5)
        arrays["dys"] = {M: normal(n, m), R: normal(m), C: normal(n, 1), S: normal()}
        return arrays


class Scope:
    """Names that statements may read: (name, shape).

    flow: within a function of control flow, where values are not arrays, and nothing is written in place.
    state: whether arrays of the surroundings may be written.
    """

    def __init__(self, names, depth=0, flow=False, state=True):
        self.names, self.depth, self.flow, self.state = list(names), depth, flow, state

    def of(self, *shapes):
        return [name for name, shape in self.names if shape in shapes]


class Author:
    """Writes one program."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.seed, self.count, self.kinds, self.before = seed, 0, set(), []
        # What bodies of control flow do with the float decides, so a program with it cannot be exported.
        self.float = "s" if self.chance(0.5) else "0.75"

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def chance(self, share):
        return self.rng.random() < share

    def name(self, letter="a"):
        self.count += 1
        return f"{letter}{self.count}"

    def program(self):
        n, m = self.pick(SIZES)
        self.dtype = self.pick(("float64", "float64", "float32"))
        scope = Scope([("w", M), ("v", R), ("w", M)])
        body = self.block(scope, int(self.rng.integers(4, 14)))
        own = [(name, shape) for name, shape in scope.names if name not in ("w", "v")]
        last = own[-int(self.rng.integers(1, 4)) :]
        if not last or self.chance(0.5):  # which takes the float in any case
            last.append((self.name(), M))
            body.append(Line(f"{last[-1][0]} = {self.value(scope, M)} * s"))
        results = dict(last)
        self.shapes = list(results.values())
        return Drawn(self.seed, n, m, self.dtype, self.before, body, list(results), self.kinds)

    # Expressions.

    def some(self, scope, *shapes):
        """A name of one of the shapes, later ones more often; None: there is none."""
        names = scope.of(*shapes)
        if not names:
            return None
        return self.pick(names[-3:]) if self.chance(0.6) else self.pick(names)

    def shape_of(self, scope, name):
        return dict(scope.names)[name]

    def factor(self):
        return self.pick((self.float, "0.5", "1.5", "-0.75", f"(1 + {self.float})", "2"))

    def value(self, scope, shape):
        """An expression of this shape, of arithmetic alone."""
        x = self.some(scope, shape)
        if x is None:
            x = {M: "w", R: "v", C: "w.mean(axis=1, keepdims=True)", S: "v.mean()"}[shape]
        fitting = {M: (M, R, C, S), R: (R, S), C: (C, S), S: (S,)}[shape]
        y = self.some(scope, *fitting) or x
        return self.pick(
            (
                f"F.tanh({x})",
                f"F.sin({x} * {self.factor()})",
                f"F.sigmoid({x})",
                f"F.exp(F.tanh({x}) * 0.5)",
                f"({x} + {y})",
                f"({x} - {y} * {self.factor()})",
                f"({x} * F.tanh({y}))",
                f"({x} * {self.factor()})",
                f"({x} / (1.5 + F.cos({y})))",
                f"F.sqrt({x} * {x} + 0.5)",
            )
        )

    # Statements. Each returns lines, and adds the names that it defines to the scope.

    def block(self, scope, count):
        lines = []
        while count > 0:
            made = self.statement(scope)
            if made is None:
                continue
            lines += made
            count -= 1
        return lines

    def statement(self, scope):
        plain = [self.arithmetic, self.arithmetic, self.reduction, self.view, self.product, self.choice]
        special = [self.without, self.detached, self.custom, self.noise]
        if not scope.flow:
            special += [self.in_place, self.in_place]
        deep = [
            self.recomputed,
            self.conditional,
            self.each_row,
            self.as_long_as,
            self.call,
            self.inner_gradient,
        ]
        if scope.state:
            special.append(self.surroundings)
        if scope.depth < 2:
            special += deep
        return self.pick(plain if self.chance(0.4) else special)(scope)

    def define(self, scope, expression, shape, kind, instead=""):
        name = self.name()
        scope.names.append((name, shape))
        self.kinds.add(kind)
        return [Line(f"{name} = {expression}", instead=f"{name} = {instead}" if instead else "")]

    def arithmetic(self, scope):
        shape = self.pick((M, M, R, C, S))
        return self.define(
            scope, self.value(scope, shape), shape, "arithmetic", self.some(scope, shape) or ""
        )

    def reduction(self, scope):
        x = self.some(scope, M) or "w"
        r = self.some(scope, R) or "v"
        expression, shape = self.pick(
            (
                (f"{x}.mean(axis=0)", R),
                (f"{x}.mean(axis=1, keepdims=True)", C),
                (f"{x}.mean()", S),
                (f"{r}.mean()", S),
                (f"F.softmax({x}, axis=-1)", M),
                (f"F.softmax({r}, axis=0)", R),
                (f"F.logsumexp({x} * 0.5, axis=1, keepdims=True)", C),
                (f"F.layer_norm({x}, m)", M),
                (f"F.cumulative_sum({x} / m, axis=1)", M),
                (f"F.sqrt(F.var({x}, axis=0) + 0.1)", R),
            )
        )
        return self.define(scope, expression, shape, "reduction")

    def view(self, scope):
        x = self.some(scope, M) or "w"
        r = self.some(scope, R) or "v"
        expression, shape = self.pick(
            (
                (f"{x}[::-1]", M),
                (f"F.concat([{x}[1:], {x}[:1]], axis=0)", M),
                (f"(F.sin({x}.T) * 1.25).T", M),
                (f"{x}.reshape((-1,)).reshape((n, m))", M),
                (f"{x}[0]", R),
                (f"{x}[:, :1]", C),
                (f"F.take({x}, idx, axis=0)", M),
                (f"{x}[idx]", M),
                (f"F.broadcast_to({r}, (n, m))", M),
                (f"F.flip({r}, axis=0)", R),
                (f"{r}[0]", S),
            )
        )
        return self.define(scope, expression, shape, "view", x if shape == M else "")

    def product(self, scope):
        if self.chance(0.7):
            x = self.some(scope, M) or "w"
            return self.define(scope, f"F.tanh({x} @ k) @ l", M, "product", x)
        r = self.some(scope, R) or "v"
        return self.define(scope, f"({r} @ k) @ l", R, "product", r)

    def choice(self, scope):
        x, y = self.some(scope, M) or "w", self.some(scope, M, R, C) or "v"
        test = self.pick(("mask", "w > 0", "v > 0.5"))
        return self.define(scope, f"F.where({test}, {x}, {y} * 0.5)", M, "choice", x)

    def without(self, scope):
        inner = Scope(scope.names, scope.depth + 1, scope.flow, False)
        body = self.block(inner, int(self.rng.integers(1, 3)))
        scope.names += inner.names[len(scope.names) :]
        self.kinds.add("no_grad")
        return [Line("with wf.no_grad():", body)]

    def detached(self, scope):
        shape = self.pick((M, R))
        x = self.some(scope, shape) or ("w" if shape == M else "v")
        form = self.pick((f"{x}.detach()", f"{x}.detach()", f"({x} - {x}.detach() * {self.float})"))
        return self.define(scope, form, shape, "detach", x)

    def custom(self, scope):
        shape = self.pick((M, R, M))
        x = self.some(scope, shape) or ("w" if shape == M else "v")
        y = self.some(scope, shape) or x
        self.kinds.add("Function")
        if self.chance(0.3):
            a, b = self.name(), self.name()
            scope.names += [(a, shape), (b, shape)]
            return [Line(f"{a}, {b} = Pair()({x}, {y})")]
        if self.chance(0.5):
            return self.define(scope, f"Clipped()({x})", shape, "Function", x)
        # What is rounded is exact: rounding errors before it would decide.
        exact = "w" if shape == M else "v"
        return self.define(scope, f"Through()({exact} * 2, {y} * 0.5)", shape, "Function", x)

    def noise(self, scope):
        shape = self.pick((M, R, M))
        x = self.some(scope, shape) or ("w" if shape == M else "v")
        size = "(n, m)" if shape == M else "(m,)"
        form = self.pick(
            (
                f"F.dropout({x}, 0.3)",
                f"F.dropout({x}, 0.5)",
                f"{x} * wf.random.uniform(0.5, 1.5, {size}, dtype=dtype)",
                f"{x} + wf.random.normal(0, 1, {size}, dtype=dtype)",
            )
        )
        return self.define(scope, form, shape, "random", x)

    def in_place(self, scope):
        shape = self.pick((M, M, R))
        x = self.some(scope, shape) or ("w" if shape == M else "v")
        y = self.some(scope, *((M, R, C, S) if shape == M else (R, S))) or x
        name = self.name()
        lines = [
            Line(f"{name} = {self.pick((f'{x} * 1.5', f'{x} + 1', f'{x}.copy()', f'{x} * {self.float}'))}")
        ]
        r = self.some(scope, R) or "v"
        for _ in range(int(self.rng.integers(1, 3))):
            forms = [
                f"{name} += {y}",
                f"{name} -= {y} * {self.float}",
                f"{name} *= {self.factor()}",
                f"{name} /= 2",
                f"{name} += F.tanh({y})",
                f"{name}[0] = {self.pick(('0.5', self.float))}",
                f"{name}[1:] = {name}[:-1].copy() * 0.5",
            ]
            if shape == M:
                forms += [
                    f"{name}[0] = {r}",
                    f"{name}[:, 1:] = {y}[:, 1:]" if self.shape_of(scope, y) == M else f"{name}[1:] = {r}",
                ]
                forms += [f"{name}[idx] = 0.25", f"{name} *= mask"]
            lines.append(Line(self.pick(forms)))
        if self.chance(0.2):
            lines.append(Line("with wf.no_grad():", [Line(f"{name} += 1")]))
        scope.names.append((name, shape))
        self.kinds.add("in place")
        return lines

    def surroundings(self, scope):
        r = self.some(scope, R) or "v"
        self.kinds.add("surroundings")
        if self.chance(0.5):
            return self.define(scope, "buf * 1.25", R, "surroundings")
        form = self.pick(
            (f"buf[...] = buf * 0.5 + {r}.detach()", f"buf[...] += 0.1 * {r}.detach()", "buf[...] *= 0.75")
        )
        return [Line("with wf.no_grad():", [Line(form)])] if self.chance(0.5) else [Line(form)]

    def function(self, scope, parameters, shape, header, flow=False):
        """A function of its own: `header` with its statements, which returns a value of the shape."""
        inner = Scope([*scope.names, *parameters], scope.depth + 1, flow or scope.flow, False)
        body = self.block(inner, int(self.rng.integers(1, 4)))
        value = self.some(Scope(inner.names[len(scope.names) :]), shape)
        result = (value if flow else f"{value} * 1") if value else self.value(inner, shape)
        return Line(header, body, f"return {result}")

    def recomputed(self, scope):
        shape = self.pick((M, M, R))
        x = self.some(scope, shape) or ("w" if shape == M else "v")
        y = self.some(scope, M, R) or "v"
        f, p, q = self.name("f"), self.name("p"), self.name("p")
        seen = scope if self.chance(0.4) else Scope([])
        line = self.function(
            Scope(seen.names, scope.depth, scope.flow),
            [(p, shape), (q, self.shape_of(scope, y))],
            shape,
            f"def {f}({p}, {q}):",
        )
        return [line, *self.define(scope, f"wf.recompute({f}, {x}, {y})", shape, "recompute", x)]

    def conditional(self, scope):
        shape = self.pick((M, R, S))
        t, e, p = self.name("f"), self.name("f"), self.name("p")
        x = self.some(scope, shape) or {M: "w", R: "v", S: "v.mean()"}[shape]
        test = self.pick(("w[0, 0] > 0", "v.mean() > 0", f"{self.float} * v[0] < 0.1"))
        lines = [self.function(scope, [(p, shape)], shape, f"def {name}({p}):", True) for name in (t, e)]
        return [*lines, *self.define(scope, f"wf.cond({test}, {t}, {e}, {x})", shape, "cond", x)]

    def each_row(self, scope):
        x = self.some(scope, M) or "w"
        r = self.some(scope, R) or "v"
        f, p, h = self.name("f"), self.name("p"), self.name("h")
        inner = Scope([*scope.names, (p, R), (h, R)], scope.depth + 1, True, False)
        body = self.block(inner, int(self.rng.integers(1, 4)))
        inside = Scope([*inner.names[len(scope.names) :]])
        out, state = self.value(inside, R), self.some(inside, R)
        line = Line(f"def {f}({p}, {h}):", body, f"return {out}, {state} * 0.5 + {h} * 0.25")
        ys, last = self.name(), self.name()
        scope.names.append((last, R))
        self.kinds.add("foreach")
        call = Line(f"{ys}, {last} = wf.foreach({f}, {x}[:5], {r})")
        return [line, call, *self.define(scope, f"{ys}.mean(axis=0)", R, "foreach")]

    def as_long_as(self, scope):
        r = self.some(scope, R) or "v"
        f, i, h = self.name("f"), self.name("i"), self.name("h")
        inner = Scope([*scope.names, (h, R)], scope.depth + 1, True, False)
        body = self.block(inner, int(self.rng.integers(1, 3)))
        value = self.some(Scope(inner.names[len(scope.names) :]), R)
        line = Line(f"def {f}({i}, {h}):", body, f"return {i} + 1, {value} * 0.5 + {h} * 0.25")
        limit = self.pick(("2", "3", f"(1 + {self.float} * 2)"))
        call = f"wf.while_loop(lambda i, h: i < {limit}, {f}, wf.zeros((), dtype=dtype), {r}, max_iterations=4)[1]"
        return [line, *self.define(scope, call, R, "while_loop", r)]

    def call(self, scope):
        """Of a function of the surroundings, which may be traced."""
        shape = self.pick((M, M, R))
        x = self.some(scope, shape) or ("w" if shape == M else "v")
        y = self.some(scope, M, R) or "v"
        f, p, q = self.name("g"), self.name("p"), self.name("p")
        line = self.function(
            Scope([], scope.depth, scope.flow),
            [(p, shape), (q, self.shape_of(scope, y))],
            shape,
            f"def {f}({p}, {q}, s):",
        )
        self.before += [Line("@nested"), line]
        return self.define(
            scope, f"{f}({x}, {y}, {self.pick((self.float, '0.5', f'{self.float} * 2'))})", shape, "nested", x
        )

    def inner_gradient(self, scope):
        shape = self.pick((M, R))
        x = self.some(scope, shape) or ("w" if shape == M else "v")
        f, p = self.name("f"), self.name("p")
        line = self.function(scope, [(p, shape)], shape, f"def {f}({p}):")
        line.last = line.last.replace("return ", "return (") + f" * {p}).sum()"
        return [line, *self.define(scope, f"F.tanh(wf.grad({f})({x}))", shape, "grad", x)]


def drawn(seed):
    return Author(seed).program()
