"""`triton-ops explain`: what to expect of one config of TARGET on a device that need not be here, and its limits."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from triton_ops.backend import Operation
from triton_ops.cli import explain_facts
from triton_ops.cli.console import CacheDir, Json, TargetName, Verbose, only_data_on_stdout, say, say_json, width
from triton_ops.cli.layout import listing
from triton_ops.cli.problem import operation_of, parse_config, parse_shapes
from triton_ops.cli.record_selection import folder_of
from triton_ops.cli.target import load_target
from triton_ops.exceptions import ConfigValueError, SettingsError, TargetError
from triton_ops.expectation.explanation import explain
from triton_ops.expectation.portrait import portrait
from triton_ops.expectation.rank import device_spec, expected_of
from triton_ops.hardware import load_calibration, machine_of
from triton_ops.problem import Problem
from triton_ops.space import Config


def explain_command(
    target: TargetName,
    shape: Annotated[str | None, typer.Option("--shape", metavar="MxN", help="The problem.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", metavar="DTYPE", help="Such as bf16, fp16, fp8.")] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="NAME=V",
            help="Values of tunables; repeat it, or NAME=V,NAME=V. The rest as in the default.",
        ),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="A model that is not here, such as 'NVIDIA H200'.")
    ] = None,
    measured_ms: Annotated[
        float | None, typer.Option("--measured", metavar="MS", help="A time that you measured: how near to the limit?")
    ] = None,
    pipeline: Annotated[bool, typer.Option("--pipeline", help="Draw the pipeline for one to five stages.")] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Say what to expect of one config: time, occupancy, waves, shared memory, roofline, and what limits it.

    The work is the declared one, else it is read from the kernel. The config is compiled; nothing is run, and no GPU is
    needed with --gpu.
    """
    _check(measured_ms)
    shapes, values = parse_shapes(shape), parse_config(config or [], "--config")
    spec = device_spec(gpu)
    with only_data_on_stdout():
        operation, _, extents, chosen_dtype = operation_of(operation_named(target), None, shapes, dtype)
        problem = operation.problem(extents, chosen_dtype)
        chosen = config_of(operation, problem, values or {})
        expected = expected_of(operation, shape=extents, dtype=chosen_dtype)
        calibration = load_calibration(folder_of(cache_dir), spec.name)
        explained = explain(expected, chosen, spec, machine_of(spec, calibration))
    if not explained.told:
        raise TargetError(
            f"the model makes no forecast: {explained.silent}",
            hint="docs/concepts/inferred.md says what can be read, docs/concepts/model.md how work is declared",
        )
    seen = portrait(explained, expected.work, chosen, spec, calibration=calibration, measured_ms=measured_ms)
    if as_json:
        about = {"problem": str(problem), "device": spec.name, "config": dict(chosen), "source": explained.source}
        say_json({**about, "arch": spec.arch, "units": spec.units, **explain_facts.as_json(explained, seen)})
        return
    unit = "compute units" if spec.kind == "hip" else "multiprocessors"
    head = {"problem": str(problem), "device": f"{spec.name} {spec.arch}, {spec.units} {unit}", "config": str(chosen)}
    say(*listing(explain_facts.rows_of(head, spec, explained, seen), width()))
    if pipeline:
        say(*explain_facts.pipeline_lines(seen))


def _check(measured_ms: float | None) -> None:
    if measured_ms is not None and not 0 < measured_ms < math.inf:
        raise SettingsError(f"--measured is {measured_ms:g}; it must be milliseconds over 0", hint="such as 0.21")


def operation_named(target: str) -> Operation:
    """The operation that a TARGET names.

    Raises:
        TargetError: It is a function, whose problem is not known, or cannot be found.
    """
    found = load_target(target)
    if not isinstance(found, Operation):
        raise TargetError(f"{target} is a function; its problem is not known", hint="name an Operation")
    return found


def config_of(operation: Operation, problem: Problem, values: dict[str, Any]) -> Config:
    """The default config, in which the given values replace its own.

    Raises:
        ConfigValueError: The operation has no such tunable, or the config is not in its space.
    """
    space = operation.space_for(problem)
    wrong = [name for name in values if name not in space.tunables]
    if wrong:
        raise ConfigValueError(
            f"{operation.name} has no tunable {', '.join(wrong)}", hint=f"it has {', '.join(space.tunables)}"
        )
    config = Config({**space.default_config, **space.with_names(values)})
    if (reason := space.why_not(config)) is not None:
        raise ConfigValueError(
            f"config ({config}) is not in the space of {operation.name}: {reason}", hint="take a config of the space"
        )
    return config
