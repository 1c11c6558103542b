"""What commands on models and torch's compiler print."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from website.documents.common import Form


class Mode(Form):
    """One way to compile a model; null is not known.

    Attributes:
        status, reason: How it ended, and why; of one that is `ok` what a reader should know.
        steady_ms, mean_ms, p20_ms, p80_ms: One call in steady state: the median, the mean, the middle three fifths.
        first_call_s, compile_s: The first call, and the seconds in which torch compiled.
        recordings, recompiles: CUDA graphs that were recorded, and how often something was compiled again.
        peak_bytes: The most memory in steady state: on a GPU what torch holds, on a CPU the process's own.
        kernels: What a call launches; on a CPU its operators and generated loops.
        max_error: The largest difference from results in higher precision, relative to the largest of these.
        break_even_calls: Calls after which the seconds paid once are won back; null if never.
    """

    name: str
    status: str
    reason: str
    steady_ms: float | None
    mean_ms: float | None
    p20_ms: float | None
    p80_ms: float | None
    first_call_s: float | None
    compile_s: float | None
    recordings: int | None
    recompiles: int | None
    peak_bytes: int | None
    kernels: int | None
    max_error: float | None
    break_even_calls: float | None


class Culprit(Form):
    """The option with which `slower` takes `factor` times as long as `faster`."""

    option: str
    value: Any
    factor: float
    slower: str
    faster: str
    text: str


class ModeDetails(Form):
    """What else was found, with `--details`.

    Attributes:
        modes: Further figures by the name of the mode.
        folder: Where logs and traces are.
    """

    modes: dict[str, dict[str, Any]]
    confirmed: Any
    notes: list[str]
    folder: Any


class Modes(Form):
    """Which way to compile a model is the fastest.

    Attributes:
        problem: The model with the shapes of its inputs.
        modes: In the order tried.
        recommended: The way to use: eager, unless another is proven faster.
        culprit: What makes a mode slow, or null.
    """

    problem: str
    device: str
    modes: list[Mode]
    recommended: str
    culprit: Culprit | None
    details: ModeDetails | UnsetType = UNSET


class OperatorShare(Form):
    """One operator of a call.

    Attributes:
        kind: `product`, `scattered`, `fusable` or `unknown`.
    """

    name: str
    share: float
    calls: int
    kind: str


class CallProfile(Form):
    """Shares of the time of a call.

    Attributes:
        idle: The share in which a GPU waits for the host; null on a CPU.
        of_peak: The rate of products over the device's peak; null if not known.
    """

    call_ms: float
    idle: float | None
    ops: list[OperatorShare]
    of_peak: float | None
    arch: str


class Advice(Form):
    """What is worth doing about a model's speed, and why."""

    way: str
    reasons: list[str]
    profile: CallProfile


class Option(Form):
    """One option of torch's compiler.

    Attributes:
        variables: Environment variables that set it.
        set_by: Those that are set.
        changed: Whether its value is not the default.
    """

    name: str
    variables: list[str]
    default: Any
    value: Any
    set_by: list[str]
    changed: bool


class Gate(Form):
    """Whether a device's gate for max-autotune is open, and why."""

    open: bool
    reason: str


class Options(Form):
    """Options of torch's compiler.

    Attributes:
        wrong_names: Variables that are set and that torch does not read, each with the one that was probably meant.
    """

    options: list[Option]
    gate: Gate
    wrong_names: dict[str, str]


class Backend(Form):
    """One backend.

    Attributes:
        listed, eligible: Whether the list has it, and whether it could take part then.
    """

    name: str
    listed: bool
    eligible: bool
    reason: str
    takes_part: bool


class Backends(Form):
    """Which backends max-autotune would measure."""

    op: str
    device: str
    dtype: str
    shape: list[int]
    backends: list[Backend]


class CachePart(Form):
    """One kind of content of the folder."""

    name: str
    what: str
    files: int
    size_bytes: int


class Cache(Form):
    """Inductor's cache folder, or what was removed from it.

    Attributes:
        strange: Names that are not provably Inductor's.
    """

    path: str
    exists: bool
    parts: list[CachePart]
    strange: list[str]
    files: int
    size_bytes: int


class Table(Form):
    """Times that Inductor measured for one operation.

    Attributes:
        winner: The name of the fastest choice; null if there is none.
        benchmark_s, precompile_s, count: Null if the log does not say it.
        writer: The process that wrote it, as far as its lines tell.
        doubt: Why there is no winner although there are choices.
    """

    op: str
    sizes: str
    dtypes: str
    choices: list[dict[str, Any]]
    benchmark_s: float | None
    precompile_s: float | None
    count: int | None
    stats: dict[str, Any]
    writer: str
    doubt: str
    winner: str | None


class Log(Form):
    """What a compiler wrote.

    Attributes:
        recordings: How many CUDA graphs were recorded.
        rerecorded, skipped: Why a CUDA graph was recorded again, or not used.
        recompiled: Which function was compiled again, and what guards failed.
        limits: Which one is compiled no more.
        failures: Why choices have no time, or are not tried.
        lines: How many lines are torch's.
        unread: Lines that look like a part of a table, and are part of none.
    """

    tables: list[Table]
    recordings: int
    rerecorded: list[str]
    skipped: list[str]
    recompiled: list[str]
    limits: list[str]
    hints: list[str]
    failures: list[str]
    lines: int
    unread: list[str]


class GraphNode(Form):
    """A node of a captured graph: what it holds, reads and writes, and its kernel."""

    name: str
    kind: str
    members: list[str]
    reads: list[str]
    writes: list[str]
    kernel: str


DOCUMENTS: dict[str, Any] = {
    "torch modes": Modes,
    "torch advise": Advice,
    "torch options": Options,
    "torch backends": Backends,
    "torch cache": Cache,
    "torch log": Log,
    "torch draw": dict[str, Any],
}
