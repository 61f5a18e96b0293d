"""Runs the programs of programs.py on an engine, and compares what happened with the oracle."""

import contextlib
import queue
import random
import threading

from weft.base.errors import EngineError

from .programs import Oracle, name_of, outcome, run_identity
from .support import causes_of


class Planned(Exception):
    """Raised by the steps that are to fail; knows its runner."""

    def __init__(self, name, runner):
        super().__init__(name)
        self.name, self.runner = name, runner


def reported_by(engine):
    """What wait_for_all raises now: a list of Planned, each cause once."""
    try:
        engine.wait_for_all(timeout_s=60)
    except EngineError as error:
        causes = causes_of(error)
        assert all(isinstance(cause, Planned) for cause in causes), causes
        assert len(causes) == len({id(cause) for cause in causes}), "a cause was reported twice"
        return causes
    return []


class Completer:
    """A thread of the user's that completes asynchronous functions, somewhat out of order."""

    def __init__(self, seed):
        self.jobs = queue.SimpleQueue()
        self.rng = random.Random(seed)
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.jobs.put(None)
        self.thread.join()

    def work(self):
        while True:
            jobs = [self.jobs.get()]
            with contextlib.suppress(queue.Empty):
                while len(jobs) < 4:
                    jobs.append(self.jobs.get_nowait())
            ended = None in jobs
            jobs = [job for job in jobs if job]
            self.rng.shuffle(jobs)
            for job in jobs:
                job()
            if ended:
                return


class Runner:
    """One program on one engine: pushes its steps, keeps what they did, and compares."""

    def __init__(self, engine, program, completer, shared=()):
        self.engine, self.program, self.completer = engine, program, completer
        self.shared = list(shared)  # variables of others that every step reads besides its own
        self.oracle = Oracle(program)
        self.variables = [engine.new_variable() for _ in range(program.variables)]
        self.values = list(range(program.variables))
        self.readers = [0] * program.variables
        self.writers = [0] * program.variables
        self.runs = [0] * len(program.operators)
        self.deleted = {}
        self.clashes = []
        self.reported = set()
        self.log = []  # (step or run number, worker), in the order in which they started
        self.lock = threading.Lock()
        self.operators = [self.make_operator(i, f) for i, f in enumerate(program.operators)]

    # What the functions do

    def enter(self, function):
        with self.lock:
            for v in function.writes:
                if self.writers[v] or self.readers[v]:
                    self.clashes.append(("write", v))
                self.writers[v] += 1
            for v in function.reads:
                if v not in function.writes:
                    if self.writers[v]:
                        self.clashes.append(("read", v))
                    self.readers[v] += 1

    def leave(self, function):
        with self.lock:
            for v in function.writes:
                self.writers[v] -= 1
            for v in function.reads:
                if v not in function.writes:
                    self.readers[v] -= 1

    def body(self, function, identity):
        """The function for the engine; identity() gives number and way of failing of this run."""

        def begin(rc):
            self.enter(function)
            number, fails = identity()
            self.log.append((number, rc.worker))
            return number, fails, outcome(number, function, self.values)

        def end(number, fails, results):
            """Writes, leaves; returns the error it fails with."""
            if fails != "before":
                for v, value in results.items():
                    self.values[v] = value
            self.leave(function)
            return Planned(name_of(number), self) if fails else None

        def sync(rc):
            error = end(*begin(rc))
            if error:
                raise error

        def at_once(rc, on_complete):
            error = end(*begin(rc))
            if error and error.name.endswith("7"):
                raise error
            on_complete(error)

        def later(rc, on_complete):
            state = begin(rc)
            self.completer.jobs.put(lambda: on_complete(end(*state)))

        return {"sync": sync, "at once": at_once, "later": later}[function.how]

    def access(self, function):
        return {
            "const_vars": [*(self.variables[v] for v in function.reads), *self.shared],
            "mutate_vars": [self.variables[v] for v in function.mutates],
            "overwrite_vars": [self.variables[v] for v in function.overwrites],
        }

    def make_operator(self, index, function):
        def identity():
            run = self.runs[index]
            self.runs[index] += 1
            return run_identity(function, run)

        fn, is_async = self.body(function, identity), function.how != "sync"
        return self.engine.new_operator(fn, is_async=is_async, queue=function.queue, **self.access(function))

    # What the program does

    def run(self):
        for unit in self.program.units:
            self.unit(unit)
        return self

    def units_in_turn(self):
        """What each of several threads calls to push the program; a lock makes the push order known."""
        units, turn = iter(self.program.units), threading.Lock()

        def work(_):
            while True:
                with turn:
                    unit = next(units, None)
                    if unit is None:
                        return
                    self.unit(unit)

        return work

    def unit(self, unit):
        with self.engine.bulk(16) if len(unit) > 1 else contextlib.nullcontext():
            for step in unit:
                expected = self.oracle.step(step)
                getattr(self, step.kind)(step, expected)

    def push(self, step, _):
        function, place = step.function, {"device": f"cpu:{step.device}", "priority": step.priority}
        if function.operator is not None:
            self.engine.push(self.operators[function.operator], **place)
            return
        push = self.engine.push if function.how == "sync" else self.engine.push_async
        identity = lambda: (step.number, function.fails)  # noqa: E731
        push(self.body(function, identity), **self.access(function), queue=function.queue, **place)

    def clear(self, step, _):
        self.engine.clear_error(self.variables[step.variable])

    def delete(self, step, _):
        variable, v = self.variables[step.variable], step.variable

        def on_deleted():
            if self.writers[v] or self.readers[v] or v in self.deleted:
                self.clashes.append(("delete", v))
            self.deleted[v] = (self.values[v], variable.version)

        self.engine.delete_variable(variable, on_deleted)
        self.variables[v] = None
        self.variables.append(self.engine.new_variable())
        self.values.append(step.becomes)
        self.readers.append(0)
        self.writers.append(0)

    def wait(self, step, expected):
        assert self.raised_by_all() == expected

    def wait_for(self, step, expected):
        v = step.variable
        assert self.raised_by(v) == expected
        assert self.values[v] == self.oracle.values[v]
        assert self.variables[v].version == self.oracle.versions[v]

    # What came of it

    def raised_by_all(self):
        """The names of the causes that wait_for_all raises now; for who has the engine to itself."""
        return self.names(reported_by(self.engine))

    def names(self, causes):
        """The names of those causes that are this runner's."""
        return {cause.name for cause in causes if cause.runner is self}

    def raised_by(self, v):
        """The name of the first cause that waiting for a variable raises, or None."""
        try:
            self.engine.wait_for_var(self.variables[v], timeout_s=60)
        except EngineError as error:
            cause = error.__cause__
        else:
            return None
        assert isinstance(cause, Planned)
        assert cause.runner is self
        return cause.name

    def check(self, reported):
        """Everything equals the serial run; reported: the names of the causes that the last wait_for_all
        has raised.
        """
        oracle = self.oracle
        assert not self.clashes
        live = [v for v, variable in enumerate(self.variables) if variable]
        assert {v: self.values[v] for v in live} == {v: oracle.values[v] for v in live}
        assert {v: self.variables[v].version for v in live} == {v: oracle.versions[v] for v in live}
        assert {v: self.raised_by(v) for v in live} == {v: oracle.poison[v] for v in live}
        assert {v: self.raised_by(v) for v in live[::7]} == {v: oracle.poison[v] for v in live[::7]}
        assert self.deleted == oracle.deleted
        assert self.runs == oracle.runs
        assert len(self.log) == oracle.counts["ran"]
        assert not any(self.readers)
        assert not any(self.writers)
        assert reported == oracle.unreported


def run_and_check(engine, program, seed=0):
    """Runs the program from this thread and compares everything; returns the runner."""
    with Completer(seed) as completer:
        runner = Runner(engine, program, completer).run()
        runner.check(runner.raised_by_all())
    return runner
