"""What model and compiler say of one config: by declared work or work that is read, and where the two differ."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from triton_ops.compile_pool.pool import CompilePool
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.expectation.rank import DECLARED, INFERRED, Expected, ahead_of
from triton_ops.expectation.survey import SurveyLimits, considered, survey
from triton_ops.hardware import DeviceSpec, Machine
from triton_ops.ranking.in_words import differences
from triton_ops.ranking.inferred_prior import inferred_model
from triton_ops.ranking.predict import Forecast, Model
from triton_ops.ranking.readings import Readings
from triton_ops.space import Config
from triton_ops.trial import Compiled, Status
from triton_ops.ttir.launch_work import KernelWork
from triton_ops.work import warps_and_stages

_COMPARED = 64  # configs by which a declaration and the kernel are compared
_LIMITS = SurveyLimits(texts=16, promising=0, seconds=20.0)


@dataclass(frozen=True, kw_only=True)
class Explained:
    """The model's answer for one config.

    Attributes:
        source: `declared` or `inferred`.
        forecast: The expected time with its reasons; None if the model makes no forecast.
        silent: Why it makes none; empty if it makes one.
        work: The work as it was read; None for a kernel that Triton does not compile.
        differences: Where the declaration and the kernel differ, in words.
        compiled: What the compiler made of the config for the device; None for a kernel that Triton does not compile.
        refused: Why the config cannot run, by a limit of Triton or of the device; empty if it can, as far as is known.
        fitting: The same config with as many stages as fit, where it needs too much shared memory.
    """

    source: str
    forecast: Forecast | None
    silent: str
    work: KernelWork | None
    differences: tuple[str, ...] = ()
    compiled: Compiled | None = None
    refused: str = ""
    fitting: Compiled | None = None

    @property
    def told(self) -> bool:
        """Whether anything is known of the config: a forecast, its work, or what the compiler made of it."""
        read = self.work is not None and not self.work.silent
        return self.forecast is not None or read or (self.compiled is not None and self.compiled.resources is not None)


def explain(expected: Expected, config: Config, spec: DeviceSpec, machine: Machine | None) -> Explained:
    """What model and compiler say of a config; a kernel that Triton compiles is read, whether or not work is declared.

    Args:
        expected: The kernel with its arguments, its space and its declared work.
        config: The config.
        spec: The device, which need not be here.
        machine: The device's figures; None for an architecture that the model does not know, which has no forecast.
    """
    seen = _read(expected, config, spec)
    readings, refused = seen.readings, _refused(seen.compiled)
    answer = Explained(
        source=DECLARED if expected.declared else INFERRED, forecast=None,
        silent=refused or f"the model does not know the architecture {spec.arch} of {spec.name}",
        work=None if readings is None else readings.work_of(config), compiled=seen.compiled, refused=refused,
        fitting=seen.fitting,
    )  # fmt: skip
    made = seen.compiled.resources if seen.compiled is not None and seen.compiled.launchable else None
    if machine is None:
        return answer
    if not expected.declared or expected.work is None:
        forecast = None if readings is None else inferred_model(readings, machine).explain(config, made)
        silent = seen.why_not or (readings.silent if readings is not None else "")
        return _with_forecast(answer, forecast, silent or "a product has a dtype without a known rate")
    declared = Model(expected.work, machine)
    found: list[str] = []
    if readings is not None and readings.told:
        configs = [c for c in considered(expected.space) if not readings.work_of(c).silent]
        both = zip(declared.score(configs), inferred_model(readings, machine).score(configs), strict=True)
        found = differences(expected.work, readings.told, list(both))
    silent = "a tunable or a dtype that is declared is not one it can count"
    return _with_forecast(replace(answer, differences=tuple(found)), declared.explain(config, made), silent)


def _refused(compiled: Compiled | None) -> str:
    """Why a config cannot run, whatever time the model would give it; empty if it can, or if nobody knows."""
    if compiled is None or compiled.status not in (Status.CONSTRAINT, Status.RESOURCES):
        return ""
    return compiled.reason


def _with_forecast(answer: Explained, forecast: Forecast | None, silent: str) -> Explained:
    """The answer with a forecast, or with the reason why there is none."""
    if answer.refused:
        return answer
    return replace(answer, forecast=forecast, silent="" if forecast is not None else silent)


@dataclass(frozen=True)
class _Seen:
    """What was read of a config and of some others of its space, and the compiled config; or why nothing can be."""

    readings: Readings | None = None
    compiled: Compiled | None = None
    fitting: Compiled | None = None
    why_not: str = ""


def _read(expected: Expected, config: Config, spec: DeviceSpec) -> _Seen:
    ahead = ahead_of(expected, spec)
    if isinstance(ahead, str):
        return _Seen(why_not=ahead)
    others = considered(expected.space)
    some = random.Random(0).sample(others, min(_COMPARED, len(others))) if expected.declared else []
    try:
        with CompilePool(ahead) as pool:
            compiling = pool.submit(config, anyway=True)
            readings = survey(list(dict.fromkeys([config, *some])), pool.read, limits=_LIMITS)
            return _Seen(readings, compiling.result(), _fitting(compiling.result(), pool))
    except (KernelTypeError, TargetError) as error:
        return _Seen(why_not=error.message)


def _fitting(found: Compiled, pool: CompilePool) -> Compiled | None:
    """A config with fewer stages, where one needs too much shared memory; None if it fits, or if none does."""
    needed = found.resources.shared_bytes if found.resources is not None else None
    if found.status is not Status.RESOURCES or not needed:
        return None
    _, deep = warps_and_stages(found.config)
    for stages in range(deep - 1, 0, -1):
        fewer = pool.submit(Config({**found.config, "num_stages": stages}), anyway=True).result()
        if fewer.launchable:
            return fewer
    return None
