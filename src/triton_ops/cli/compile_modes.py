"""`triton-ops compile-modes`: in which way is a model compiled best?"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from triton_ops.base import require
from triton_ops.cli.console import (
    CacheDir,
    Json,
    Verbose,
    bold,
    only_data_on_stdout,
    paragraph,
    say,
    say_json,
    table,
    tell,
    width,
)
from triton_ops.cli.problem import parse_config
from triton_ops.cli.record_selection import folder_of
from triton_ops.cli.target import load_object
from triton_ops.compile_modes import MODES, SCENARIOS, CompileReport, ModeResult, tune_compile
from triton_ops.exceptions import SettingsError, SpaceError, TargetError

_HEADER = (
    "mode", "steady ms", "mean", "p20", "p80", "vs eager", "first call s", "compile s", "records", "recompiles", "MiB",
    "kernels", "max error", "break-even", "status",
)  # fmt: skip
_NUMBERS = _HEADER[1:-1]
_QUOTED = re.compile(r"(?P<quote>['\"])(?P<text>.*)(?P=quote)")
_OPTIONS_HINT = (
    "for example --options max_autotune=true,max_autotune_gemm_backends=ATEN,CPP or --options "
    """'{"max_autotune": true, "max_autotune_gemm_backends": "ATEN,CPP"}'; each --options is one more way"""
)


def compile_modes_command(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:FACTORY", help="Returns (model, inputs); or a shipped model."),
    ],
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", metavar="NAME", help="A mode of torch.compile or an option set; repeat it."),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--options", metavar="NAME=V,NAME=V", help="One more way: these options of Inductor, or JSON; repeat it."
        ),
    ] = None,
    training: Annotated[bool, typer.Option("--training", help="A call is forward and backward.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Vary slow modes to name what makes them slow.")] = False,
    warm: Annotated[bool, typer.Option("--warm", help="Let compilers find what earlier ones made.")] = False,
    warmup: Annotated[int, typer.Option("--warmup", metavar="N", help="Least calls before times count.")] = 3,
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", help="Seconds of the last comparison.")] = 20.0,
    budget_s: Annotated[
        float | None, typer.Option("--budget-s", metavar="S", help="No further mode is begun after this time.")
    ] = None,
    compile_s: Annotated[
        float | None, typer.Option("--compile-s", metavar="S", help="Limit of one compilation.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not go on with an interrupted comparison.")] = False,
    collect: Annotated[
        Path | None, typer.Option("--collect", metavar="DIR", help="Keep each mode's log and traces here.")
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="NAME", help="Switch on a further log of torch, such as autotuning; repeat it."),
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="With --json, add all that was found.")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the model and the orders.")] = 0,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End with an error if another process measures on the GPU.")
    ] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Compile a model in every way, each in a process of its own, and say which is the fastest, and by how much."""
    asked: list[Any] = ["eager", *(mode or MODES), *(options_of(each) for each in options or [])]
    folder = folder_of(cache_dir)
    with only_data_on_stdout():
        factory = factory_of(target)
        found = tune_compile(
            factory, modes=asked, training=training, why=why, warm=warm, warmup=warmup, seconds=seconds,
            budget_s=budget_s, compile_s=compile_s, resume=not fresh, collect=collect, logs=log or [],
            cache_dir=folder, seed=seed, wait=not no_wait, follow=tell,
        )  # fmt: skip
    if as_json:
        say_json(found.as_json(details))
    else:
        say(*report_lines(found, width()))


def options_of(text: str) -> dict[str, Any]:
    """The options of one `--options`: `NAME=V,NAME=V` or a JSON object.

    A part without `=` continues the value before it, as in `max_autotune_gemm_backends=ATEN,CPP`, which may be quoted.

    Raises:
        SettingsError: The text is none of these, or names an option twice.
    """
    try:
        if text.lstrip().startswith("{"):
            return parse_config([text], "--options") or {}
        parts: list[list[str]] = []
        for part in text.split(","):
            if "=" in part:
                parts.append([part])
            elif parts and part.strip():
                parts[-1].append(part)
            else:
                raise ValueError("a part that continues nothing")
        found = [(name, value) for part in parts for name, value in _option(part).items()]
        if len(dict(found)) < len(found):
            raise ValueError("an option twice")
        return dict(found)
    except (SpaceError, ValueError) as error:
        raise SettingsError(
            f"--options {text!r} is neither NAME=value,NAME=value with each name once nor a JSON object",
            hint=_OPTIONS_HINT,
        ) from error


def _option(parts: list[str]) -> dict[str, Any]:
    """One option, from the parts between its commas."""
    name, _, value = ",".join(parts).partition("=")
    quoted = _QUOTED.fullmatch(value.strip())
    if len(parts) > 1 or quoted:
        return {name.strip(): quoted["text"] if quoted else value.strip()}
    return parse_config(parts, "--options") or {}


def factory_of(target: str) -> Any:
    """The factory that TARGET names: one that comes with the package, or `module:factory`.

    Raises:
        MissingDependencyError: Torch cannot be imported: said here, since a target's import would fail for that.
        TargetError: There is none, or it is no function.
    """
    require("torch", "compiling a model")
    if target in SCENARIOS:
        return SCENARIOS[target]
    if ":" not in target:
        raise TargetError(
            f"there is no model {target!r}; those that come with the package are {', '.join(SCENARIOS)}",
            hint="name module:factory or file.py:factory, a function that returns (model, inputs)",
        )
    found = load_object(target)
    if not callable(found):
        raise TargetError(
            f"{target} is a {type(found).__name__}, not a function", hint="name a function that returns (model, inputs)"
        )
    return found


def report_lines(found: CompileReport, columns: int | None) -> list[str]:
    """The report for people: the table, the culprit, and what is recommended."""
    header, *lines = table(_HEADER, [_row(row) for row in found.modes], columns, _NUMBERS)
    said = [f"{found.problem} on {found.device}", bold(header), *lines]
    if found.culprit is not None:
        said += paragraph("culprit      ", found.culprit.text, columns)
    for note in found.notes:
        said += paragraph("note         ", note, columns)
    said += map(bold, paragraph("recommended  ", _recommended(found), columns))
    return said


def _recommended(found: CompileReport) -> str:
    row = found.mode(found.recommended)
    if found.chosen.eager:
        why = found.confirmed or "no compiled mode is proven faster"
        return f"{found.recommended}: {why}"
    calls = row.break_even_calls
    after = f"; pays after {calls:.0f} calls" if calls is not None and math.isfinite(calls) else ""
    return f"{found.recommended}: {found.confirmed}{after}"


def _row(row: ModeResult) -> list[str]:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    even = row.break_even_calls
    return [
        row.name,
        number(row.steady_ms, ".3f"),
        number(row.mean_ms, ".3f"),
        number(row.p20_ms, ".3f"),
        number(row.p80_ms, ".3f"),
        "-" if not row.relative else f"{1 / row.relative:.2f}x",
        number(row.first_call_s, ".1f"),
        number(row.compile_s, ".1f"),
        number(row.recordings, "d"),
        number(row.recompiles, "d"),
        number(None if row.peak_bytes is None else row.peak_bytes / 2**20, ".0f"),
        number(row.kernels, "d"),
        number(row.max_error, ".1e"),
        "-" if even is None else "never" if math.isinf(even) else f"{even:.0f}",
        f"{row.status}{f': {row.reason}' if row.reason else ''}",
    ]
