"""The workloads: what a run is, what it needs at least, and what weft has to reach. docs/benchmarks.md states them."""

from dataclasses import dataclass, field, replace

NATIVE = "avx512"  # the level that `goals` of workloads were set at


@dataclass(frozen=True)
class Goal:
    """Shares of the best peer's time, or memory, that weft's best way may take: `bar` must hold, `aim` is hoped for."""

    bar: float
    aim: float


@dataclass(frozen=True)
class Workload:
    """steps: in one run. flops, bytes: of a step, for its share of what the machine can do. unit: of what is shown.

    memory_of: the workload whose memory is the result. way: of weft, the one that is compared with the peers, not its
    best.
    """

    name: str
    unit: str = "ms"
    precisions: tuple[str, ...] = ("f32", "bf16")
    steps: int = 1
    flops: float = 0
    bytes: float = 0  # in float32; half in bf16
    goals: dict[str, Goal] = field(default_factory=dict)
    memory_of: str = ""
    way: str = ""

    def shown(self, seconds: float) -> float:
        """The value in `unit` of a run of so many seconds."""
        step = seconds / self.steps
        if self.unit == "tokens/s":
            return 1 / step
        if self.unit == "GFLOP/s":
            return self.flops / step / 1e9
        if self.unit == "GB/s":
            return self.bytes / step / 1e9
        return step * {"ms": 1e3, "us": 1e6}[self.unit]


def resnet50_forward() -> tuple[float, float]:
    """FLOPs of an image of 224 x 224: of its first convolution, and of everything."""
    first = 2 * 112 * 112 * 64 * 3 * 49
    total, size, channels = first, 56, 64
    for stage, count in enumerate((3, 4, 6, 3)):
        middle = 64 << stage
        for block in range(count):
            halved = bool(stage) and not block
            out = size // 2 if halved else size
            total += 2 * size**2 * channels * middle
            total += 2 * out**2 * (9 * middle * middle + 4 * middle * middle)
            total += 0 if block else 2 * out**2 * channels * 4 * middle
            size, channels = out, 4 * middle
    return first, total + 2 * channels * 1000


LAYERS, WIDTH, VOCABULARY, CONTEXT = 6, 512, 8192, 256
GPT_WEIGHTS = LAYERS * 12 * WIDTH**2 + VOCABULARY * WIDTH  # that a token is multiplied with


def gpt_forward(batch: int) -> float:
    """FLOPs for whole texts; attention counts the half of the positions that are seen."""
    attention = LAYERS * 2 * CONTEXT * WIDTH
    return batch * CONTEXT * (2 * GPT_WEIGHTS + attention)


def lstm_forward() -> float:
    return 35 * 20 * 2 * (2 * 8 * 650 * 650 + 650 * 10000)


def mlp_training() -> float:
    """Three products for each layer but the first, whose input needs no gradient."""
    sizes = [784 * 256, 256 * 128, 128 * 10]
    return 2 * 32 * (3 * sum(sizes) - sizes[0])


first_layer, image = resnet50_forward()
half_cache = LAYERS * 2 * (CONTEXT - 32) * WIDTH  # read for a token, in the middle of the 64

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "resnet50-train",
            flops=16 * (3 * image - first_layer),
            goals={"f32": Goal(0.95, 0.80), "bf16": Goal(0.95, 0.75)},
        ),
        Workload(
            "resnet50-infer-b16", flops=16 * image, goals={"f32": Goal(1.08, 0.97), "bf16": Goal(1.15, 0.97)}
        ),
        Workload("resnet50-infer-b1", flops=image, goals={"f32": Goal(1.08, 0.97), "bf16": Goal(1.15, 0.97)}),
        Workload(
            "gpt-train",
            flops=3 * gpt_forward(4),
            goals={"f32": Goal(0.55, 0.42), "bf16": Goal(0.90, 0.60)},
        ),
        Workload("gpt-prefill", flops=gpt_forward(1), goals={"f32": Goal(1.15, 0.90)}),
        Workload(
            "gpt-decode",
            unit="tokens/s",
            steps=64,
            bytes=4 * (GPT_WEIGHTS + half_cache),
            goals={"f32": Goal(1.15, 0.90)},
        ),
        Workload("lstm-train", flops=3 * lstm_forward(), goals={"f32": Goal(0.85, 0.60)}),
        Workload(
            "mlp-train",
            unit="us",
            precisions=("f32",),
            steps=100,
            flops=mlp_training(),
            goals={"f32": Goal(0.90, 0.50)},
        ),
        Workload(
            "resnet50-train-memory",
            unit="MiB",
            goals={"f32": Goal(0.80, 0.65), "bf16": Goal(0.80, 0.65)},
            memory_of="resnet50-train",
            way="traced lazily",
        ),
    )
}

# Goals at other instruction set levels than AVX-512. A level that is not here has none, and so has bfloat16, for which
# AVX2 has no instructions: `./dev bench half_types` compares it with weft's own float32 there.
LEVEL_GOALS: dict[str, dict[str, Goal]] = {
    "avx2": {
        "resnet50-train": Goal(0.95, 0.80),
        "resnet50-infer-b16": Goal(1.08, 0.97),
        "resnet50-infer-b1": Goal(1.08, 0.97),
        "gpt-train": Goal(0.90, 0.80),
        "gpt-prefill": Goal(1.05, 0.90),
        "gpt-decode": Goal(1.05, 0.90),
        "lstm-train": Goal(0.90, 0.80),
        "mlp-train": Goal(0.90, 0.50),
        "resnet50-train-memory": Goal(0.80, 0.65),
    }
}


def at_level(workload: Workload, level: str) -> Workload:
    """The workload with its goals at an instruction set level."""
    if level == NATIVE:
        return workload
    goal = LEVEL_GOALS.get(level, {}).get(workload.name)
    return replace(workload, goals={"f32": goal} if goal else {})


# What the machine can do, measured in the same run: the best of all sides counts.
PEAKS = (
    Workload("matmul", unit="GFLOP/s", flops=2 * 2048**3),
    Workload("read", unit="GB/s", precisions=("f32",), bytes=4 << 27),
)


def selected(name: str) -> list[Workload]:
    """The workload of this name, or those whose names begin with it; [] where there are none."""
    if name in WORKLOADS:
        return [WORKLOADS[name]]
    return [workload for workload in WORKLOADS.values() if workload.name.startswith(name)]
