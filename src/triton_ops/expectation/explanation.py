"""What the model says of one config, by declared work or by work that is read, and where the two differ."""

from __future__ import annotations

import random
from dataclasses import dataclass

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
from triton_ops.ttir.launch_work import KernelWork

_COMPARED = 64  # configs by which a declaration and the kernel are compared
_LIMITS = SurveyLimits(texts=16, promising=0, seconds=20.0)


@dataclass(frozen=True, kw_only=True)
class Explained:
    """The model's answer for one config.

    Attributes:
        source: `declared` or `inferred`.
        forecast: The expected time with its reasons; None if the model makes no forecast.
        silent: Why it makes none.
        work: The work as it was read; None for a kernel that Triton does not compile.
        differences: Where the declaration and the kernel differ, in words.
    """

    source: str
    forecast: Forecast | None
    silent: str
    work: KernelWork | None
    differences: tuple[str, ...] = ()


def explain(expected: Expected, config: Config, spec: DeviceSpec, machine: Machine) -> Explained:
    """What the model says of one config; a kernel that Triton compiles is read, whether or not work is declared."""
    readings, why = _read(expected, config, spec)
    work = None if readings is None else readings.work_of(config)
    if not expected.declared or expected.work is None:
        model = None if readings is None else inferred_model(readings, machine)
        forecast = None if model is None else model.explain(config)
        silent = (
            why or (readings.silent if readings is not None else "") or "a product has a dtype without a known rate"
        )
        return Explained(source=INFERRED, forecast=forecast, silent=silent, work=work)
    declared = Model(expected.work, machine)
    found: list[str] = []
    if readings is not None and readings.told:
        configs = [c for c in considered(expected.space) if not readings.work_of(c).silent]
        both = zip(declared.score(configs), inferred_model(readings, machine).score(configs), strict=True)
        found = differences(expected.work, readings.told, list(both))
    silent = "a tunable or a dtype that is declared is not one it can count"
    return Explained(
        source=DECLARED, forecast=declared.explain(config), silent=silent, work=work, differences=tuple(found)
    )


def _read(expected: Expected, config: Config, spec: DeviceSpec) -> tuple[Readings | None, str]:
    """What was read of a config and of some others of its space; or why nothing can be."""
    ahead = ahead_of(expected, spec)
    if isinstance(ahead, str):
        return None, ahead
    others = considered(expected.space)
    some = random.Random(0).sample(others, min(_COMPARED, len(others))) if expected.declared else []
    try:
        with CompilePool(ahead) as pool:
            return survey(list(dict.fromkeys([config, *some])), pool.read, limits=_LIMITS), ""
    except (KernelTypeError, TargetError) as error:
        return None, error.message
