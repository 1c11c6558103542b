"""`cure_spills`: the changes of a config that may cure its spill, each tried by compiling, and measured on a GPU.

The order is that of the lesson on pitfalls from which this project grew: a smaller tile, more warps, fewer stages, and
if nothing helps, a kernel that is split. A limit of registers that the config itself sets comes first, since taking it
back costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from math import inf, prod
from typing import Any

from triton_ops.backend import Compiler, Kernel, Operation, TritonKernel
from triton_ops.compilation import CompilePool
from triton_ops.device import Residents, Target, device_spec
from triton_ops.exceptions import SpaceError
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner import tune
from triton_ops.values import Resources, Status, warps_and_stages
from triton_ops_lab.expectation import ACCUMULATED_BYTES
from triton_ops_lab.local_traffic import LocalTraffic
from triton_ops_lab.ranking import ModelQuestion

SIZE = Callable[[Config], "int | None"]
"""Elements of a config's accumulator, or of its largest tile; None if that is not known."""
_LEAST_SIDE = 16  # `tl.dot` takes no smaller side
_TILE_STEPS = 3
_LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


@dataclass(frozen=True)
class SpillChange:
    """One kind of change, and what it is expected to do."""

    name: str
    why: str
    steps: Iterator[Config]  # the configs to try, each going further than the one before


def changes(config: Config, space: ConfigSpace, target: Target, size: SIZE) -> tuple[SpillChange, ...]:
    """The changes of a config that may cure a spill, in order.

    Values of tunables are taken from its space where they are listed; `size` tells the size of its accumulator or tile.
    """
    warps, stages = warps_and_stages(config)
    # a block has so many threads at most, and warps are a power of two
    doublings = (target.threads_per_block // target.warp_size // warps).bit_length()
    more_warps = (Config({**config, "num_warps": warps << times}) for times in range(1, doublings))
    fewer_stages = (Config({**config, "num_stages": fewer}) for fewer in (2, 1) if fewer < stages)
    kinds = [
        SpillChange(
            "smaller tile",
            "half of the accumulator, or of the row, is half of its registers",
            _smaller_tiles(config, space, size),
        ),
        SpillChange("more warps", "the same registers are spread over more threads", more_warps),
        SpillChange("fewer stages", "fewer tiles are under way", fewer_stages),
    ]
    if config.get("maxnreg") is not None:
        freed = iter([Config({**config, "maxnreg": None})])
        kinds.insert(0, SpillChange("no limit of registers", "maxnreg takes registers away", freed))
    return tuple(kinds)


def _smaller_tiles(config: Config, space: ConfigSpace, size: SIZE) -> Iterator[Config]:
    for _ in range(_TILE_STEPS):
        if (smaller := _half_tile(config, space, size)) is None:
            return
        yield (config := smaller)


def _half_tile(config: Config, space: ConfigSpace, size: SIZE) -> Config | None:
    """The config with the longest side of its tile made shorter; None if no tunable does that."""
    now = size(config)
    sides = [
        (value, place, name)
        for place, name in enumerate(space.tunables)
        if isinstance(value := config.get(name), int) and not isinstance(value, bool) and name not in _LAUNCH_OPTIONS
    ]
    for value, _, name in sorted(sides, reverse=True):
        listed = space.tunables[name].values
        smaller = [one for one in listed if isinstance(one, int) and not isinstance(one, bool) and one < value]
        less = max(smaller, default=value // 2 if value % 2 == 0 else 0)  # half of it where no smaller one is listed
        if less < _LEAST_SIDE:
            continue
        shorter = Config({**config, name: less})
        then = size(shorter)
        if now is not None and then is not None and then < now:
            return shorter
    return None


@dataclass(frozen=True, kw_only=True)
class SpillEvidence:
    """The resources of one config, and its spills; figures are None if it did not compile.

    The status is `ok` if it compiled and fits; `deferred` if it also spills much or a rule expects it to; else why not.
    """

    config: Config
    status: Status
    reason: str = ""  # why the status is not ok, in words
    registers: int | None = None  # of one thread
    most_registers: int = 255
    stack_bytes: int | None = None  # the thread's frame in local memory
    spill_bytes: int | None = None  # the part of the frame that holds spilled registers
    shared_bytes: int | None = None
    accumulator: tuple[int, int] | None = None  # rows and columns of the block's largest; None without products
    accumulator_registers: float | None = None  # of each thread
    local: LocalTraffic | None = None  # instructions that reach local memory; None without a disassembler
    residents: Residents | None = None  # None if the architecture's limits are not known
    median_ms: float | None = None

    @property
    def compiled(self) -> bool:
        """True if it was compiled and could be launched."""
        return self.status.facts.launchable and self.spill_bytes is not None

    @property
    def accumulator_bytes(self) -> int | None:
        """Bytes of registers that the largest accumulator takes of a block; None without products."""
        return None if self.accumulator is None else ACCUMULATED_BYTES * prod(self.accumulator)


class Examiner:
    """Compiles configs of one kernel without a GPU, and gathers the evidence of each."""

    def __init__(self, compiler: Compiler, pool: CompilePool, target: Target) -> None:
        self._compiler, self._pool, self._target = compiler, pool, target

    def evidence(self, config: Config) -> SpillEvidence:
        """Compile a config, and gather what it takes and spills, which costs a third of a second where it does."""
        compiling = self._pool.submit(config, anyway=True)
        tile = self._pool.read(config).result().accumulator
        compiled = compiling.result()
        resources, target, residents = compiled.resources or Resources(), self._target, None
        warps, _ = warps_and_stages(config)
        if target.limits is not None and resources.registers is not None:
            residents = target.limits.residents(resources.registers, resources.shared_bytes or 0, warps)
        return SpillEvidence(
            config=config, status=compiled.status, reason=compiled.reason, registers=resources.registers,
            most_registers=target.vendor.registers_per_thread, stack_bytes=resources.stack_bytes,
            spill_bytes=resources.spill_bytes, shared_bytes=resources.shared_bytes, accumulator=tile,
            accumulator_registers=None if tile is None else prod(tile) / (warps * target.warp_size),
            local=self._local(config, resources) if compiled.launchable else None, residents=residents,
        )  # fmt: skip

    def tile(self, config: Config) -> int | None:
        """Elements of the accumulator, or of the largest tile of a kernel without products; None if it is not known."""
        work = self._pool.read(config).result()
        if work.accumulator is not None:
            return prod(work.accumulator)
        return max((access.tile for launch in work.launches for access in launch.accesses), default=None)

    def _local(self, config: Config, resources: Resources) -> LocalTraffic | None:
        """The local traffic, which a config that spills nothing does not have."""
        if resources.registers is None:
            return None
        if not resources.stack_bytes and not resources.spill_bytes:
            return LocalTraffic(0, 0, 0, 0, 0)
        texts = self._compiler.machine_code(config)
        parts = [astuple(LocalTraffic.of(text)) for text in texts if text is not None]
        return None if None in texts else LocalTraffic(*map(sum, zip((0,) * 5, *parts, strict=True)))


CURES, HELPS, NO_HELP, SLOWER, IMPOSSIBLE = "cures", "helps", "does not help", "slower", "not possible"
"""The verdicts on a change."""
_LEAST_PART = 0.9  # of the spilled bytes that must be left at most for a change to count as a help
TOGETHER = "together"


@dataclass(frozen=True)
class CureTrial:
    """One change and what it is expected to do, with every config that was compiled to try it, in that order."""

    name: str
    why: str
    before: SpillEvidence  # of the config that spills
    steps: tuple[SpillEvidence, ...]

    @property
    def best(self) -> SpillEvidence | None:
        """The first step that cures the spill, or else the one that spills least; None if none compiled."""
        compiled = [step for step in self.steps if step.compiled]
        cured = next((step for step in compiled if healthy(step)), None)
        return cured or min(compiled, key=lambda step: step.spill_bytes or 0, default=None)

    @property
    def verdict(self) -> str:
        """The verdict: the change cures the spill, helps, does not, makes the config slower, or is not possible."""
        return IMPOSSIBLE if self.best is None else self.verdict_on(self.best)

    def verdict_on(self, step: SpillEvidence) -> str:
        """The same of one of its configs."""
        if not step.compiled:
            return IMPOSSIBLE
        if step.median_ms is not None and self.before.median_ms is not None and step.median_ms >= self.before.median_ms:
            return SLOWER
        if healthy(step):
            return CURES
        return HELPS if (step.spill_bytes or 0) < _LEAST_PART * (self.before.spill_bytes or 0) else NO_HELP

    def changed(self, step: SpillEvidence) -> dict[str, Any]:
        """The values of one of its configs that differ from those of the config that spills."""
        return {name: value for name, value in step.config.items() if self.before.config.get(name) != value}

    @property
    def kept(self) -> bool:
        """True if the change helps."""
        return self.verdict in (CURES, HELPS)


def healthy(evidence: SpillEvidence) -> bool:
    """Return True for a config that spills nothing worth a word."""
    return evidence.compiled and (evidence.spill_bytes or 0) <= Resources.WASTEFUL_SPILL_BYTES


@dataclass(frozen=True)
class SpillReport:
    """The spills of a config, and the cures that were tried."""

    target: str  # the architecture
    before: SpillEvidence
    tried: tuple[CureTrial, ...] = ()  # in the order of the cures; empty for a config that spills nothing
    notes: tuple[str, ...] = ()  # such as that the config is not in the space

    @property
    def spills(self) -> bool:
        """True if the config spills enough to matter."""
        return self.before.compiled and not healthy(self.before)

    @property
    def cure(self) -> CureTrial | None:
        """The change to make: of those that were measured the fastest, else the first that cures; None without one."""
        cured = [one for one in self.tried if one.verdict == CURES]
        return min(cured, key=lambda one: (one.best and one.best.median_ms) or inf, default=None)

    @property
    def advice(self) -> str:
        """The next step, in one sentence."""
        if not self.before.compiled:
            return f"it cannot be launched: {self.before.reason}"
        if not self.spills:
            spilled = self.before.spill_bytes or 0
            return "it spills nothing" if not spilled else f"it spills {spilled} bytes, too few to matter"
        if (cure := self.cure) is None or cure.best is None:
            return "no change of the config cures it: split the kernel, or keep fewer values alive at once"
        changes = " ".join(f"{name}={value}" for name, value in cure.changed(cure.best).items())
        return f"{cure.name} cures it: {changes}"

    def timed(self, median_ms: dict[str, float]) -> SpillReport:
        """The same with the times of verified configs by their texts."""

        def timed(step: SpillEvidence) -> SpillEvidence:
            return replace(step, median_ms=median_ms.get(step.config.text))

        before = timed(self.before)
        attempts = tuple(replace(one, before=before, steps=tuple(map(timed, one.steps))) for one in self.tried)
        return replace(self, before=before, tried=attempts)


def cure_spills(
    target: Operation | Kernel | Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None,
    *, config: Mapping[str, Any] | None = None, space: Any = None, shape: Sequence[int] | None = None,
    dtype: str | None = None, arch: str | None = None, measure: bool | None = None,
) -> SpillReport:  # fmt: skip
    """Say what a config spills to local memory, and try what may cure it; no GPU is needed.

    Each change is compiled from the config alone, one kind at a time: a smaller tile, more warps, fewer stages. Where
    none cures it, those that help are tried together. A change is kept only if it helps.

    Args:
        target: An `Operation`, a `TritonKernel` or a `LauncherKernel`.
        args: Positional arguments of the kernel, `TensorSpec`s in place of tensors or tensors on any device.
        kwargs: Keyword arguments of the kernel.
        config: Values of tunables, also as a `triton.Config`; the rest as in the space's default. They need not be in
            the space.
        space: The space, as for `tune`; None takes the operation's; a kernel's is then the config alone.
        shape: Extents of an operation's problem; None takes its defaults.
        dtype: Dtype of an operation's problem; None takes its default.
        arch: What to compile for: an architecture such as `sm_90`, or a GPU's name; None takes the GPU that is here.
        measure: Whether to time the config and the changes that help, and to drop those that make it slower; None
            does so where `arch` is None.

    Returns:
        What the config takes, every change that was tried, and the one that cures the spill, if any.

    Raises:
        TargetError: The kernel is none that Triton compiles.
        DeviceError: The architecture is not known, or none is named and no GPU is here.
        ConfigValueError, UnknownTunableError: `config` is no mapping, or a value belongs to no tunable.
        SpaceError, KernelTypeError, ShapeMismatchError, UnsupportedDtypeError: An argument does not fit.

    Cost: a compilation for each of up to a dozen configs; with a measurement some seconds more.
    """
    config = None if config is None else TritonKernel.values_of(config)
    goal = Target.of(device_spec(None)) if arch is None else Target.named(arch)
    if space is None and config and not isinstance(target, Operation):
        space = {name: [value] for name, value in config.items()}
    expected = ModelQuestion.of(target, args, kwargs, space=space, shape=shape, dtype=dtype)
    hint = "name an Operation with a TritonKernel, or give the kernel itself"
    compiler = expected.compiler(goal, "so it spills nothing that can be seen", hint)
    subject = _full_config(expected.space, expected.name, config or {})
    measured = arch is None if measure is None else measure
    with CompilePool(compiler) as pool:
        report = _examine(Examiner(compiler, pool, goal), subject, expected.space, goal, measured)
    if not measured or not report.spills:
        return report
    configs = [one.best.config for one in report.tried if one.kept and one.best is not None]
    result = tune(
        target, args, kwargs, space=[dict(one) for one in dict.fromkeys([report.before.config, *configs])],
        shape=shape, dtype=dtype, search="exhaustive", effort="quick", keep=False,
    )  # fmt: skip
    return report.timed({trial.config.text: trial.median_ms for trial in result.uninterrupted().trials if trial.ok})


def _full_config(space: ConfigSpace, name: str, values: Mapping[str, Any]) -> Config:
    """The default config with the given values, which need not be in the space; launch options may be added."""
    SpaceError.check_tunables(name, values, dict.fromkeys((*space.tunables, *_LAUNCH_OPTIONS)))
    own_values = {one: value for one, value in values.items() if one in space.tunables}
    return Config({**space.default_config, **values, **space.with_names(own_values)})


def _examine(examiner: Examiner, config: Config, space: ConfigSpace, target: Target, measured: bool) -> SpillReport:
    before = examiner.evidence(config)
    notes = [] if (why := space.why_not(config)) is None else [f"the config is not in the space: {why}"]
    if not measured and before.compiled and not healthy(before) and before.accumulator is None:
        notes.append("nothing was checked: a tile that must hold a whole row cannot become smaller than the row")
    if not before.compiled and config.get("maxnreg") is not None:
        notes += _without_limit(examiner, config)
    if not before.compiled or healthy(before):
        return SpillReport(target.arch, before, notes=tuple(notes))
    attempts: list[CureTrial] = []
    for change in changes(config, space, target, lru_cache(maxsize=None)(examiner.tile)):
        one = CureTrial(change.name, change.why, before, ())
        for step in change.steps:
            one = CureTrial(change.name, change.why, before, (*one.steps, examiner.evidence(step)))
            if one.verdict == CURES:
                break
        attempts.append(one)
    helps = [one for one in attempts if one.verdict == HELPS]
    if len(helps) > 1 and not any(one.verdict == CURES for one in attempts):
        values = dict(config)
        for one in helps:
            values |= {} if one.best is None else one.changed(one.best)
        names = " and ".join(one.name for one in helps)
        attempts.append(CureTrial(TOGETHER, names, before, (examiner.evidence(Config(values)),)))
    return SpillReport(target.arch, before, tuple(attempts), tuple(notes))


def _without_limit(examiner: Examiner, config: Config) -> list[str]:
    """Resources without the config's own limit of registers, with which it does not compile; empty if it never does."""
    freed = examiner.evidence(Config({name: value for name, value in config.items() if name != "maxnreg"}))
    if not freed.compiled:
        return []
    takes = f"{freed.registers} registers of a thread and spills {freed.spill_bytes:,} bytes"
    return [f"without maxnreg={config['maxnreg']} it takes {takes}"]
