"""`triton-ops explain`: the time that the model expects of one config of TARGET, with the share of each resource."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any

import typer

from triton_ops.backend import Operation
from triton_ops.cli.console import CacheDir, Json, TargetName, Verbose, only_data_on_stdout, say, say_json, width
from triton_ops.cli.layout import listing
from triton_ops.cli.problem import operation_of, parse_config, parse_shapes
from triton_ops.cli.record_selection import folder_of
from triton_ops.cli.target import load_target
from triton_ops.exceptions import ConfigValueError, TargetError
from triton_ops.expectation.explanation import Explained, explain
from triton_ops.expectation.rank import device_spec, expected_of, known_machine
from triton_ops.hardware import DeviceSpec
from triton_ops.problem import Problem
from triton_ops.ranking.in_words import work_in_words
from triton_ops.ranking.predict import Forecast
from triton_ops.space import Config

_SHOWN = 8


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
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Say what the model expects of one config before it is compiled, resource by resource.

    The work is the declared one, else it is read from the kernel. Nothing is run, and no GPU is needed with --gpu.
    """
    shapes, values = parse_shapes(shape), parse_config(config or [], "--config")
    spec = device_spec(gpu)
    with only_data_on_stdout():
        operation, _, extents, chosen_dtype = operation_of(_operation(target), None, shapes, dtype)
        problem = operation.problem(extents, chosen_dtype)
        chosen = _config(operation, problem, values or {})
        expected = expected_of(operation, shape=extents, dtype=chosen_dtype)
        machine = known_machine(spec, folder_of(cache_dir))
        explained = explain(expected, chosen, spec, machine)
    found = explained.forecast
    if found is None:
        raise TargetError(
            f"the model makes no forecast: {explained.silent}",
            hint="docs/concepts/inferred.md says what can be read, docs/concepts/model.md how work is declared",
        )
    if as_json:
        head = {"problem": str(problem), "device": spec.name, "config": dict(chosen), "source": explained.source}
        say_json({**head, **asdict(found), **_as_json(explained)})
    else:
        say(*listing({**_facts(problem, spec, chosen, found), **_read_facts(explained)}, width()))


def _operation(target: str) -> Operation:
    found = load_target(target)
    if not isinstance(found, Operation):
        raise TargetError(f"{target} is a function; its problem is not known", hint="name an Operation")
    return found


def _config(operation: Operation, problem: Problem, values: dict[str, Any]) -> Config:
    """The default config, in which the given values replace its own."""
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


def _facts(problem: Problem, spec: DeviceSpec, config: Config, found: Forecast) -> dict[str, str]:
    waves = f"{found.waves:.2f} waves of {found.blocks_per_unit} per multiprocessor"
    source = "by the compiler" if found.compiled else "guessed"
    facts = {
        "problem": str(problem),
        "device": f"{spec.name} {spec.arch}, {spec.units} multiprocessors",
        "config": str(config),
        "expected": f"{found.expected_ms:.4g} ms" if math.isfinite(found.expected_ms) else "does not fit on the device",
        "lower bound": f"{found.lower_bound_ms:.4g} ms",
        "blocks": waves,
        "resources": (
            f"{found.registers} registers, {found.spill_bytes:.0f} spilled bytes, "
            f"{found.shared_bytes} bytes shared; {source}"
        ),
    }
    terms = {f"alone: {term.name}": f"{term.alone_ms:.4g} ms" for term in found.terms[:_SHOWN]}
    return {**facts, **terms}


def _read_facts(explained: Explained) -> dict[str, str]:
    """What was read of the kernel, where it could be."""
    if explained.work is None:
        return {}
    said = {f"read: {name}": text for name, text in work_in_words(explained.work).items()}
    return {**said, **({"but": "; ".join(explained.differences)} if explained.differences else {})}


def _as_json(explained: Explained) -> dict[str, Any]:
    if explained.work is None:
        return {"inferred": None, "differences": []}
    return {"inferred": asdict(explained.work), "differences": list(explained.differences)}
