"""weft's native core. Private: its Python faces are the modules of weft."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy
from numpy.typing import NDArray

from weft import Tensor as Tensor
from types import ModuleType
import weft.base.device
import weft.base.errors


def dnnl_version() -> tuple[int, int, int]: ...

def end_python() -> None: ...

def register(*, array_loop: Callable[[], Callable[[str, str, str, int], Kernel]] = ..., as_device: Callable[[], Callable[[object], object]] = ..., as_dtype: Callable[[], Callable[[object], object]] = ..., asarray: Callable[[], Callable[..., object]] = ..., assign: Callable[[], Callable[[object, object, object], object]] = ..., call_foreign: Callable[[], Callable[[object, tuple], object]] = ..., count_non_finite: Callable[[], Callable[[str, int], Kernel]] = ..., current_device: Callable[[], Callable[[], object]] = ..., device_error: Callable[[], type[Exception]] = ..., device_type: Callable[[], type] = ..., dtype_error: Callable[[], type[Exception]] = ..., dtype_type: Callable[[], type] = ..., dtypes: Callable[[], Sequence[object]] = ..., elements_exported: Callable[[], Callable[[object], None]] = ..., engine_error: Callable[[], type[Exception]] = ..., engine_error_group: Callable[[], type[Exception]] = ..., ever_scoped: Callable[[], list[bool]] = ..., failure_class: Callable[[], Callable[[type], type]] = ..., folder: Callable[[], str] = ..., traced_float_type: Callable[[], type] = ..., module_here: Callable[[], Callable[[], int]] = ..., of_sizes: Callable[[], Callable[[object, object, object, object], object]] = ..., on_deleted: Callable[[], Callable[[object], Callable[[object], None]]] = ..., operator_function: Callable[[], Callable[[str], Callable[..., object]]] = ..., plan_backward: Callable[[], Callable[[object, list[bool], list[bool]], Plan | None]] = ..., plan_call: Callable[[], Callable[[object, list, dict[str, object], str, bool], Plan | None]] = ..., plan_recording: Callable[[], Callable[[object], tuple[Plan | None, list[tuple[int, int]]]]] = ..., refusal: Callable[[], Callable[[object, list, dict], TypeError]] = ..., shape_error: Callable[[], type[Exception]] = ..., subscript: Callable[[], Callable[[object, object], object]] = ..., window_of: Callable[[], Callable[[object, list], object]] = ...) -> None:
    """
    Give native code what it asks of weft's Python side.

    Each is a function that gives what is meant; it is called once, when that is first needed.
    Raises TypeError for other names.
    """

class RunContext:
    """
    What an engine function is called with: what only run time knows.

    device: the Device it runs on; stream: the device's for this queue, a number, None on cpu; worker: index of the thread within its
    queue, -1 on the pushing thread; queue: the queue's name; operation: the operation's name;
    error: the EngineError of what it uses, if it was pushed with run_on_error; else None.
    """

    @property
    def device(self) -> weft.base.device.Device: ...

    @property
    def stream(self) -> object: ...

    @property
    def worker(self) -> int: ...

    @property
    def queue(self) -> str: ...

    @property
    def operation(self) -> str: ...

    @property
    def error(self) -> weft.base.errors.EngineError | None: ...

    def __repr__(self) -> str: ...

class OnComplete:
    """
    Ends an asynchronous operation: call it once, from any thread.

    on_complete(error=None): with an exception or a str the operation has failed.
    Raises EngineError if the operation has ended already, TypeError for another error.
    """

    def __call__(self, error: BaseException | type[BaseException] | str | None = None) -> None: ...

class NativeFunction:
    """
    A C function ``void f(void* data)`` for the engine, given by its address (ctypes, cffi, numba).

    It runs without the GIL. cheap: it lasts less than a microsecond or so and may run on the pushing thread if
    nothing it needs is busy; whether it did cannot be observed. keep: an object kept alive as long as the function.
    Raises ValueError if address is 0.

    >>> import ctypes
    >>> from weft.engine import Engine, NativeFunction
    >>> libc = ctypes.CDLL(None)
    >>> address = ctypes.cast(libc.free, ctypes.c_void_p).value
    >>> with Engine() as engine:
    ...     engine.push(NativeFunction(address, 0, name='free(NULL)'))
    ...     engine.wait_for_all()
    """

    def __init__(self, address: int, data: int = 0, *, cheap: bool = False, name: str = '', keep: object | None = None) -> None: ...

    @property
    def cheap(self) -> bool: ...

    @property
    def name(self) -> str: ...

def add_device_kind(name: str, stream: object | None = None) -> None: ...

def device_kind_counters(arg: str, /) -> dict: ...

def gpu_chips() -> list[str]:
    """
    For each GPU what code is compiled for: "sm_90" or so, "stand-in". Raises DeviceError.
    """

class Variable:
    """
    A token for any resource: what operations read and mutate. Made by Engine.new_variable().

    version: how many operations that wrote it have run. Dropping the last reference deletes it.
    """

    @property
    def version(self) -> int: ...

    def __repr__(self) -> str: ...

class Operator:
    """
    A function with its variables, made once by Engine.new_operator() and pushed many times.
    """

    @property
    def name(self) -> str: ...

    def __repr__(self) -> str: ...

class OperationRecord:
    """What an observer is told of an operation."""

    @property
    def id(self) -> int: ...

    @property
    def operation(self) -> str: ...

    @property
    def device(self) -> weft.base.device.Device: ...

    @property
    def queue(self) -> str: ...

    @property
    def worker(self) -> int: ...

    @property
    def error(self) -> weft.base.errors.EngineError | None: ...

class Engine:
    def __init__(self, kind: str, workers: int, io_workers: int, max_pending: int, max_pending_bytes: int, seed: int, check: bool) -> None: ...

    @property
    def workers(self) -> int:
        """Narrow compute threads of each device."""

    @property
    def running(self) -> bool:
        """Whether it takes operations."""

    def new_variable(self) -> Variable:
        """A new Variable of this engine, at version 0."""

    def delete_variable(self, variable: Variable, on_deleted: Callable[[], object] | None = None) -> None:
        """
        Delete a variable after everything that has been pushed on it, then call ``on_deleted()`` on a worker.

        Raises EngineError if it has been deleted already or belongs to another engine.
        """

    def push(self, fn: Callable[[RunContext], object] | NativeFunction | Operator, device: weft.base.device.Device | str | None = None, const_vars: Iterable[Variable | Tensor] = (), mutate_vars: Iterable[Variable | Tensor] = (), overwrite_vars: Iterable[Variable | Tensor] = (), priority: int = 0, name: str = '', *, queue: str = 'compute', size_bytes: int = 0, on_done: Callable[[weft.base.errors.EngineError | None], object] | None = None, run_on_error: bool = False) -> None:
        """
        Run ``fn(run_context)`` once the variables it uses are free; returns at once.

        fn: any callable, a NativeFunction, or an Operator (then only device and priority may be given).
        device: None (cpu:0), "cpu:1" or a Device. const_vars, mutate_vars, overwrite_vars: the Variables it reads,
        changes, and writes without reading. A variable listed twice, or read and written, counts as written.
        priority: higher runs first among the ready operations of a queue. name: for errors and observers.
        queue: "compute", "wide" (opens a parallel region: has the device's compute work to itself), "copy", "io",
        "priority". size_bytes: memory the operation holds while it is pending, for back-pressure.
        on_done: called with None or the EngineError when this operation has finished, failed or been skipped. If it
            returns False, the error still counts as one that nothing has raised.
        run_on_error: it also runs where a variable that it reads or changes is poisoned; run_context.error says so.
        What it changes stays poisoned where it was; what else it writes is good if it succeeds.

        What fn raises poisons what it would have written and is raised by the waits. On a thread of the user's, push blocks
        while more than max_pending operations or max_pending_bytes bytes are pending.
        Raises EngineError if the engine is stopped or a variable is deleted or another engine's, DeviceError for a device
        that is not there, TypeError and ValueError for other arguments.

        >>> from weft.engine import Engine
        >>> with Engine() as engine:
        ...     log, order = [], engine.new_variable()
        ...     for i in range(3):
        ...         engine.push(lambda run_context, i=i: log.append(i), mutate_vars=[order])
        ...     engine.wait_for_var(order)
        >>> log
        [0, 1, 2]
        """

    def push_async(self, fn: Callable[[RunContext, OnComplete], object], device: weft.base.device.Device | str | None = None, const_vars: Iterable[Variable | Tensor] = (), mutate_vars: Iterable[Variable | Tensor] = (), overwrite_vars: Iterable[Variable | Tensor] = (), priority: int = 0, name: str = '', *, queue: str = 'io', size_bytes: int = 0, on_done: Callable[[weft.base.errors.EngineError | None], object] | None = None, run_on_error: bool = False) -> None:
        """
        Like push, for ``fn(run_context, on_complete)``: the operation lasts until ``on_complete()`` is called.

        on_complete may be called once, from any thread, with an exception or a str if the operation failed. fn runs
        on the queue "io" unless told otherwise and may block there. If fn raises first, the operation has failed;
        likewise if on_complete is dropped without having been called.
        """

    def new_operator(self, fn: Callable[..., object] | NativeFunction, const_vars: Iterable[Variable | Tensor] = (), mutate_vars: Iterable[Variable | Tensor] = (), name: str = '', is_async: bool = False, *, overwrite_vars: Iterable[Variable | Tensor] = (), queue: str | None = None, run_on_error: bool = False) -> Operator:
        """
        An Operator to push many times: fn, its variables and its name, taken apart only once.

        is_async: fn is called as by push_async. queue: as for push; None: "io" if asynchronous, else "compute".
        run_on_error: as for push.
        """

    def delete_operator(self, operator: Operator) -> None:
        """No more pushes of it; it is freed when those before have finished."""

    def wait_for_var(self, variable: Variable | Tensor, writes_only: bool = False, timeout_s: float | None = None) -> None:
        """
        Wait for everything pushed on a variable before; with writes_only for what produces its value.

        Raises EngineError if the variable is poisoned (each time, with the same first cause), TimeoutError after
        timeout_s seconds. Inside an engine function a variable that the function declared is ready already; any
        other wait raises EngineError there, because it would block a worker. Ctrl-C ends the wait.
        """

    def wait_for_all(self, timeout_s: float | None = None) -> None:
        """
        Wait for everything pushed before this call.

        Raises EngineError for a failure that no wait_for_all has raised yet, EngineErrorGroup for several;
        TimeoutError after timeout_s seconds.
        """

    def clear_error(self, variable: Variable | Tensor) -> None:
        """
        Forget a variable's error, after what has been pushed on it before; its value is what it is.
        """

    def throw_if_failed(self, variable: Variable | Tensor) -> None:
        """
        Raise the EngineError that poisons a variable now; waits for nothing that is pending.

        May be called inside of engine functions, too.
        """

    def start(self) -> None:
        """Take operations again after stop()."""

    def stop(self, timeout_s: float | None = None) -> None:
        """
        Finish what is pending and end the threads; pushes raise EngineError until start().

        Variables, their versions and their errors stay. Raises TimeoutError after timeout_s seconds; the engine
        then goes on.
        """

    def check_access(self, variable: Variable | Tensor, write: bool = False) -> None:
        """
        With check=True or WEFT_CHECK=1: raise EngineError if this access was not declared.

        Inside an engine function: the function must have declared it. Outside: no pending operation may conflict.
        For those who wrap a resource with a variable. Does nothing otherwise.
        """

    def add_observer(self, observer: object) -> None:
        """
        Call ``observer.on_push(record)``, ``on_start`` and ``on_end``, those it has, for each operation.

        They run on the thread where it happens. record: id, operation, device, queue, worker, error. What they raise
        goes to sys.unraisablehook. Skipped operations have no on_start.
        """

    def remove_observer(self, observer: object) -> None:
        """Stop calling an observer."""

    def stats(self) -> dict[str, int]:
        """
        Counters since the engine was made, as a dict.

        pushed, finished (failed and skipped ones included), failed, skipped, inlined (cheap native functions that
        ran on the pushing thread); now: pending, running, async_outstanding (started, not completed), threads;
        stalls (pushes held back), wakes (threads woken).
        """

def usable_cores() -> int: ...

def settle_engines(arg: float, /) -> bool: ...

def shut_down_engines(timeout_s: float) -> tuple[list[str], list[str]]: ...

MOST_WORD: int = 4611686018427387904

class RandomStream:
    def __init__(self, arg: object, /) -> None: ...

    def __copy__(self) -> RandomStream: ...

def random_stream() -> object: ...

def set_random_stream(stream: object | None) -> object: ...

def random_blocks(kind: str, dtype: object, count: int) -> int:
    """How many positions of a stream it takes."""

def seed_all(arg: int, /) -> None: ...

def seed_of_gpus() -> int: ...

def seed_gpus(arg0: int, arg1: Sequence[int], /) -> None: ...

def get_generator(arg: object, /) -> tuple[int, int, int]: ...

def set_generator(arg0: object, arg1: int, arg2: int, arg3: int, /) -> None: ...

def random_uniform(low: float, high: float, shape: object, dtype: object, device: object | None) -> object: ...

def random_normal(mean: float, std: float, shape: object, dtype: object, device: object | None) -> object: ...

def random_integers(low: int, high: int, shape: object, dtype: object, device: object | None) -> object: ...

def random_permutation(arg: object, /) -> object: ...

class Memory:
    """
    Bytes of a device's pool: made by weft.storage.alloc(), given back by free() or with the last reference.

    size_bytes, device, address (0: freed, or of no bytes). Objects that read buffers take it: memoryview(m), numpy.frombuffer(m).
    The engine takes it where it takes variables; operations that use it keep the bytes until they have finished.
    """

    @property
    def size_bytes(self) -> int: ...

    @property
    def device(self) -> weft.base.device.Device: ...

    @property
    def address(self) -> int: ...

    @property
    def freed(self) -> bool: ...

    def free(self) -> None:
        """
        Give the bytes back to the pool, after the operations that use them.

        Raises ValueError if that has been done, BufferError while memoryviews or arrays show them.
        """

    def __repr__(self) -> str: ...

def allocate_memory(bytes: int, device: object | None) -> Memory: ...

def set_array_engine(arg: Engine, /) -> None: ...

def memory_stats(device: object | None = None) -> dict: ...

def set_memory_limit(device: object | None, bytes: int) -> None: ...

def hides_memory(device: object | None) -> bool:
    """Whether the host cannot touch the memory of a device."""

def used_devices() -> list[str]:
    """The names of the devices whose memory has been used."""

def check_memory(device: object | None = None) -> int: ...

def trim_memory(device: object | None = None) -> int: ...

def reset_device(device: object | None) -> None:
    """
    Gives a GPU a new context and new memory; its arrays are lost. Raises DeviceError.
    """

def reset_memory_peaks(device: object | None = None) -> None: ...

def view_as(x: object, dtype: object) -> object: ...

def fitted_number(arg0: object, arg1: object, /) -> object: ...

def describe(arg: object, /) -> str: ...

def is_contiguous(arg: object, /) -> bool: ...

def shares_memory(arg0: object, arg1: object, /) -> bool: ...

def copy_of(x: object, dtype: object | None = None, device: object | None = None) -> object: ...

def gradient(x: object) -> object: ...

def gradients(tensors: list) -> list: ...

def forget_gradients(tensors: list) -> None: ...

def set_gradient(x: object, dx: object | None) -> None: ...

def empty(shape, dtype=None, device=None):
    """
    A new tensor of undefined elements. shape: an int or a sequence of ints; dtype: float32 unless given.

    Raises ShapeError for negative or absurd sizes, MemoryError if there is not enough memory.

    >>> import weft as wf
    >>> wf.empty((2, 3), dtype="int8").shape
    (2, 3)
    """

def zeros(shape, dtype=None, device=None):
    """
    A new tensor of zeros; see empty.

    >>> import weft as wf
    >>> wf.zeros(2)
    tensor([0., 0.], dtype=float32, device=cpu:0)
    """

def ones(shape, dtype=None, device=None):
    """
    A new tensor of ones; see empty.

    >>> import weft as wf
    >>> wf.ones(2, dtype="int8")
    tensor([1, 1], dtype=int8, device=cpu:0)
    """

def full(shape, fill_value, dtype=None, device=None):
    """
    A new tensor filled with a number or a 0-d tensor. dtype: that of the value unless given: float32, int64, bool.

    Raises OverflowError if an integer type cannot hold the value.

    >>> import weft as wf
    >>> wf.full((2,), 7)
    tensor([7, 7], dtype=int64, device=cpu:0)
    """

def from_nested(data: object | None, dtype: object | None, device: object | None) -> object: ...

def stepped(count: int, start: object, step: object, dtype: object, device: object | None) -> object: ...

def diagonal(x: object, k: int = 0) -> object: ...

def from_buffer(object: object, device: object | None = None) -> object: ...

def tensor_from_buffer(buffer: object, offset: int, shape: object, dtype: object, device: object | None = None) -> object: ...

def memory(arg: object, /) -> object: ...

def write_now(arg0: object, arg1: object, /) -> None: ...

def dlpack_of(x: object, stream: object | None, max_version: object | None, dl_device: object | None, copy: object | None) -> object: ...

def dlpack_device_of(arg: object, /) -> object: ...

def dlpack_stream(type: int, index: int) -> object:
    """
    The address of the stream that an array of another library has to be ready for; None on a cpu.
    """

def from_dlpack_capsule(capsule: object, device: object | None = None) -> object: ...

class Kernel:
    """A computation on memory that native code runs."""

    @property
    def reorders(self) -> int:
        """How many copies into other layouts a run makes."""

    @property
    def is_reference(self) -> bool:
        """Whether it runs oneDNN's slow reference code."""

class Plan:
    """A program, and what it was made from."""

    @property
    def info(self) -> object: ...

    def bind_ahead(self, step: int) -> bool: ...

    def is_of_many(self) -> None: ...

    def have_history(self, arg: Sequence[bool], /) -> None: ...

    @property
    def uses(self) -> list: ...

    @property
    def name(self) -> str: ...

class ProgramBuilder:
    """
    A program that is being described: values and registers by number, what has kinds by method or word.

    Each add_... of a value gives its number: the inputs come first. Words that are none of those accepted raise
    ValueError, and what refers to something that is not there does so when the plan is made.
    """

    def __init__(self, name: str, device: object | None, inputs: int, *, is_exact: bool = False, is_wide: bool = False, is_copy: bool = False, is_checked: bool = False) -> None: ...

    def use(self, input: int, how: int) -> None: ...

    def add_input(self, dtype: object, shape: Sequence[int], strides: Sequence[int]) -> None: ...

    def add_constant(self, register: int, value: int) -> None: ...

    def add_load(self, from_: str, register: int, input: int, dimension: int) -> None: ...

    def add_compute(self, what: str, register: int, a: int, b: int) -> None: ...

    def add_output(self, dtype: object, like: int, sizes: Sequence[int], strides: Sequence[int]) -> int: ...

    def add_temporary(self, dtype: object, offset: int, sizes: Sequence[int], strides: Sequence[int]) -> int: ...

    def add_kept(self, dtype: object, sizes: Sequence[int], strides: Sequence[int]) -> int: ...

    def add_view(self, dtype: object, base: int, offset: int, sizes: Sequence[int], strides: Sequence[int]) -> int: ...

    def add_result(self, value: int, into: int = -1, is_flexible: bool = False, commits: bool = False) -> None: ...

    def add_number(self, dtype: object, number: int) -> None: ...

    def add_register(self, dtype: object, register: int) -> None: ...

    def add_number_known(self, dtype: object, value: float) -> None: ...

    def add_random_word(self, dtype: object) -> None: ...

    def add_draw(self, kind: str, dtype: object, count: int, first_slot: int) -> None: ...

    def add_step(self, kernel: Kernel, operands: Sequence[int], first_slot: int, name: str, where: str, in_place: Sequence[tuple[int, int]], written: Sequence[int], is_copy: bool = False) -> None: ...

    def add_hoisted(self, reads: Sequence[int], writes: Sequence[int]) -> None: ...

    def set_arena(self, register: int) -> None: ...

    def add_span(self, first: int, last: int, offset: int, bytes: int) -> None: ...

    def add_part(self, plan: Plan, inputs: Sequence[int], numbers: Sequence[int], outputs: Sequence[int]) -> None: ...

    def add_wire(self, wire: int, into: int, dtype: object, device: object | None, shape: Sequence[int], strides: Sequence[int]) -> None: ...

    def plan(self, visible: int, as_tuple: bool, info: object, *, serial: int = 0, gradients: Sequence[bool] = [], strides: Sequence[Sequence[int]] = []) -> Plan:
        """
        The plan; nothing can be added afterwards. visible: how many results callers get.
        """

def make_loop(operands: int, inputs: int, row_axes: int, position_axes: int, ordered: bool, compile: object, split: object | None = None, apart: object | None = None) -> Kernel: ...

def make_thread_loop(operands: int, inputs: int, row_axes: int, position_axes: int, ordered: bool, joins: bool, keeps: bool, factors: int, compile: object, split: object | None = None, apart: object | None = None) -> Kernel: ...

def make_thread_launches(operands: int, loops: Sequence[tuple[int, int]], scratch: Sequence[tuple[Sequence[int], str]], launches: list, work: Sequence[tuple[Sequence[int], str]] = [], limits: Sequence[int] = []) -> Kernel:
    """Launches of code for threads: program/thread_launches.h."""

def kernel_foreach(body: Plan, sequences: int, rest: int, items: int, saved: Sequence[bool], reverse: bool, counted: bool) -> Kernel: ...

def kernel_while(condition: Plan, body: Plan, rest: int, limit: int, counted: bool, saved: Sequence[bool]) -> Kernel: ...

def kernel_cond(then: Plan, otherwise: Plan, inputs: int) -> Kernel: ...

def exported_plans(name: str, level: str, code: bytes, weights_bytes: int, weights: Sequence, variants: Sequence, symbol_of: object) -> bytes:
    """
    The file of exported programs. NotImplementedError, with the operator and the user's line, for a kernel that needs Python.
    """

def visit_plan(plan: Plan, arrays: list) -> None:
    """
    For exports: makes all code that a plan may run, also in loops and branches, by a run of its own.
    """

def program_counters() -> dict: ...

def watch_nan(arg: int, /) -> int: ...

def run_kernel(kernel: Kernel, operands: Sequence, parameters: bytes = ...) -> None: ...

def open_recorder(engines: list, memory: bool = True, limit: int = 4000000) -> bool: ...

def close_recorder() -> object: ...

def peek_recorder() -> object: ...

def set_recording_context(arg: int, /) -> int: ...

def recording_context() -> int: ...

def operator_function(arg: object, /) -> object: ...

def add_method(arg0: str, arg1: str, /) -> None: ...

def call_into(arg0: object, arg1: object, arg2: tuple, arg3: dict, /) -> object: ...

def operator_counters() -> dict: ...

def forget_users_plans() -> None: ...

def plan_count(arg: object, /) -> int: ...

def layers() -> object: ...

def set_layers(layers: object | None) -> None: ...

def emit(op: object, args: tuple[object, ...]) -> Any: ...

def capture() -> object: ...

def set_capture(capture: object | None) -> None: ...

def below_layers(function: Callable[..., object], *args: object) -> Any: ...

class Leaf:
    """A tensor that gradients are wanted of, from watch() on."""

def set_recording(arg: bool, /) -> None: ...

def swap_recording_off(arg: int, /) -> int: ...

def set_no_grad(arg: bool, /) -> None: ...

def begin_epoch() -> tuple: ...

def epoch() -> int: ...

def end_epoch(arg: tuple, /) -> None: ...

def is_stopping() -> bool: ...

def is_recording() -> bool: ...

def write_count(arg: object, /) -> int: ...

def watch(arg: object, /) -> Leaf: ...

def run_plan(plan: Plan, arrays: list, numbers: list = [], into: list = [], late: bool = False) -> list: ...

def unwatch(arg0: object, arg1: Leaf, /) -> None: ...

def by_operators(arg: object, /) -> bool: ...

def state_of(arg: object, /) -> tuple: ...

def is_stopped(x: object, epoch: int = 0) -> bool: ...

def is_tracked(arg: object, /) -> bool: ...

def have_same_past(arg0: object, arg1: object, /) -> bool: ...

def overwrite(x: object, name: str) -> bool: ...

def alias(x: object, keep_past: bool, is_result: bool = False) -> object: ...

def backward(roots: list, cotangents: list, leaves: list, create_graph: bool, on_final: object | None = None) -> list: ...

def begin_noting() -> None: ...

def end_noting(arg: list, /) -> bool: ...

def record_function(arg0: list, arg1: list, arg2: object, /) -> None: ...

def set_recorder(target: object | None) -> object: ...

def depends_on(arg: object, /) -> None: ...

def get_recorder() -> object: ...

class Held:
    """Memory of an array that lazy evaluation keeps."""

    @property
    def alone(self) -> bool: ...

    @property
    def has_faces(self) -> bool:
        """Whether a Tensor of Python has this memory."""

    def tensor(self) -> object: ...

    def let_go(self) -> None: ...

def note_change() -> None: ...

def is_alive(arg: int, /) -> bool: ...

def has_faces(arg: int, /) -> bool: ...

def last_serial() -> int: ...

def geometry(arg: object, /) -> object: ...

def window(arg0: object, arg1: int, arg2: object, arg3: object, /) -> object: ...

class Log:
    """
    What lazy evaluation has put off; for an object that makes programs of it.
    """

    def __init__(self, target: object, watched: bool = False) -> None: ...

    def flush(self) -> None: ...

    @property
    def segments(self) -> int:
        """How many programs were run."""

    @property
    def unseen_bytes(self) -> int:
        """
        Memory of results that nobody could see any more, so that they were not written.
        """

def log_counters() -> dict: ...

class Find:
    """
    Where a call finds something: among its leaves, the outputs of the program, in an object, or by a function of
    the leaves. window: (offset, shape, strides) of an array, None: all of it.
    """

    @staticmethod
    def leaf(number: int, window: tuple[int, Sequence[int], Sequence[int]] | None = None) -> Find: ...

    @staticmethod
    def output(number: int, window: tuple[int, Sequence[int], Sequence[int]] | None = None) -> Find: ...

    @staticmethod
    def object(value: object | None, window: tuple[int, Sequence[int], Sequence[int]] | None = None) -> Find: ...

    @staticmethod
    def python(function: Callable, window: tuple[int, Sequence[int], Sequence[int]] | None = None) -> Find: ...

    def look_up(self, leaves: list, outputs: list = []) -> Any: ...

    def with_window(self, window: tuple[int, Sequence[int], Sequence[int]] | None) -> Find:
        """The same, of which another part is meant."""

    @property
    def kind(self) -> Literal['leaf', 'object', 'output', 'python']: ...

    @property
    def what(self) -> Any: ...

    @property
    def window(self) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None: ...

class ReplaySpec:
    """
    A program of a traced function, and how calls use it.

    arrays, numbers: where what it takes is found; results, of which those that are `stopped` have no
    history. environment: (container, name, value) of what was found outside of the arguments; is_doubted: it may read more; watched,
    containers:
    things whose states matter; gradients: whether tensors had one; guard: what else has to hold of the leaves.
    build: makes the result of the list of results; effect: sets gradients; elsewhere: memory that arguments
    may not share, by serial, ascending; shared: tensors found outside of them that lie in one memory with others.
    """

    def __init__(self, plan: Plan) -> None: ...

    @property
    def arrays(self) -> list[Find]: ...

    @arrays.setter
    def arrays(self, arg: Sequence[Find], /) -> None: ...

    @property
    def numbers(self) -> list[Find]: ...

    @numbers.setter
    def numbers(self, arg: Sequence[Find], /) -> None: ...

    @property
    def results(self) -> list[Find]: ...

    @results.setter
    def results(self, arg: Sequence[Find], /) -> None: ...

    @property
    def stopped(self) -> list[int]: ...

    @stopped.setter
    def stopped(self, arg: Sequence[int], /) -> None: ...

    @property
    def environment(self) -> list[tuple[object, object, object]]: ...

    @environment.setter
    def environment(self, arg: Sequence[tuple[object, object, object]], /) -> None: ...

    @property
    def is_doubted(self) -> bool: ...

    @is_doubted.setter
    def is_doubted(self, arg: bool, /) -> None: ...

    @property
    def watched(self) -> object: ...

    @watched.setter
    def watched(self, arg: object, /) -> None: ...

    @property
    def containers(self) -> list[object]: ...

    @containers.setter
    def containers(self, arg: Sequence[object], /) -> None: ...

    @property
    def gradients(self) -> list[tuple[Find, bool]]: ...

    @gradients.setter
    def gradients(self, arg: Sequence[tuple[Find, bool]], /) -> None: ...

    @property
    def guard(self) -> object: ...

    @guard.setter
    def guard(self, arg: object, /) -> None: ...

    @property
    def build(self) -> object: ...

    @build.setter
    def build(self, arg: object, /) -> None: ...

    @property
    def effect(self) -> object: ...

    @effect.setter
    def effect(self, arg: object, /) -> None: ...

    @property
    def elsewhere(self) -> list[int]: ...

    @elsewhere.setter
    def elsewhere(self, arg: Sequence[int], /) -> None: ...

    @property
    def shared(self) -> list[object]: ...

    @shared.setter
    def shared(self, arg: Sequence[object], /) -> None: ...

def is_as_it_was(container: object, name: object | None, value: object | None) -> bool: ...

class NoProgram:
    """What Replays.run gives for a call that no program has run."""

    def __init__(self, reason: str) -> None: ...

    @property
    def reason(self) -> str: ...

    @property
    def doubted(self) -> Any: ...

class Replays:
    """The programs of a traced function, by the kind of its arguments."""

    def __init__(self) -> None: ...

    @property
    def closed(self) -> bool: ...

    @closed.setter
    def closed(self, value: bool, /) -> None: ...

    def run(self, args: object, kwargs: object, function: object | None = None) -> Any: ...

    def call_directly(self, args: object, kwargs: object) -> None: ...

    def add(self, args: tuple, kwargs: dict, owner: object | None, spec: ReplaySpec | None = None, runs: int = 0) -> None: ...

    def drop(self, owner: object) -> int: ...

class Layout:
    """
    A memory layout that a kernel chose: of packed weights, or of a workspace.
    """

    @property
    def bytes(self) -> int: ...

    @property
    def is_plain(self) -> bool:
        """
        Whether strides describe it, so that nothing is gained by a copy that has it.
        """

    @property
    def strides(self) -> list[int] | None:
        """In elements; None if it is not plain."""

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

class OnednnKernel(Kernel):
    """A kernel that oneDNN computes."""

    @property
    def scratch_bytes(self) -> int: ...

    @property
    def implementation(self) -> str: ...

    @property
    def is_wide(self) -> bool:
        """
        Whether half types are computed in float32, because oneDNN has no code for them.
        """

    @property
    def operands(self) -> int: ...

    @property
    def pieces(self) -> int:
        """
        How many pieces the threads of the team share out; 0: oneDNN opens regions of its own.
        """

    @property
    def id(self) -> int:
        """Equal for equal requests while the kernel is kept."""

    def layout(self, operand: int) -> Layout | None:
        """Of an operand given as 'any', or a workspace; else None."""

def onednn_matmul(a: object, b: object, c: object, *, bias: object | None = None, accumulate: bool = False, post_ops: object = (), narrow: bool = False) -> OnednnKernel:
    """
    c = post(a @ b + bias), or c += that. Operands: a, b, [bias], [those of post-ops]; c. narrow: the numbers of b are from -64 to 63, of bytes.
    """

def onednn_product_of_any_size(dtype: object, *, transposed: bool = False, bias: bool = False) -> Kernel:
    """
    A product for all sizes. Operands: a, b (transposed: as [n, k]), [bias]; c.
    """

def onednn_reorder(src: object, dst: object, *, accumulate: bool = False) -> OnednnKernel:
    """dst = convert(src), or dst += that. Operands: src; dst."""

def onednn_adds_bytes() -> bool:
    """
    Whether there are instructions, at the level in use, that add products of bytes in 32 bits.
    """

def onednn_layout(x: object) -> Layout:
    """
    The layout of an array with strides; kernels that choose these tell an equal one.
    """

def onednn_convolution(src: object, weights: object, dst: object, *, stride: Sequence[int], padding: Sequence[tuple[int, int]], dilation: Sequence[int], groups: int = 1, bias: object | None = None, accumulate: bool = False, post_ops: object = (), narrow: bool = False) -> OnednnKernel:
    """
    Operands: src, weights, [bias], [those of post-ops]; dst. narrow: the weights are from -64 to 63, of bytes.
    """

def onednn_convolution_backward_data(ddst: object, weights: object, dsrc: object, *, stride: Sequence[int], padding: Sequence[tuple[int, int]], dilation: Sequence[int], groups: int = 1, accumulate: bool = False) -> OnednnKernel:
    """Operands: ddst, weights; dsrc."""

def onednn_convolution_backward_weights(src: object, ddst: object, dweights: object, *, stride: Sequence[int], padding: Sequence[tuple[int, int]], dilation: Sequence[int], groups: int = 1, dbias: object | None = None, accumulate: bool = False) -> OnednnKernel:
    """Operands: src, ddst; dweights, [dbias]."""

def onednn_convolution_of_any_size(dtype: object, *, of: str, stride: Sequence[int], padding: Sequence[tuple[int, int]], dilation: Sequence[int], groups: int = 1, bias: bool = False) -> Kernel:
    """
    For all sizes. Operands of 'dst': src, weights, [bias]; dst. Of 'src': ddst, weights; dsrc.
    Of 'weights': src, ddst; dweights.
    """

def onednn_pooling(src: object, dst: object, *, kind: str, window: Sequence[int], stride: Sequence[int], padding: Sequence[tuple[int, int]], dilation: Sequence[int], training: bool = False) -> OnednnKernel:
    """
    kind: max, average, average_with_padding. Operands: src; dst, [workspace of max if training].
    """

def onednn_pooling_backward(src: object, dst: object, ddst: object, dsrc: object, *, kind: str, window: Sequence[int], stride: Sequence[int], padding: Sequence[tuple[int, int]], dilation: Sequence[int]) -> OnednnKernel:
    """
    src, dst: as the forward kernel was given them. Operands: ddst, [workspace of max]; dsrc.
    """

def onednn_lstm(src: object, dst: object, *, layers: int = 1, bidirectional: bool = False, training: bool = False) -> Kernel:
    """
    src[t,n,c], dst[t,n,d*h]. Operands: src, h0, c0, for each layer and direction w_ih, w_hh, b_ih, b_hh; dst,
    hn, cn, [workspace if training]. All are row-major and of one type, float32 or bfloat16.
    """

def onednn_lstm_backward(src: object, dst: object, *, layers: int = 1, bidirectional: bool = False) -> Kernel:
    """
    Operands: src, h0, c0, the parameters, dst, hn, cn, workspace, ddst, dhn, dcn; dsrc, dh0, dc0, and the
    gradient of each parameter.
    """

def onednn_lstm_workspace(src: object, dst: object, *, layers: int = 1, bidirectional: bool = False) -> int:
    """Bytes of the workspace."""

def onednn_counters() -> dict: ...

def set_onednn_cache_limit(kernels: int) -> None: ...

def prebuilt_kernel(key: int) -> int:
    """
    The address of a kernel compiled with the package, by its text's hash; 0: none.
    """

def isa() -> tuple[str, str, bool]:
    """
    The levels of instructions that the processor has and that are used, and whether $WEFT_ISA names the latter,
    so that the processor's other instructions are not used.
    """

def set_lapack(addresses: Sequence[int], integer_bytes: int) -> None:
    """
    The addresses of LAPACK's routines, by type and routine as kernels/lapack.h lists them.
    """

def has_lapack() -> bool: ...

def kernel_product(accumulate: bool) -> Kernel:
    """a, b -> y."""

def kernel_cholesky(upper: bool) -> Kernel:
    """x -> l or u."""

def kernel_lu_factor() -> Kernel:
    """x -> lu, int32 pivots, int32 permutation."""

def kernel_det() -> Kernel:
    """x -> y."""

def kernel_solve(vectors: bool) -> Kernel:
    """a, b -> x."""

def kernel_solve_triangular(upper: bool, unit: bool, vectors: bool) -> Kernel:
    """a, b -> x."""

def kernel_inverse() -> Kernel:
    """x -> y."""

def kernel_qr() -> Kernel:
    """x -> q, r."""

def kernel_svd(full: bool, left: bool, right: bool) -> Kernel:
    """x -> [u,] s, [vh]."""

def kernel_eigh(vectors: bool) -> Kernel:
    """x -> eigenvalues, [vectors]."""

def kernel_eig(vectors: bool) -> Kernel:
    """x -> eigenvalues, [vectors]."""

def set_team_size(threads: int) -> int: ...

def set_kernel_isa(level: str) -> str:
    """
    For tests: native kernels made and run from now on use at most this level. Returns the one before.
    """

def kernel_transfer(to: object, source: object) -> Kernel:
    """x on source -> y on `to`."""

def load_kernels(path: str) -> list[str]:
    """The names of the kernels that a library has added."""

def kernel_alternatives(name: str) -> list[str]: ...

def kernel_outside(name: str, signature: str, numbers: int) -> Kernel:
    """The operands of the signature, as in kernel.h; numbers: float64 each."""

def kernel_sort(axis: int, descending: bool = False, values: bool = True, indices: bool = False) -> Kernel:
    """x -> [values,] [int64 indices]. Stable; NaN last."""

def kernel_topk(axis: int, largest: bool = True) -> Kernel:
    """
    x -> values, int64 indices: best first; k is their size along the axis.
    """

def kernel_take_along_axis(axis: int) -> Kernel:
    """x, indices -> y of the shape of indices."""

def kernel_scatter(axis: int, mode: str = 'set') -> Kernel:
    """
    x, indices, updates -> y (may be x): set, add, max or min along an axis.
    """

def kernel_index_get(dims: Sequence[int], position: int) -> Kernel:
    """x, an index array for each of dims -> y, their dimensions at position."""

def kernel_index_put(dims: Sequence[int], position: int, mode: str = 'set') -> Kernel:
    """x, an index array for each of dims, updates -> y (may be x)."""

def kernel_attention(mask: bool = False, ranges: bool = False, slopes: bool = False, dropout: bool = False) -> Kernel:
    """
    [dy,] q, k, v, [mask], [ranges], [slopes], [words, of dropout], [y, logs] -> y, logs or dq, dk, dv. Parameters: scale, cap (float64), before, after, offset (int64), p (float64).
    """

def kernel_attention_backward(mask: bool = False, ranges: bool = False, slopes: bool = False, dropout: bool = False) -> Kernel:
    """
    [dy,] q, k, v, [mask], [ranges], [slopes], [words, of dropout], [y, logs] -> y, logs or dq, dk, dv. Parameters: scale, cap (float64), before, after, offset (int64), p (float64).
    """

def kernel_dropout(mask: bool = False) -> Kernel:
    """x -> y, [mask]. Parameters: key, stream, offset, p (float64)."""

def kernel_random_uniform() -> Kernel:
    """-> y. Parameters: key, stream, offset, low, high (float64)."""

def kernel_random_normal() -> Kernel:
    """-> y. Parameters: key, stream, offset, mean, std (float64)."""

def kernel_random_integers() -> Kernel:
    """-> y. Parameters: key, stream, offset, low, high (int64)."""

def kernel_gamma() -> Kernel:
    """parameters, uint64 bits -> y; gamma_slope: alpha, y -> dy/dalpha."""

def kernel_gamma_slope() -> Kernel:
    """parameters, uint64 bits -> y; gamma_slope: alpha, y -> dy/dalpha."""

def kernel_poisson() -> Kernel:
    """parameters, uint64 bits -> y; gamma_slope: alpha, y -> dy/dalpha."""

def kernel_binomial() -> Kernel:
    """parameters, uint64 bits -> y; gamma_slope: alpha, y -> dy/dalpha."""

def kernel_multinomial() -> Kernel:
    """parameters, uint64 bits -> y; gamma_slope: alpha, y -> dy/dalpha."""

def kernel_drawn(kernel: Kernel, inputs: int, outputs: int, parameters: int, offset: int) -> Kernel:
    """
    inputs, int64 words[2], int64 position -> outputs: the kernel's, from a stream that inputs give.
    """

def kernel_position() -> Kernel:
    """-> int64 words[2], int64 position. Parameters: key, stream, offset."""

def kernel_bernoulli() -> Kernel:
    """p -> y. Parameters: key, stream, offset."""

def kernel_permutation() -> Kernel:
    """x -> y. Parameters: key, stream, offset."""

def kernel_count_nonzero() -> Kernel:
    """x -> number of true elements."""

def kernel_nonzero() -> Kernel:
    """x -> int64 indices [number, ndim]."""

def kernel_masked_select() -> Kernel:
    """x, mask -> y[number]."""

def kernel_masked_assign() -> Kernel:
    """x, mask, values[number] -> y (may be x)."""

def kernel_check_indices(function: str, axes: Sequence[int]) -> Kernel:
    """indices of each axis -> int64 0. Parameters: the axes' sizes."""

def kernel_check_labels(function: str) -> Kernel:
    """integers -> int64. Parameters: classes, ignored."""

def make_indexed_threads(function: str, loops: Sequence[tuple[int, int]], operands: Sequence[tuple[int, Sequence[int], Sequence[int]]], checks: Sequence[tuple[int, int, int]], find: Sequence[Kernel], loop: Kernel, copy: Kernel | None) -> Kernel:
    """Elements at indices, on a GPU: kernels/indexed_threads.h."""

def make_permuted_threads(gather: Kernel) -> Kernel:
    """x -> y, on a GPU. Parameters: key, stream, offset."""

def make_checked_labels(function: str, find: Kernel, copy: Kernel) -> Kernel:
    """integers -> int64. Parameters: classes, ignored."""

def make_checked_numbers(checks: Sequence[tuple[int, str, Kernel]], loop: Kernel) -> Kernel:
    """
    A loop on a GPU behind checks of its operands: kernels/indexed_threads.h.
    """

def make_matrix_threads(function: str, operand: str, facts: Sequence[str], first: int, stack: int, own_axes: int, launches: Kernel, find: Kernel) -> Kernel:
    """Matrices of a stack, on a GPU: kernels/matrix_threads.h."""

def make_multinomial_threads(checks: Sequence[tuple[int, str, Kernel]], without: Kernel, rows: Kernel) -> Kernel:
    """trials, chances, bits -> counts, on a GPU: kernels/indexed_threads.h."""

def kernel_bincount() -> Kernel:
    """x[n] -> int64 [length]."""

def kernel_searchsorted(right: bool = False) -> Kernel:
    """sorted[.., n], values[.., m] -> int64[.., m]."""

def fourier_takes(points: int) -> bool:
    """Whether kernel_fourier transforms so many points."""

def kernel_fourier(axes: Sequence[int], sizes: Sequence[int], inverse: bool, factor: float) -> Kernel:
    """x -> y: the Fourier transform along axes, times a factor."""

def kernel_real_fourier(axis: int, n: int, inverse: bool, factor: float) -> Kernel:
    """
    x -> y: n real numbers to n // 2 + 1 complex ones, or back, times a factor.
    """

def kernel_two_bits(threshold: float) -> Kernel:
    """
    x f32[n], residual f32[n] -> uint8[4 * ceil(n / 16)], what is left f32[n].
    """

def kernel_grouped_linear(bias: bool) -> Kernel:
    """
    x f32[.., k], weight uint8[n, k / 2] of pairs of 4 bits, scale f32[n, groups], [bias f32[n]] -> f32[.., n]; all row-major.
    """

def kernel_unique() -> Kernel:
    """x[n] -> values[n], int64 first[n], inverse[n], counts[n], number."""

def on_abandoned(arg: object, /) -> None: ...

def kernel_python(function: object, inputs: int, outputs: int, memory: bool = False, context: bool = False, shared: object = ()) -> Kernel:
    """
    inputs -> outputs: function(inputs, outputs), lists of tensors, writes the outputs; memory: lists of (address, dtype, shape, strides in bytes). context: function gets the RunContext, too. shared: (input, output, always): one tensor for both, always or where they are the same memory.
    """

class RecordFile:
    def __init__(self, arg: str, /) -> None: ...

    @property
    def size_bytes(self) -> int: ...

    def find(self, offset: int) -> int: ...

    def read(self, offset: int) -> tuple:
        """(content, offset of the next record), or (None, what is wrong)."""

    def read_many(self, offset: int, end: int, count: int, most_bytes: int) -> tuple:
        """
        (contents of the next records, offset behind them, None or what is wrong there).
        """

    def scan(self, begin: int, end: int, skip: bool = False) -> tuple:
        """
        (offsets of records, where it stopped, None or what is wrong there, places skipped).
        """

def read_record_index(path: str) -> tuple:
    """(keys, None for 0, 1, ..., and offsets) of an index file."""

def image_resize(image: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu')], y: float, x: float, h: float, w: float, filter: str, mirror: bool = False) -> None: ...

def image_warp(image: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu')], matrix: Sequence[float], filter: str, fill: Sequence[int]) -> None: ...

def image_mix_channels(image: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu')], matrix: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]) -> None: ...

def image_look_up(image: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu')], table: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None: ...

def image_count_values(image: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu', writable=False)], counts: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

def image_sharpen(image: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu')], amount: float) -> None: ...

def image_crop(image: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu')], y: int, x: int, mirror: bool = False) -> None: ...

def image_normalize(image: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], y: int, x: int, mirror: bool, mean: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], factor: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], planar: bool) -> None: ...

class SampleRandom:
    def __init__(self, seed: int, epoch: int, index: int, kind: int) -> None: ...

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float: ...

    def normal(self) -> float: ...

    def bits(self) -> int: ...

    def below(self, count: int) -> int: ...

testing: ModuleType
