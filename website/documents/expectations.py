"""What commands print that compile configs, and say what to expect of them."""

from __future__ import annotations

from typing import Any

from website.documents.common import Config, Form


class Compiled(Form):
    """What one config takes on one architecture.

    Attributes:
        target: The architecture.
        status: `ok`, `deferred`, `constraint`, `grid`, `resources`, `compile`, `timeout` or `crash`.
        reason, trace: Why it is not `ok`, and what the compiler raised.
        registers, spill_bytes: Per thread; null where it was not compiled to the end.
        shared_bytes: Per block.
        mma: `wgmma`, `tcgen05`, `mma.sync`, `mfma`, `wmma` or `none`.
        serialised: Whether each product of a warp group waits for the one before; null without such products.
        binary: A hash of the machine code.
        compile_s: Seconds; null if a rule refused it before anything was compiled.
        program: The fingerprint of what is launched, equal for configs of one program.
        expected_ms, lower_bound_ms: As of `explain`; null on a device that the model does not know.
        limited_by: What limits it, or why that is not known.
    """

    config: Config
    target: str
    status: str
    reason: str
    trace: str
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int | None
    mma: str | None
    serialised: bool | None
    binary: str | None
    compile_s: float | None
    program: str | None
    expected_ms: float | None
    lower_bound_ms: float | None
    limited_by: str | None


class Ranked(Form):
    """What one config is expected to take.

    Attributes:
        expected_ms: Of one launch; null if the config cannot run on the device.
        lower_bound_ms: The config's work over the peaks of memory and units; 0 if it is not known.
        source: `declared` or `inferred`.
        limited_by: The resource that would take longest alone, or why the config cannot run.
        compiled: Whether registers and shared memory are the compiler's; else they and the time are guessed.
        program: The fingerprint of what is launched; empty if it was not compiled.
    """

    config: Config
    expected_ms: float | None
    lower_bound_ms: float | None
    source: str
    limited_by: str
    compiled: bool
    program: str


class Term(Form):
    """A resource, and the milliseconds that it would take alone."""

    name: str
    alone_ms: float


class Limit(Form):
    """One roof of the device: its peak by the datasheet, and as a calibration has measured it."""

    name: str
    peak: float
    measured: float | None
    unit: str


class Place(Form):
    """A time, and how near it comes to the limits.

    Attributes:
        of_units, of_memory, of_limit: Shares of the peaks; null where one is not known.
        of_measured: The share of the measured limit.
    """

    ms: float
    tflops: float
    gbps: float
    of_units: float | None
    of_memory: float | None
    limit: str | None
    of_limit: float | None
    of_measured: float | None


class Roofline(Form):
    """A launch beside the device's limits.

    Attributes:
        intensity, ridge: Operations for each byte: of the launch, and from which on the units limit.
        least_ms: The work over the peaks.
        unknown: Dtypes of products without a known rate.
        limit: What limits the launch.
        expected, measured: The expected time, and that of `--measured`.
    """

    flops: float
    bytes: float
    intensity: float | None
    ridge: float | None
    least_ms: float | None
    unknown: list[str]
    limit: str | None
    memory: Limit | None
    units: Limit | None
    expected: Place | None
    measured: Place | None


class Status(Form):
    """How the compiler ended."""

    status: str
    reason: str


class Occupancy(Form):
    """How many blocks and warps are on a multiprocessor at a time, and what keeps more away.

    Attributes:
        by: The blocks that each resource would allow.
    """

    blocks: int
    warps: int
    most_warps: int
    limited_by: list[str]
    by: dict[str, int]
    share: float


class Waves(Form):
    """The blocks of a launch, in waves of as many as run at a time.

    Attributes:
        full: How many waves are full.
        tail_blocks: The blocks of the last wave, if it is not full.
        used: The share of slots that have a block.
    """

    at_once: int
    waves: float
    full: int
    tail_blocks: int
    used: float
    blocks: int


class SharedMemory(Form):
    """The bytes of a block, and its limit."""

    bytes: int | None
    limit: int | None


class Accumulator(Form):
    """The tile in which products are summed, and its bytes of registers."""

    tile: list[int]
    bytes: int


class Habit(Form):
    """The range in which a launch option is a good start, and whether this config keeps it."""

    option: str
    low: int
    high: int
    why: str
    here: int | None
    holds: bool


class Pipeline(Form):
    """The loop for each number of stages.

    Attributes:
        timelines: For each, the steps at which loads and products begin and end, and the share busy.
        load_steps: How many computed steps a load takes.
        known: Whether that is what the model expects, or assumed.
    """

    timelines: list[dict[str, Any]]
    load_steps: float | None
    known: bool


class Explained(Form):
    """What to expect of one config on a device.

    Attributes:
        source: `declared` or `inferred`.
        expected_ms: Null without a forecast; `silent` says why.
        stages: The fewest stages with which the program is the same; null if that is not known.
        terms: What each resource would take alone.
        blocks_per_unit, waves: Null where the compiler did not say it.
        inferred: The work as it was read from the kernel, or null.
        differences: Where a declaration says something else than what was read.
        remarks: What else to know.
        warps: How the accumulator would be shared by other numbers of warps.
    """

    problem: str
    device: str
    arch: str
    units: int
    config: Config
    source: str
    expected_ms: float | None
    silent: str
    lower_bound_ms: float | None
    limited_by: str
    stages: int | None
    terms: list[Term]
    blocks_per_unit: int | None
    waves: float | None
    registers: float | None
    spill_bytes: float | None
    shared_bytes: int | None
    compiled: bool
    inferred: dict[str, Any] | None
    differences: list[str]
    remarks: list[str]
    warps: list[Any]
    roofline: Roofline
    compiler: Status | None
    occupancy: Occupancy | None
    grid: Waves | None
    shared: SharedMemory
    accumulator: Accumulator | None
    advice: list[Habit]
    pipeline: Pipeline


class TunedConstant(Form):
    """The values of a tunable, and why it may be tuned."""

    values: list[Any]
    reason: str


class Rule(Form):
    """What configs must keep."""

    name: str
    names: list[str]
    reason: str


class OwnSpace(Form):
    """What of a kernel may be tuned, read from its source.

    Attributes:
        launch_options: Which of the tunables are options of a launch.
        derived: Constants that must cover an extent; null where that is not known.
        left_alone: The reason for each other constant.
        grid: For each tile that the grid does not follow, why it is not tuned.
        configs: Their number.
    """

    kernel: str
    device: str
    tunables: dict[str, TunedConstant]
    launch_options: list[str]
    derived: dict[str, Any]
    rules: list[Rule]
    left_alone: dict[str, str]
    grid: Any
    default: Config
    configs: int


class SweptPoint(Form):
    """One value of the extent."""

    extent: int
    expected_ms: float | None
    of_limit: float | None
    blocks: int
    waves: float
    used: float
    tail_blocks: int


class Cliff(Form):
    """Two neighbouring values between which a wave is added."""

    before: SweptPoint
    after: SweptPoint


class Cliffs(Form):
    """At which values of an extent a config needs one more wave.

    Attributes:
        silent: Why there are no expected times; empty where there are.
    """

    kernel: str
    device: str
    config: Config
    axis: str
    blocks_per_unit: int
    silent: str
    at_once: int
    points: list[SweptPoint]
    cliffs: list[Cliff]


class ClassOfConfigs(Form):
    """Configs that give the same bits, as far as what is compiled tells.

    Attributes:
        key: The class's name; empty where it cannot be told.
        fastest, ms: The config that took least in the newest run, else the first; its time, or null.
        extents: Values of the varied extent at which some config is of this class.
        orders: How each sum is grouped and ordered.
        fused: How the assembler fused products with sums; empty if it fused all that were left to it.
        silent: Why the class cannot be told.
        beside: What it has otherwise than the first class.
    """

    key: str
    configs: list[Config]
    fastest: Config
    ms: float | None
    extents: list[int]
    orders: list[str]
    fused: str
    silent: str
    beside: list[str]


class Classes(Form):
    """Which configs of a space give the same bits, the largest class first."""

    problem: str
    target: str
    classes: list[ClassOfConfigs]


class KnobValue(Form):
    """What one value of a tunable costs.

    Attributes:
        slower: How much slower its configs are, relative.
        best_ms, loss: The time of its best config, and how much slower that is than the best of all.
    """

    value: Any
    configs: int
    failed: int
    slower: float | None
    best_ms: float | None
    loss: float | None


class Knob(Form):
    """How much one tunable matters.

    Attributes:
        share: Of what varies, the share that it explains.
        span: How much slower its worst value is than its best.
        most_lost: The largest loss that one of its values costs.
        best: The best value.
    """

    name: str
    share: float
    span: float | None
    most_lost: float | None
    best: Any
    values: list[KnobValue]


class Jump(Form):
    """A step of a tunable at which times jump.

    Attributes:
        pairs, steep, spills, fails: Of so many pairs of configs so many became much slower, spilled, or failed.
        slower, slower_if_spilled: By how much, relative.
    """

    name: str
    before: Any
    after: Any
    pairs: int
    steep: int
    spills: int
    fails: int
    slower: float | None
    slower_if_spilled: float | None


class Sensitivity(Form):
    """Which tunables matter in one measured space.

    Attributes:
        explained: The share of what varies that single tunables explain.
    """

    file: str
    kernel: str
    device: str
    configs: int
    failed: int
    best: Config
    best_ms: float
    explained: float | None
    knobs: list[Knob]
    cliffs: list[Jump]


class LocalMemory(Form):
    """Instructions on local memory, and the bytes that they move, per thread in the code."""

    loads: int
    stores: int
    load_bytes: int
    store_bytes: int
    in_loops: int


class SpillingConfig(Form):
    """What a config spills.

    Attributes:
        stack_bytes: The frame of a thread.
        occupancy: The share of warps.
        local: Null where no disassembler can be run.
        median_ms: Null where nothing was timed.
    """

    config: Config
    status: str
    reason: str
    registers: int | None
    most_registers: int | None
    stack_bytes: int | None
    spill_bytes: int | None
    shared_bytes: int | None
    accumulator_bytes: int | None
    accumulator_registers: float | None
    occupancy: float | None
    local: LocalMemory | None
    median_ms: float | None


class Cure(Form):
    """A change that was tried.

    Attributes:
        verdict: `cures`, `helps`, `does not help`, `slower` or `not possible`.
        kept: Whether it stays for what is tried together.
        best: The config on which the verdict is, or null.
        steps: All configs that were tried.
    """

    change: str
    why: str
    verdict: str
    kept: bool
    best: Config | None
    steps: list[SpillingConfig]


class Spills(Form):
    """What a config spills, and what cures it.

    Attributes:
        cure: The config that cures it, or null.
    """

    problem: str
    target: str
    spills: bool
    before: SpillingConfig
    cures: list[Cure]
    cure: Config | None
    advice: Any
    notes: list[str]


DOCUMENTS: dict[str, Any] = {
    "compile": list[Compiled],
    "explain": Explained,
    "explain rank": list[Ranked],
    "explain space": OwnSpace,
    "explain cliffs": Cliffs,
    "explain classes": Classes,
    "explain sensitivity": list[Sensitivity],
    "explain spills": Spills,
}
