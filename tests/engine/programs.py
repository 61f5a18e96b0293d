"""Random programs for the engine, and the serial interpreter that says what each must come to.

A program is a list of units, each a list of steps; the steps of a unit with several are pushed as one bulk.
Variables are numbers; a deletion ends one and the steps after it use a new one. What a step computes depends
on its number and on all it reads, so any order that breaks the one rule changes some value.
"""

import random
from dataclasses import dataclass, field

MASK = (1 << 61) - 1
QUEUES = ("compute", "compute", "compute", "wide", "copy", "io", "priority")


@dataclass(frozen=True)
class Features:
    """What a program may hold besides plain functions; each number is a share of the steps, from 0 to 1."""

    bulk: float = 0.0
    asynchronous: float = 0.0
    errors: float = 0.0
    overwrite: float = 0.0
    clear: float = 0.0
    delete: float = 0.0
    operators: float = 0.0
    waits: float = 0.0
    queues: tuple[str, ...] = ("compute",)
    devices: int = 1
    priorities: int = 1


PLAIN = Features()
EVERYTHING = Features(
    bulk=0.1,
    asynchronous=0.15,
    errors=0.02,
    overwrite=0.3,
    clear=0.02,
    delete=0.02,
    operators=0.15,
    waits=0.005,
    queues=QUEUES,
    devices=2,
    priorities=4,
)


@dataclass(frozen=True)
class Function:
    """What a step calls: which variables, how it ends, where it runs. Reusable ones are called by many
    steps.
    """

    reads: tuple[int, ...]
    mutates: tuple[int, ...]
    overwrites: tuple[int, ...]
    how: str = "sync"  # sync, async at once, async later
    fails: str = ""  # "", before (nothing written), after (all written), sometimes (each third run, before)
    queue: str = "compute"
    operator: int | None = None  # index, if it is reusable

    @property
    def writes(self):
        return tuple(dict.fromkeys(self.mutates + self.overwrites))


@dataclass(frozen=True)
class Step:
    """One line of the program. kind: push, clear, delete, wait (for all), wait_for (one variable)."""

    kind: str
    number: int
    function: Function | None = None
    variable: int = -1
    becomes: int = -1  # the new variable after a deletion
    device: int = 0
    priority: int = 0


@dataclass
class Program:
    variables: int
    operators: list[Function] = field(default_factory=list)
    units: list[list[Step]] = field(default_factory=list)

    @property
    def steps(self):
        return [step for unit in self.units for step in unit]


def outcome(number, function, values):
    """What a function computes from what it reads: the new values of what it writes."""
    h = number
    overwritten = set(function.overwrites) - set(function.reads) - set(function.mutates)
    for v in (*function.reads, *function.mutates):
        h = (h * 1000003 ^ values[v]) & MASK
    for v in function.overwrites:
        h = (h * 31 + (v if v in overwritten else values[v])) & MASK
    return {v: (h * 8191 + v) & MASK for v in function.writes}


def random_program(seed, size, variables=100, features=PLAIN):
    """A program of `size` steps; 2 to 19 reads and 1 to 3 writes each, as far as there are variables."""
    return _Generator(random.Random(seed), variables, features).program(size)


class _Generator:
    """Keeps an oracle along, to know what is poisoned: chosen blindly, nearly all steps would soon be
    skipped.
    """

    def __init__(self, rng, variables, features):
        self.rng, self.features = rng, features
        self.live = list(range(variables))
        self.made = variables
        self.protected = set()
        self.result = Program(variables)
        self.oracle = Oracle(self.result)
        for i in range(10 if features.operators else 0):
            function = self.function(operator=i)
            self.protected.update(function.reads, function.writes)
            self.result.operators.append(function)
            self.oracle.runs.append(0)

    def chance(self, share):
        return self.rng.random() < share

    def function(self, operator=None):
        rng, features = self.rng, self.features
        writes = rng.sample(self.live, rng.randint(1, min(3, len(self.live))))
        reads = rng.sample(self.live, min(rng.randint(2, 19), len(self.live)))
        if not self.chance(0.15):
            reads = [v for v in reads if not self.oracle.poison[v]]
        if not self.chance(0.1):  # usually nothing is both read and written
            reads = [v for v in reads if v not in writes]
        elif reads:
            reads.append(rng.choice(reads))
        heal = 0.8 if features.overwrite else 0.0
        overwrites = [v for v in writes if self.chance(heal if self.oracle.poison[v] else features.overwrite)]
        mutates = [v for v in writes if v not in overwrites]
        if mutates and self.chance(0.05):
            mutates.append(mutates[0])
        how = rng.choice(["at once", "later"]) if self.chance(features.asynchronous) else "sync"
        fails = rng.choice(["before", "after"]) if self.chance(features.errors) else ""
        if operator is not None and features.errors and self.chance(0.2):
            fails = "sometimes"
        queue = rng.choice(features.queues)
        return Function(tuple(reads), tuple(mutates), tuple(overwrites), how, fails, queue, operator)

    def step(self, number, in_bulk):
        rng, features = self.rng, self.features
        if self.chance(features.waits):
            kind = rng.choice(["wait", "wait_for", "wait_for"])
            return Step(kind, number, variable=rng.choice(self.live))
        if self.chance(features.clear):
            return Step("clear", number, variable=rng.choice(self.live))
        if self.chance(features.delete):
            unused = [v for v in self.live if v not in self.protected]
            if unused:
                old = rng.choice(unused)
                self.live[self.live.index(old)] = self.made
                self.made += 1
                return Step("delete", number, variable=old, becomes=self.made - 1)
        if self.result.operators and self.chance(features.operators):
            function = rng.choice(self.result.operators)
            if self.oracle.first_cause(function) and self.chance(0.7):
                function = self.function()
        else:
            function = self.function()
        changes = not in_bulk or self.chance(0.1)
        device = rng.randrange(features.devices) if changes else 0
        priority = rng.randrange(features.priorities) if changes else 0
        return Step("push", number, function, device=device, priority=priority)

    def program(self, size):
        number = 0
        while number < size:
            length = self.rng.randint(2, 40) if self.chance(self.features.bulk) else 1
            length = min(length, size - number)
            unit = []
            for i in range(length):
                unit.append(self.step(number + i, length > 1))
                self.oracle.step(unit[-1])
            self.result.units.append(unit)
            number += length
        return self.result


class Oracle:
    """Runs a program serially, by the rules in so many words."""

    def __init__(self, program):
        self.values = list(range(program.variables))
        self.versions = [0] * program.variables
        self.poison = [None] * program.variables  # name of the first cause
        self.runs = [0] * len(program.operators)
        self.deleted = {}  # variable: value and version at that time
        self.unreported = set()  # causes that wait_for_all has not raised yet
        self.counts = {"ran": 0, "failed": 0, "skipped": 0}

    def run(self, program):
        for step in program.steps:
            self.step(step)
        return self

    def step(self, step):
        """Runs one step; returns what a wait raises: a set of causes for all, a cause or None for one
        variable.
        """
        return getattr(self, step.kind)(step)

    def push(self, step):
        function = step.function
        inherited = self.first_cause(function)
        if inherited is not None:
            self.counts["skipped"] += 1
            self.poison_all(function.writes, inherited)
            return
        number, fails = self.identity(step)
        self.counts["ran"] += 1
        if fails != "before":
            for v, value in outcome(number, function, self.values).items():
                self.values[v] = value
        for v in function.writes:
            self.versions[v] += 1
        if fails:
            self.counts["failed"] += 1
            self.unreported.add(name_of(number))
            self.poison_all(function.writes, name_of(number))
        else:
            for v in function.overwrites:
                self.poison[v] = None

    def identity(self, step):
        """The number of this run, and how it fails; of a reusable function both depend on how often it has
        run.
        """
        function = step.function
        if function.operator is None:
            return step.number, function.fails
        run = self.runs[function.operator]
        self.runs[function.operator] += 1
        return run_identity(function, run)

    def first_cause(self, function):
        """Reads count before writes, each in the order of declaration; what is only overwritten does not
        count.
        """
        mutated = [*function.mutates, *(v for v in function.overwrites if v in function.reads)]
        for v in (*(v for v in function.reads if v not in function.writes), *mutated):
            if self.poison[v] is not None:
                return self.poison[v]
        return None

    def poison_all(self, variables, cause):
        for v in variables:
            if self.poison[v] is None:
                self.poison[v] = cause

    def clear(self, step):
        self.unreported.discard(self.poison[step.variable])
        self.poison[step.variable] = None

    def delete(self, step):
        self.deleted[step.variable] = (self.values[step.variable], self.versions[step.variable])
        self.values.append(step.becomes)
        self.versions.append(0)
        self.poison.append(None)

    def wait(self, step):
        reported, self.unreported = self.unreported, set()
        return reported

    def wait_for(self, step):
        return self.poison[step.variable]


def run_identity(function, run):
    number = 1_000_000_000 + function.operator * 10_000_000 + run
    fails = function.fails
    if fails == "sometimes":
        fails = "before" if run % 3 == 2 else ""
    return number, fails


def name_of(number):
    return f"run {number}"
