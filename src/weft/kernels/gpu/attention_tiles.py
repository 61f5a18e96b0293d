"""Code of attention and its gradients for threads: tiles of scores in shared memory, no array of scores.

A pass computes one result: y, or the gradient of q, of k or of v. A block has a tile of 64 rows of it (queries for y
and dq, keys for dk and dv) and walks over tiles of 64 of the other side. For each it computes the scores of the pairs
in registers, from them what the result's rows are weighted by, writes that to shared memory, and adds its product with
the rows of the other side to sums in registers. y goes on with a running maximum and sum (Milakov and Gimelshein 2018,
arXiv:1805.02867; Dao and others 2022, arXiv:2205.14135); gradients compute the weights again from the logarithms of
these sums. Nothing is added by several blocks to the same place, so results repeat bit for bit.

All of it is float32. A block of threads has up to 128 columns of the result; where there are more, others compute the
same scores. Queries behind the last one see nothing; what is read behind a size counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.base.record import Record
from weft.base.typing import Any
from weft.expr import draws
from weft.expr import scalar as e
from weft.expr.functions import expand
from weft.expr.kernel import Kernel, Operand
from weft.expr.llvm_function import Values
from weft.expr.llvm_grids import SIDE, FloatTile, Grid
from weft.expr.llvm_threads import Schedule, ThreadCode, Threads
from weft.expr.llvm_values import cast, from_memory, number, to_memory
from weft.expr.llvm_writer import memory_type
from weft.kernels.gpu.attention_passes import KINDS, LOOPS, MOVES, SIZES, TILE, AttentionPass

__all__ = ["print_pass"]

DEPTH = 16  # elements of a product's depth in a turn
THREADS = SIDE * SIDE
FAR = 1 << 60  # beyond every key
NOTHING, INFINITE, ZERO = (number(x, "float32") for x in (float("-inf"), float("inf"), 0.0))

X, Y, Z, W = (e.result(k, "float32") for k in range(4))
SCALE, CAP = (e.cast(e.parameter(k, "float64"), "float32") for k in (0, 1))
BEFORE, AFTER, OFFSET = (e.parameter(k, "int64") for k in (2, 3, 4))
DROP = e.parameter(5, "float64")
ONE, TWO = e.constant(1.0, "float32"), e.constant(2.0, "float32")
POWER = expand(e.call("exp", X - Y))
LOG = expand(e.call("log", X))
CAPPED = expand(CAP - TWO * CAP / (e.call("exp", X * (TWO / CAP)) + ONE))
OF_CAP = ONE - (X / CAP) * (X / CAP)
WORD = e.result(4, "uint64")
SOURCE = [e.result(5, "uint64"), e.result(6, "uint64"), e.constant(0, "uint64")]
ITEM = draws.item32(WORD, SOURCE)
THRESHOLD = e.cast(
    e.minimum(DROP * e.constant(2.0**32, "float64"), e.constant(2.0**32 - 1, "float64")), "uint64"
)
KEPT = e.where(
    (ITEM >= THRESHOLD) & (e.constant(1.0, "float64") > DROP),
    e.cast(e.constant(1.0, "float64") / (e.constant(1.0, "float64") - DROP), "float32"),
    e.constant(0.0, "float32"),
)


def print_pass(form: AttentionPass, is_narrow: bool) -> ThreadCode:
    """The code; a turn of a block is a tile of rows, and of columns, of one head."""
    return _Printed(form, is_narrow).run()


class _Query(Record):
    """Of a query: its place in its tile, i32, and for gradients its logarithm, and the mean of its scores' gradients.

    first, last: where its range begins and ends in the tile of keys, i32; "" without ranges.
    """

    place: str
    log: str = ""
    mean: str = ""
    first: str = ""
    last: str = ""


class _Tile(Record):
    """A tile of queries with one of keys, which begin at multiples of TILE.

    i32: key c of the tile is one that query r sees if low <= c - r <= high, c < keys and r < queries. distance: of the
    first ones' positions, float.
    """

    query: str
    key: str
    low: str
    high: str
    queries: str
    keys: str
    distance: str
    number: str


class _Printed:
    def __init__(self, form: AttentionPass, is_narrow: bool) -> None:
        self.form = form
        self.dtypes = dict(form.dtypes)
        self.numbers = {name: k for k, name in enumerate(self.dtypes)}
        operands = tuple(Operand(dtype, "any") for dtype in self.dtypes.values())
        kernel = Kernel(f"attention_{form.kind}", len(LOOPS), operands, ())
        parameters = [SCALE, CAP, BEFORE, AFTER, OFFSET, DROP]
        self.f = f = Threads(kernel, Schedule("tiles", THREADS, 1, is_narrow), parameters)
        self.scores, self.sums = Grid(f, TILE), Grid(f, form.columns)
        self.a = FloatTile(0, TILE)
        self.b = FloatTile(self.a.bytes(DEPTH), max(TILE, form.columns))
        self.weights = FloatTile(self.b.begin + self.b.bytes(DEPTH), TILE)
        self.dweights = FloatTile(self.weights.begin + self.weights.bytes(TILE), TILE)
        end = self.dweights.begin + (self.dweights.bytes(TILE) if form.kind in ("dq", "dk") else 0)
        f.shared_words = end // 8
        self.size = {name: f.sizes[d] for name, d in SIZES.items()}

    # Pieces.

    def value(self, expression: e.Scalar, **leaves: str) -> str:
        """An expression of X, Y, ... in registers."""
        f = self.f
        known = {id({"x": X, "y": Y, "z": Z, "w": W}[name]): register for name, register in leaves.items()}
        return Values(f, f.bases, [], "0", "", computed=known)[expression]

    def pointer(self, name: str, **positions: str) -> str:
        f, k = self.f, self.numbers[name]
        pointer = f.bases[k]
        for loop, i in positions.items():
            pointer = f.offset(pointer, f.emit(f"mul i64 {i}, {f.strides[k][SIZES[loop]]}"))
        return pointer

    def further(self, name: str, pointer: str, **positions: str) -> str:
        f, k = self.f, self.numbers[name]
        for loop, i in positions.items():
            pointer = f.offset(pointer, f.emit(f"mul i64 {i}, {f.strides[k][SIZES[loop]]}"))
        return pointer

    def load(self, name: str, pointer: str) -> str:
        """An element as float32."""
        f, dtype = self.f, self.dtypes[name]
        raw = f.emit(f"load {memory_type(dtype)}, ptr {pointer}")
        return cast(f, from_memory(f, dtype, raw), dtype, "float32")

    def put(self, name: str, pointer: str, value: str) -> None:
        f, dtype = self.f, self.dtypes[name]
        raw = to_memory(f, dtype, cast(f, value, "float32", dtype))
        f.lines.append(f"  store {memory_type(dtype)} {raw}, ptr {pointer}")

    def most(self, a: str, b: str) -> str:
        self.f.declared["llvm.smax.i64"] = "declare i64 @llvm.smax.i64(i64, i64)"
        return self.f.emit(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")

    def moved(self, a: str, b: str | int) -> str:
        return self.f.emit(f"add i64 {a}, {b}")

    def guarded(self, condition: str, body: Callable[[], None]) -> None:
        self.f.branch(condition, body, _nothing)

    # The launch's turns.

    def run(self) -> ThreadCode:
        f, form = self.f, self.form
        self.before = f.parameter(BEFORE)
        no_first, no_last = (f.emit(f"icmp slt i64 {f.parameter(p)}, 0") for p in (BEFORE, AFTER))
        offset = f.parameter(OFFSET)
        low = f.emit(f"sub i64 {offset}, {f.parameter(BEFORE)}")
        high = self.moved(offset, f.parameter(AFTER))
        self.lowest = f.emit(f"select i1 {no_first}, i64 {-FAR}, i64 {low}")
        self.highest = f.emit(f"select i1 {no_last}, i64 {FAR}, i64 {high}")
        heads = self.size["group" if form.of_keys else "head"]
        self.row_loop = "key" if form.of_keys else "query"
        self.column_loop = "feature" if form.kind in ("dq", "dk") else "column"
        shared, _ = f.divided(self.size["head"], self.most(self.size["group"], "1"))
        self.shared = self.most(shared, "1")
        tiles, parts = (
            f.turns("0", step, self.size[loop])
            for loop, step in ((self.row_loop, TILE), (self.column_loop, form.columns))
        )
        parts = self.most(parts, "1")
        count = f.product([self.size["batch"], heads, tiles, parts])

        def item(i: str) -> None:
            rest, part = f.divided(i, parts)
            rest, tile = f.divided(rest, tiles)
            self.batch, head = f.divided(rest, heads)
            self.first_column = f.emit(f"mul i64 {part}, {form.columns}")
            self.begin = f.emit(f"mul i64 {tile}, {TILE}")
            self.is_first_part = f.emit(f"icmp eq i64 {part}, 0")
            self.turn(head)

        f.strided(f.block_number, f.block_count, count, item)
        options = {"mask", "ranges", "slopes", "words"} & self.dtypes.keys()
        is_plain = not options and not form.is_capped and form.columns <= TILE
        fits = is_plain and form.kind in ("y", "dv")  # into 128 registers
        return f.code(1).replaced(in_flight=2 * THREADS if fits else THREADS)

    def turn(self, head: str) -> None:
        """All of one tile of rows."""
        f = self.f
        nothing = [("float", ZERO)] * self.sums.sums
        if self.form.of_keys:
            first_head = f.emit(f"mul i64 {head}, {self.shared}")

            def one(s: str) -> list[str]:
                before = list(f.carried)
                self.enter(self.moved(first_head, s), head)
                return self.over_queries(before)

            self.finish(head, f.loop(self.shared, one, nothing, simple=True))
            return
        group, _ = f.divided(head, self.shared)
        self.enter(head, group)
        queries = [_Query(row) for row in self.scores.rows]
        if self.form.kind != "y":
            queries = self.with_means([self.with_log(self.begin, query) for query in queries])
        begin, end = self.bounds(self.begin)
        carried = nothing
        if self.form.kind == "y":
            count = len(queries)
            carried = [("float", NOTHING)] * count + [("float", ZERO)] * count + nothing

        def tile(c: str) -> list[str]:
            before = list(f.carried)
            key = self.moved(begin, f.emit(f"mul i64 {c}, {TILE}"))
            return self.tile(self.begin, key, queries, before)

        sums = f.loop(f.turns(begin, TILE, end), tile, carried, simple=True)
        self.finish(head, self.averaged(sums) if self.form.kind == "y" else sums)

    def enter(self, head: str, group: str) -> None:
        """Begins with a head: where its matrices are."""
        f = self.f
        self.head = head
        self.matrices = {}
        for name in self.dtypes:
            moves = MOVES[name]
            at = {"batch": self.batch, "head": head, "group": group}
            self.matrices[name] = self.pointer(name, **{k: i for k, i in at.items() if k in moves})
        if "slopes" in self.dtypes:
            self.slope = self.load("slopes", self.matrices["slopes"])
        if "words" in self.dtypes:
            self.words = [
                f.emit(f"load i64, ptr {self.further('words', self.matrices['words'], two=str(k))}")
                for k in (0, 1)
            ]

    def over_queries(self, sums: list[str]) -> list[str]:
        """The sums of a tile of keys with those of the queries of one head."""
        f = self.f
        last_row = self.moved(self.begin, TILE - 1)
        first = self.most(f.emit(f"sub i64 {self.begin}, {self.highest}"), "0")
        first = f.emit(f"and i64 {first}, {-TILE}")
        end = f.smaller(f.emit(f"sub i64 {self.moved(last_row, 1)}, {self.lowest}"), self.size["query"])

        def tile(c: str) -> list[str]:
            before = list(f.carried)
            begin = self.moved(first, f.emit(f"mul i64 {c}, {TILE}"))

            def seen() -> list[str]:
                return self.tile(begin, self.begin, [], before)

            if "ranges" not in self.dtypes:
                return seen()
            low, high = self.bounds(begin)
            reaches = f.emit(f"icmp sle i64 {low}, {last_row}")
            both = f.emit(f"and i1 {reaches}, {f.emit(f'icmp sgt i64 {high}, {self.begin}')}")
            return f.replaced(both, seen, [("float", x) for x in before])

        return f.loop(f.turns(first, TILE, end), tile, [("float", x) for x in sums], simple=True)

    # Which keys a query sees.

    def with_log(self, begin: str, query: _Query) -> _Query:
        """With what the gradients have to know; begin: of the tile of queries."""
        f = self.f
        position = self.at(begin, query.place)
        exists = f.emit(f"icmp slt i64 {position}, {self.size['query']}")

        def log() -> list[str]:
            value = self.load("logs", self.further("logs", self.matrices["logs"], query=position))
            saw_nothing = f.emit(f"fcmp oeq float {value}, {NOTHING}")
            return [f.emit(f"select i1 {saw_nothing}, float {INFINITE}, float {value}")]

        (shift,) = f.replaced(exists, log, [("float", INFINITE)])
        if self.form.kind != "dk":
            return query.replaced(log=shift)

        def mean() -> list[str]:
            return [self.load("means", self.further("means", self.matrices["means"], query=position))]

        return query.replaced(log=shift, mean=f.replaced(exists, mean, [("float", ZERO)])[0])

    def pair_of(self, query: str, key: str) -> _Tile:
        """The tile of queries and keys that begin there."""
        f = self.f
        ahead = f.emit(f"sub i64 {query}, {key}")
        low, high = (self.clamped(self.moved(ahead, reach), -TILE) for reach in (self.lowest, self.highest))
        queries, keys = (
            self.clamped(f.emit(f"sub i64 {self.size[name]}, {begin}"), 0)
            for name, begin in (("query", query), ("key", key))
        )
        distance = number = ""
        if "slopes" in self.dtypes:
            distance = f.emit(f"sitofp i64 {self.moved(ahead, f.parameter(OFFSET))} to float")
        if "words" in self.dtypes:  # as weft.ops.families.attention.Attention.kept numbers tiles
            number = self.moved(f.emit(f"mul i64 {self.batch}, {self.size['head']}"), self.head)
            for name, begin in (("query", query), ("key", key)):
                tiles = f.emit(f"lshr i64 {self.moved(self.size[name], TILE - 1)}, 6")
                number = self.moved(f.emit(f"mul i64 {number}, {tiles}"), f.emit(f"lshr i64 {begin}, 6"))
            number = f.emit(f"mul i64 {number}, {TILE * TILE}")
        return _Tile(query, key, low, high, queries, keys, distance, number)

    def clamped(self, x: str, least: int) -> str:
        """x as i32 of least ... TILE."""
        return self.f.emit(f"trunc i64 {self.most(self.f.smaller(x, TILE), str(least))} to i32")

    def at(self, begin: str, place: str) -> str:
        """The position of a place of a tile."""
        return self.moved(begin, self.f.emit(f"zext i32 {place} to i64"))

    def with_range(self, tile: _Tile, query: _Query) -> _Query:
        """With the part of the tile of keys that the query's range has."""
        f = self.f
        position = self.at(tile.query, query.place)
        exists = f.emit(f"icmp slt i64 {position}, {self.size['query']}")

        def read() -> list[str]:
            ends = self.range_of(position)
            return [self.clamped(f.emit(f"sub i64 {end}, {tile.key}"), 0) for end in ends]

        first, last = f.replaced(exists, read, [("i32", "0")] * 2)
        return query.replaced(first=first, last=last)

    def range_of(self, position: str) -> list[str]:
        f = self.f
        at = self.further("ranges", self.matrices["ranges"], query=position)
        return [f.emit(f"load i64, ptr {a}") for a in (at, self.further("ranges", at, two="1"))]

    def limits(self, position: str) -> tuple[str, str]:
        """The first key that a query sees, and the one behind the last; of no query: 0, 0."""
        f = self.f
        first = self.most(self.moved(position, self.lowest), "0")
        last = f.smaller(self.moved(self.moved(position, self.highest), 1), self.size["key"])

        def narrowed() -> list[str]:
            begin, end = self.range_of(position)
            return [self.most(first, begin), f.smaller(last, end)]

        exists = f.emit(f"icmp slt i64 {position}, {self.size['query']}")
        first, last = f.replaced(exists, narrowed, [("i64", "0")] * 2)
        return first, last

    def bounds(self, begin: str) -> tuple[str, str]:
        """Where keys that any query of a tile sees begin, a multiple of TILE, and end; the same for all threads."""
        f = self.f
        if "ranges" not in self.dtypes:
            last = f.smaller(self.moved(begin, TILE - 1), self.moved(self.size["query"], -1))
            low = self.most(self.moved(begin, self.lowest), "0")
            high = f.smaller(self.moved(self.moved(last, self.highest), 1), self.size["key"])
            return f.emit(f"and i64 {low}, {-TILE}"), high
        low, high = self.size["key"], "0"
        for more in (0, TILE // 2):  # each warp for itself
            position = self.moved(begin, self.moved(f.lane, more))
            first, last = self.limits(position)
            sees = f.emit(f"icmp slt i64 {first}, {last}")
            low = f.emit(f"select i1 {sees}, i64 {f.smaller(low, first)}, i64 {low}")
            high = f.emit(f"select i1 {sees}, i64 {self.most(high, last)}, i64 {high}")
        delta = TILE // 4
        while delta:
            low = f.smaller(low, f.shuffle("xor", "i64", low, delta))
            high = self.most(high, f.shuffle("xor", "i64", high, delta))
            delta //= 2
        return f.emit(f"and i64 {low}, {-TILE}"), high

    def with_means(self, queries: list[_Query]) -> list[_Query]:
        """Each with the mean of its scores' gradients, the sum of dy * y. It is also stored, for the gradient of k."""
        f = self.f
        own = f.emit(f"zext i32 {self.scores.column_thread} to i64")
        last = self.moved(self.size["query"], -1)
        places = []
        for query in queries:
            row = f.smaller(self.at(self.begin, query.place), last)
            places.append([self.further(name, self.matrices[name], query=row) for name in ("dy", "y")])

        def turn(t: str) -> list[str]:
            sums = list(f.carried)
            column = self.moved(own, f.emit(f"mul i64 {t}, {SIDE}"))
            following = []
            for total, at in zip(sums, places, strict=True):
                x, y = (
                    self.load(name, self.further(name, p, column=column))
                    for name, p in zip(("dy", "y"), at, strict=True)
                )
                following.append(f.emit(f"call float @fma_float32(float {x}, float {y}, float {total})"))
            return following

        turns = f.turns(own, SIDE, self.size["column"])
        sums = f.loop(turns, turn, [("float", ZERO)] * len(queries), simple=True)
        delta = SIDE // 2
        while delta:
            sums = [f.emit(f"fadd float {x}, {f.shuffle('xor', 'float', x, delta)}") for x in sums]
            delta //= 2
        is_first = f.emit(f"icmp eq i32 {self.scores.column_thread}, 0")
        is_first = f.emit(f"and i1 {is_first}, {self.is_first_part}")
        for query, total in zip(queries, sums, strict=True):
            position = self.at(self.begin, query.place)
            exists = f.emit(f"icmp slt i64 {position}, {self.size['query']}")
            at = self.further("means", self.matrices["means"], query=position)
            self.guarded(f.emit(f"and i1 {is_first}, {exists}"), _storing(self, "means", at, total))
        return [query.replaced(mean=total) for query, total in zip(queries, sums, strict=True)]

    # One tile.

    def tile(self, query: str, key: str, queries: list[_Query], carried: list[str]) -> list[str]:
        """What is carried, after the tile of the queries and keys that begin there; queries: the thread's, if rows.

        Scores, and what becomes of them, are in shared memory, where each thread reads what it has written; so a loop
        has a few of them in registers at a time.
        """
        form = self.form
        begin = query if form.of_keys else key
        of_rows, of_columns = ("k", "q") if form.of_keys else ("q", "k")
        self.scores.store(self.product(of_rows, of_columns, begin, "feature"), self.weights)
        if form.kind in ("dq", "dk"):
            of_rows, of_columns = ("v", "dy") if form.of_keys else ("dy", "v")
            self.scores.store(self.product(of_rows, of_columns, begin, "column"), self.dweights)
        tile = self.pair_of(query, key)
        if "ranges" in self.dtypes:
            queries = [self.with_range(tile, one) for one in queries]
        if form.kind == "y":
            return self.softmax(tile, queries, carried)

        def column(c: str) -> list[str]:
            self.scores.put(self.gradients(tile, self.pairs(tile, queries, c), c), self.weights, c)
            return []

        self.scores.each_column(column)
        return self.weighted(begin, carried)

    def pairs(self, tile: _Tile, queries: list[_Query], column: str) -> list[tuple[_Query, str]]:
        """Query and key of each of the thread's rows with one column."""
        if not self.form.of_keys:
            return [(query, column) for query in queries]
        query = self.with_log(tile.query, _Query(column))
        query = self.with_range(tile, query) if "ranges" in self.dtypes else query
        return [(query, row) for row in self.scores.rows]

    def gradients(self, tile: _Tile, pairs: list[tuple[_Query, str]], column: str) -> list[str]:
        """What the other side's rows are multiplied by: weights, or the gradients of scores without their scale."""
        f = self.f
        capped: list[str] = []
        scores = [
            self.score(x, tile, q, k, capped)
            for x, (q, k) in zip(self.scores.load(self.weights, column), pairs, strict=True)
        ]
        weights = [self.value(POWER, x=x, y=q.log) for x, (q, _) in zip(scores, pairs, strict=True)]
        if self.form.kind == "dv":
            return self.dropped(weights, tile, pairs)
        dweights = self.dropped(self.scores.load(self.dweights, column), tile, pairs)
        dscores = [
            f.emit(f"fmul float {w}, {f.emit(f'fsub float {x}, {q.mean}')}")
            for w, x, (q, _) in zip(weights, dweights, pairs, strict=True)
        ]
        if self.form.is_capped:
            factors = [self.value(OF_CAP, x=x) for x in capped]
            dscores = [f.emit(f"fmul float {x}, {y}") for x, y in zip(dscores, factors, strict=True)]
        return dscores

    def score(self, x: str, tile: _Tile, query: _Query, key: str, capped: list[str]) -> str:
        f = self.f
        x = f.emit(f"fmul float {x}, {self.value(SCALE)}")
        if self.form.is_capped:
            x = self.value(CAPPED, x=x)
            capped.append(x)
        behind = f.emit(f"sub i32 {key}, {query.place}")
        if "slopes" in self.dtypes:
            distance = f.emit(f"fsub float {tile.distance}, {f.emit(f'sitofp i32 {behind} to float')}")
            taken = f.emit(f"fmul float {self.slope}, {f.intrinsic('fabs', 'float32', [distance])}")
            x = f.emit(f"fsub float {x}, {taken}")
        facts = [("sge", behind, tile.low), ("sle", behind, tile.high)]
        facts += [("slt", key, tile.keys), ("slt", query.place, tile.queries)]
        if query.first:
            facts += [("sge", key, query.first), ("slt", key, query.last)]
        sees = "true"
        for how, a, b in facts:
            sees = f.emit(f"and i1 {sees}, {f.emit(f'icmp {how} i32 {a}, {b}')}")
        if "mask" not in self.dtypes:
            return f.emit(f"select i1 {sees}, float {x}, float {NOTHING}")

        def masked() -> list[str]:
            positions = {"query": self.at(tile.query, query.place), "key": self.at(tile.key, key)}
            value = self.load("mask", self.further("mask", self.matrices["mask"], **positions))
            if self.dtypes["mask"] != "bool":
                return [f.emit(f"fadd float {x}, {value}")]
            is_true = f.emit(f"fcmp une float {value}, {ZERO}")
            return [f.emit(f"select i1 {is_true}, float {x}, float {NOTHING}")]

        return f.replaced(sees, masked, [("float", NOTHING)])[0]

    def dropped(self, values: list[str], tile: _Tile, pairs: list[tuple[_Query, str]]) -> list[str]:
        """Values times 0 or 1 / (1 - p), if there is dropout."""
        f = self.f
        if "words" not in self.dtypes:
            return values
        dropped = []
        for x, (query, key) in zip(values, pairs, strict=True):
            place = f.emit(f"add i32 {f.emit(f'mul i32 {key}, {TILE}')}, {query.place}")
            first, second = self.words
            known = {id(WORD): self.at(tile.number, place), id(SOURCE[0]): first, id(SOURCE[1]): second}
            factor = Values(f, f.bases, [], "0", "", computed=known)[KEPT]
            dropped.append(f.emit(f"fmul float {x}, {factor}"))
        return dropped

    def softmax(self, tile: _Tile, queries: list[_Query], carried: list[str]) -> list[str]:
        """Scores become powers, relative to the largest ones until now: (largest, sums of powers, sums of v)."""
        f, grid, count = self.f, self.scores, len(self.scores.rows)
        largest, totals, sums = carried[:count], carried[count : 2 * count], carried[2 * count :]

        def score(c: str) -> list[str]:
            before = list(f.carried)
            pairs = self.pairs(tile, queries, c)
            scores = [
                self.score(x, tile, q, k, [])
                for x, (q, k) in zip(grid.load(self.weights, c), pairs, strict=True)
            ]
            grid.put(scores, self.weights, c)
            return [grid.both("max", x, y) for x, y in zip(before, scores, strict=True)]

        news = grid.over_columns("max", grid.each_column(score, [("float", x) for x in largest]))
        shifts = []
        for x in news:
            none = f.emit(f"fcmp oeq float {x}, {NOTHING}")
            shifts.append(f.emit(f"select i1 {none}, float {ZERO}, float {x}"))

        def power(c: str) -> list[str]:
            before = list(f.carried)
            scores = grid.load(self.weights, c)
            powers = [self.value(POWER, x=x, y=y) for x, y in zip(scores, shifts, strict=True)]
            grid.put(self.dropped(powers, tile, self.pairs(tile, queries, c)), self.weights, c)
            return [grid.both("sum", x, y) for x, y in zip(before, powers, strict=True)]

        more = grid.over_columns("sum", grid.each_column(power, [("float", ZERO)] * count))
        less = [self.value(POWER, x=x, y=y) for x, y in zip(largest, shifts, strict=True)]
        totals = [
            f.emit(f"fadd float {f.emit(f'fmul float {x}, {y}')}, {z}")
            for x, y, z in zip(totals, less, more, strict=True)
        ]
        of_row = len(self.sums.columns)
        sums = [f.emit(f"fmul float {x}, {less[k // of_row]}") for k, x in enumerate(sums)]
        return [*news, *totals, *self.weighted(tile.key, sums)]

    def weighted(self, begin: str, sums: list[str]) -> list[str]:
        """The sums with the tile's rows of the other side, times weights."""
        f, name, span = self.f, KINDS[self.form.kind], self.form.columns
        thread = f.emit(f"trunc i64 {f.thread} to i32")
        row = f.emit(f"lshr i32 {thread}, {span.bit_length() - 1}")
        column = f.emit(f"and i32 {thread}, {span - 1}")
        position = self.at(self.first_column, column)
        is_column = f.emit(f"icmp slt i64 {position}, {self.size[self.column_loop]}")
        start, step = self.start(name, begin, row, THREADS // span, self.column_loop, position)
        left = self.left(name, begin)

        def turn(t: str) -> list[str]:
            at, *before = f.carried
            first = f.emit(f"trunc i64 {f.emit(f'mul i64 {t}, {DEPTH}')} to i32")
            here = f.emit(f"sub i32 {left}, {first}")
            self.fill(name, at, step, row, THREADS // span, here, is_column, self.b, row, column)
            f.barrier()
            news = self.sums.multiplied(before, self.weights, first, self.b, DEPTH)
            f.barrier()
            return [f.offset(at, f.emit(f"mul i64 {step}, {DEPTH * span // THREADS}")), *news]

        carried = [("ptr", start), *(("float", x) for x in sums)]
        return f.loop(str(TILE // DEPTH), turn, carried, simple=True)[1:]

    def product(self, of_rows: str, of_columns: str, begin: str, loop: str) -> list[str]:
        """The thread's sums of products over a loop, of rows of the block's tile and the other side's from begin on."""
        f = self.f
        thread = f.emit(f"trunc i64 {f.thread} to i32")
        row, depth = f.emit(f"lshr i32 {thread}, 4"), f.emit(f"and i32 {thread}, {DEPTH - 1}")
        position = f.emit(f"zext i32 {depth} to i64")
        sides = [(of_rows, self.begin, self.a), (of_columns, begin, self.b)]
        starts = [self.start(name, first, row, SIDE, loop, position) for name, first, _ in sides]
        lefts = [self.left(name, first) for name, first, _ in sides]

        def turn(t: str) -> list[str]:
            places, before = f.carried[:2], f.carried[2:]
            element = self.moved(f.emit(f"mul i64 {t}, {DEPTH}"), position)
            is_element = f.emit(f"icmp slt i64 {element}, {self.size[loop]}")
            following = []
            for (name, _, tile), at, (_, step), left in zip(sides, places, starts, lefts, strict=True):
                self.fill(name, at, step, row, SIDE, left, is_element, tile, depth, row)
                stride = f.strides[self.numbers[name]][SIZES[loop]]
                following.append(f.offset(at, f.emit(f"mul i64 {stride}, {DEPTH}")))
            f.barrier()
            news = self.scores.multiplied(before, self.a, "0", self.b, DEPTH)
            f.barrier()
            return [*following, *news]

        carried = [*(("ptr", at) for at, _ in starts), *[("float", ZERO)] * self.scores.sums]
        return f.loop(f.turns("0", DEPTH, self.size[loop]), turn, carried, simple=True)[2:]

    def start(self, name: str, begin: str, row: str, rows: int, loop: str, position: str) -> tuple[str, str]:
        """Where a thread's first element of a tile is, and how far its next one is, so many rows on."""
        f = self.f
        row_loop = self.row_loop_of(name)
        at = self.further(name, self.matrices[name], **{row_loop: self.at(begin, row), loop: position})
        return at, f.emit(f"mul i64 {f.strides[self.numbers[name]][SIZES[row_loop]]}, {rows}")

    def left(self, name: str, begin: str) -> str:
        """How many rows there are from `begin` on, at most TILE."""
        return self.clamped(self.f.emit(f"sub i64 {self.size[self.row_loop_of(name)]}, {begin}"), 0)

    def row_loop_of(self, name: str) -> str:
        return "query" if name in ("q", "dy") else "key"

    def fill(
        self,
        name: str,
        at: str,
        step: str,
        row: str,
        rows: int,
        left: str,
        is_element: str,
        tile: FloatTile,
        depth: str,
        place: str,
    ) -> None:
        """Writes a thread's elements to shared memory, every `rows` rows from `row` on; 0 where there are none.

        left: how many rows there are. depth, place: where the first one goes; the others lie behind it, in the
        dimension that is `row`.
        """
        f = self.f
        is_place = place == row
        count = (TILE if is_place else DEPTH) // rows
        to = tile.address(f, depth, place)
        for k in range(count):
            exists = f.emit(f"icmp slt i32 {f.emit(f'add i32 {row}, {k * rows}')}, {left}")
            inside = f.emit(f"and i1 {exists}, {is_element}")
            (value,) = f.replaced(inside, self._loading(name, at), [("float", ZERO)])
            more = k * rows * (4 if is_place else tile.pitch)
            f.lines.append(f"  store float {value}, ptr {f.offset(to, more)}")
            at = f.offset(at, step)

    def _loading(self, name: str, at: str) -> Callable[[], list[str]]:
        return lambda: [self.load(name, at)]

    # Results.

    def averaged(self, carried: list[str]) -> list[str]:
        """The sums over the powers' sums; stores the logarithms of these."""
        f, count, columns = self.f, len(self.scores.rows), len(self.sums.columns)
        largest, totals, sums = carried[:count], carried[count : 2 * count], carried[2 * count :]
        is_first = f.emit(f"icmp eq i32 {self.scores.column_thread}, 0")
        is_first = f.emit(f"and i1 {is_first}, {self.is_first_part}")
        factors = []
        for row, most, total in zip(self.scores.rows, largest, totals, strict=True):
            none = f.emit(f"fcmp oeq float {total}, {ZERO}")
            inverse = f.emit(f"fdiv float {number(1.0, 'float32')}, {total}")
            factors.append(f.emit(f"select i1 {none}, float {ZERO}, float {inverse}"))
            log = f.emit(f"fadd float {most}, {self.value(LOG, x=total)}")
            log = f.emit(f"select i1 {none}, float {NOTHING}, float {log}")
            position = self.at(self.begin, row)
            exists = f.emit(f"icmp slt i64 {position}, {self.size['query']}")
            at = self.further("logs", self.matrices["logs"], query=position)
            self.guarded(f.emit(f"and i1 {is_first}, {exists}"), _storing(self, "logs", at, log))
        return [f.emit(f"fmul float {x}, {factors[k // columns]}") for k, x in enumerate(sums)]

    def finish(self, head: str, sums: list[str]) -> None:
        """Stores the result's tile."""
        f, name = self.f, self.form.kind
        if name in ("dq", "dk"):
            sums = [f.emit(f"fmul float {x}, {self.value(SCALE)}") for x in sums]
        own_head = "group" if self.form.of_keys else "head"
        base = self.pointer(name, **{"batch": self.batch, own_head: head})
        values = iter(sums)
        for row in self.sums.rows:
            position = self.at(self.begin, row)
            at_row = self.further(name, base, **{self.row_loop: position})
            is_row = f.emit(f"icmp slt i64 {position}, {self.size[self.row_loop]}")
            for column in self.sums.columns:
                position = self.at(self.first_column, column)
                is_column = f.emit(f"icmp slt i64 {position}, {self.size[self.column_loop]}")
                at = self.further(name, at_row, **{self.column_loop: position})
                self.guarded(f.emit(f"and i1 {is_row}, {is_column}"), _storing(self, name, at, next(values)))


def _storing(printed: _Printed, name: str, at: str, value: str) -> Callable[[], Any]:
    return lambda: printed.put(name, at, value)


def _nothing() -> None: ...
