"""The command that says which configs of a space give the same bits, and what separates those that do not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from triton_ops.backend import Operation
from triton_ops.base import counted
from triton_ops.compilation import CompilePool
from triton_ops.device import Target, device_spec
from triton_ops.exceptions import SettingsError
from triton_ops.kernel_ir import BitClass
from triton_ops.report import times_of
from triton_ops.space import Config
from triton_ops.terminal import ExitCode, Facts, followed, option
from triton_ops.typed import TypedTarget
from triton_ops_lab.ranking import ModelQuestion

_EXTENTS = re.compile(r"(\w+)=(\d+(?:,\d+)*)")
_HEADER = ("class", "configs", "ms", "holds at", "fastest or first", "its sums, or what it has otherwise than class 1")
_LACK, _HINT = "so it has no classes", "name an Operation that holds a TritonKernel"


@dataclass(frozen=True)
class ClassOfConfigs:
    """The configs of a space that are of one class.

    Attributes:
        bit_class: The class at the first problem.
        configs: Its configs; one alone where the class cannot be told.
        extents: Values of the extent that was varied at which some config has this class, too.
        times_ms: What its configs took in the newest run of this problem.
    """

    bit_class: BitClass
    configs: tuple[Config, ...]
    extents: tuple[int, ...] = ()
    times_ms: Mapping[Config, float] = field(default_factory=dict)

    @property
    def fastest(self) -> tuple[Config, float | None]:
        """The config that took least time with that time; the first one, and None, where none was measured."""
        times = {config: self.times_ms[config] for config in self.configs if config in self.times_ms}
        best = min(times, key=lambda config: times[config], default=self.configs[0])
        return best, times.get(best)


def classes_command(
    vary: Annotated[
        str | None, option("--vary", "An extent, to tell at which values a class holds, too.", "NAME=N,N")
    ] = None,
    jobs: Annotated[int | None, option("--jobs", "Processes; default one for each CPU.", "N")] = None,
    *,
    target: Annotated[TypedTarget, "text shape dtype arg space gpu cache_dir"],
) -> Facts:
    """Say which configs of TARGET give the same bits, by what is compiled, and what separates the others.

    Every config is compiled; no GPU is needed with --gpu. Classes are proposals: a launch of a config beside another
    one shows whether their bits are equal. A config whose class cannot be told is a class of its own.
    """
    operation, space, extents, dtype = target.tuned(target.operation(_LACK))
    goal = Target.of(device_spec(None)) if target.gpu is None else Target.named(target.gpu)
    problem = operation.problem(extents, dtype)
    varied = {} if vary is None else dict(_varied(vary, operation, extents))
    if jobs is not None:
        SettingsError.checked("--jobs", jobs, 1, hint="leave it out for one per CPU")

    def classes_at(shape: tuple[int, ...] | None) -> dict[Config, BitClass]:
        return _classes(ModelQuestion.of(operation, space=space, shape=shape, dtype=dtype), goal, jobs)

    classes, times = classes_at(extents), times_of(problem, target.cache_dir, goal.arch)
    keys = {value: {one.key for one in classes_at(shape).values()} - {""} for value, shape in varied.items()}
    found = [
        replace(one, times_ms=times, extents=tuple(value for value in keys if one.bit_class.key in keys[value]))
        for one in grouped(classes)
    ]
    facts = Facts("explain classes", _json(str(problem), goal, found))
    facts.code = ExitCode.DONE if found else ExitCode.NONE_RAN
    facts.lines(f"{problem} for {goal.arch}: {counted(len(classes), 'config')}, {counted(len(found), 'class')}")
    return facts.table(_HEADER, list(_rows(found)), {"configs", "ms"})


def grouped(classes: Mapping[Config, BitClass]) -> list[ClassOfConfigs]:
    """The classes of configs, the largest first; a config whose class cannot be told is one of its own."""
    configs: dict[object, list[Config]] = {}
    for config, one in classes.items():
        configs.setdefault(one.key or config, []).append(config)
    groups = [ClassOfConfigs(classes[several[0]], tuple(several)) for several in configs.values()]
    return sorted(groups, key=lambda one: -len(one.configs))


def _classes(question: ModelQuestion, goal: Target, jobs: int | None) -> dict[Config, BitClass]:
    """The class of each config that can be launched."""
    configs = list(question.space)
    with CompilePool(question.compiler(goal, _LACK, _HINT), workers=jobs) as pool:
        compiled = list(followed([pool.submit(config, anyway=True) for config in configs], len(configs), "configs"))
        launchable = [future.result().config for future in compiled if future.result().launchable]
        return dict(zip(launchable, [each.result() for each in map(pool.bit_class, launchable)], strict=True))


def _varied(vary: str, operation: Operation, extents: tuple[int, ...] | None) -> Iterator[tuple[int, Any]]:
    """Each value of the extent that is varied, with the whole shape."""
    match = _EXTENTS.fullmatch(vary)
    if match is None or match[1] not in operation.extents:
        hint = f"write one of {', '.join(operation.extents)} with its values, such as M=1,16,256"
        raise SettingsError(f"--vary is {vary!r}", hint=hint)
    shape, axis = operation.full_shape(extents), list(operation.extents).index(match[1])
    for value in map(int, match[2].split(",")):
        yield value, (*shape[:axis], value, *shape[axis + 1 :])


def _rows(found: Sequence[ClassOfConfigs]) -> Iterator[list[str]]:
    for number, one in enumerate(found, 1):
        (config, ms), told = one.fastest, one.bit_class
        holds = ", ".join(map(str, one.extents)) or "-"
        words = told.beside(found[0].bit_class if number > 1 else BitClass(told.expression)) or ["no sums"]
        yield [str(number), str(len(one.configs)), Facts.cell(ms, ".4g"), holds, str(config), "; ".join(words)]


def _json(problem: str, goal: Target, found: Sequence[ClassOfConfigs]) -> dict[str, Any]:
    return {"problem": problem, "target": goal.arch, "classes": [
        {
            "key": (told := one.bit_class).key, "configs": list(one.configs), "fastest": one.fastest[0],
            "ms": one.fastest[1], "extents": list(one.extents), "orders": list(map(str, told.orders)),
            "fused": told.fused, "silent": told.silent, "beside": told.beside(found[0].bit_class),
        } for one in found
    ]}  # fmt: skip
