"""Commands on a model: `triton-ops torch modes` compares ways to compile it, `advise` judges its speed."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from triton_ops.base import gain_text, require
from triton_ops.exceptions import SettingsError, TargetError, TritonKernelError, alternatives
from triton_ops.request import TuneOptions
from triton_ops.terminal import Facts, option, tell
from triton_ops.typed import named_function, parse_config
from triton_ops_torch.call_profile import advise
from triton_ops_torch.comparing_modes import tune_compile
from triton_ops_torch.compile_mode import MODES
from triton_ops_torch.mode_report import CompileReport, ModeResult

_Model = Annotated[str, option("MODULE:FACTORY", "Returns (model, inputs); or a shipped model.")]
SCENARIOS = ("simple-mlp", "simple-mlp-bf16", "llama-block", "small-transformer", "one-token", "norm-chain")
"""Names of the models that come with the package: factories of `shipped_models`, which needs torch to be imported."""


_HEADER = (
    "mode", "steady ms", "mean", "p20", "p80", "vs eager", "first call s", "compile s", "records", "recompiles", "MiB",
    "kernels", "max error", "break-even", "status",
)  # fmt: skip
_NUMBERS = _HEADER[1:-1]
_SHOWN = 10
_NEXT_OPTION = re.compile(r",(?=[^,]*=)")
_QUOTED = re.compile(r"(?P<quote>['\"])(?P<text>.*)(?P=quote)")
_OPTIONS_HINT = (
    "for example --options max_autotune=true,max_autotune_gemm_backends=ATEN,CPP or --options "
    """'{"max_autotune": true, "max_autotune_gemm_backends": "ATEN,CPP"}'; each --options is one more way"""
)


def compile_modes_command(
    target: _Model,
    mode: Annotated[
        list[str] | None, option("--mode", "A mode of torch.compile or an option set; repeat it.", "NAME")
    ] = None,
    option_sets: Annotated[
        list[str] | None,
        option("--options", "One more way: these options of Inductor, or JSON; repeat it.", "NAME=V,NAME=V"),
    ] = None,
    training: Annotated[bool, option("--training", "A call is forward and backward.")] = False,
    why: Annotated[bool, option("--why", "Vary slow modes to name what makes them slow.")] = False,
    warm: Annotated[bool, option("--warm", "Let compilers find what earlier ones made.")] = False,
    warmup: Annotated[int, option("--warmup", "Least calls before times count.", "N")] = 3,
    seconds: Annotated[float, option("--seconds", "Seconds of the last comparison.", "S")] = 20.0,
    compile_s: Annotated[float | None, option("--compile-s", "Limit of one compilation.", "S")] = None,
    fresh: Annotated[bool, option("--fresh", "Do not go on with an interrupted comparison.")] = False,
    collect: Annotated[Path | None, option("--collect", "Keep each mode's log and traces here.", "DIR")] = None,
    log: Annotated[
        list[str] | None, option("--log", "Switch on a further log of torch, such as autotuning; repeat it.", "NAME")
    ] = None,
    details: Annotated[bool, option("--details", "With --json, add all that was found.")] = False,
    *,
    options: Annotated[
        TuneOptions, "budget_s seed wait cache_dir", {"budget_s": "No further mode is begun after this time."}
    ],
) -> Facts:
    """Compile a model in every way, each in a process of its own, and say which is the fastest, and by how much.

    MODULE:FACTORY is called in each process. Shipped models are simple-mlp, simple-mlp-bf16, llama-block,
    small-transformer, one-token and norm-chain. Eager is always measured, and is recommended unless a way is proven
    faster. Exit code 1: eager could not be measured. In --options a part without `=` continues the value before it.
    """
    modes: list[Any] = [*(mode or MODES), *(options_of(each) for each in option_sets or [])]
    report = tune_compile(
        factory_of(target), modes=modes, training=training, why=why, warm=warm, warmup=warmup, seconds=seconds,
        budget_s=options.budget_s, compile_s=compile_s, resume=not fresh, collect=collect, logs=log or [],
        cache_dir=options.cache_dir, seed=options.seed, wait=options.wait, follow=tell,
    )  # fmt: skip
    return report_facts(report, lambda: report.as_json(details))


def options_of(text: str) -> dict[str, Any]:
    """The options of one `--options`: `NAME=V,NAME=V` or a JSON object.

    A part without `=` continues the value before it, as in `max_autotune_gemm_backends=ATEN,CPP`, which may be quoted.
    """
    try:
        if text.lstrip().startswith("{"):
            return parse_config([text], "--options") or {}
        texts = [each.split(",") for each in _NEXT_OPTION.split(text)]
        if not all("=" in first and all(part.strip() for part in rest) for first, *rest in texts):
            raise ValueError("a part that continues nothing")
        options = [(name, value) for parts in texts for name, value in _option(parts).items()]
        if len(dict(options)) < len(options):
            raise ValueError("an option twice")
        return dict(options)
    except (TritonKernelError, ValueError) as error:
        raise SettingsError(
            f"--options {text!r} is neither NAME=value,NAME=value with each name once nor a JSON object",
            hint=_OPTIONS_HINT,
        ) from error


def _option(parts: list[str]) -> dict[str, Any]:
    name, _, value = ",".join(parts).partition("=")
    quotation = _QUOTED.fullmatch(value.strip())
    if len(parts) > 1 or quotation:
        return {name.strip(): quotation["text"] if quotation else value.strip()}
    return parse_config(parts, "--options") or {}


def factory_of(target: str) -> Any:
    """The factory that TARGET names: one that comes with the package, or `module:factory`."""
    require("torch", "compiling a model")
    if target in SCENARIOS:
        return getattr(importlib.import_module("triton_ops_torch.shipped_models"), target.replace("-", "_"))
    if ":" not in target:
        raise TargetError(
            f"there is no model {target!r} that comes with the package; {alternatives(target, SCENARIOS)}",
            hint="name module:factory or file.py:factory, a function that returns (model, inputs)",
        )
    return named_function("the TARGET", target, "name a function that returns (model, inputs)")


def report_facts(report: CompileReport, data: Callable[[], dict[str, Any]]) -> Facts:
    """The report: the table, the culprit, and what is recommended."""
    facts = Facts("torch modes", data).lines(f"{report.problem} on {report.device}")
    facts.table(_HEADER, list(map(_row, report.modes)), _NUMBERS)
    if report.culprit is not None:
        facts.text(report.culprit.text, "culprit      ")
    for note in report.notes:
        facts.text(note, "note         ")
    return facts.text(_recommendation(report), "recommended  ", bold=True)


def _recommendation(report: CompileReport) -> str:
    if report.chosen.eager:
        return f"{report.recommended}: {report.confirmed or 'no compiled mode is proven faster'}"
    calls = report.mode(report.recommended).break_even_calls
    after = f"; pays after {calls:.0f} calls" if calls is not None and math.isfinite(calls) else ""
    return f"{report.recommended}: {report.confirmed}{after}"


def _row(row: ModeResult) -> list[str]:
    calls, number = row.break_even_calls, Facts.cell
    return [
        row.name,
        *(number(value, ".3f") for value in (row.steady_ms, row.mean_ms, row.p20_ms, row.p80_ms)),
        gain_text(1 / row.relative if row.relative else None),
        *(number(value, ".1f") for value in (row.first_call_s, row.compile_s)),
        *(number(value, "d") for value in (row.recordings, row.recompiles)),
        number(None if row.peak_bytes is None else row.peak_bytes / 2**20, ".0f"),
        number(row.kernels, "d"),
        number(row.max_error, ".1e"),
        "never" if calls is not None and math.isinf(calls) else number(calls, ".0f"),
        f"{row.status}{f': {row.reason}' if row.reason else ''}",
    ]


def advise_command(
    target: _Model,
    tried: Annotated[
        list[str] | None, option("--tried", "library, torch.compile, Triton or CUDA, if tried; repeat it.", "WAY")
    ] = None,
    training: Annotated[bool, option("--training", "A call is forward and backward.")] = False,
) -> Facts:
    """Profile a model, and say what is worth doing about its speed, and why.

    The advice is nothing, a library, torch.compile, a Triton kernel, or CUDA. The model is called in this process.
    """
    advice = advise(factory_of(target), training=training, tried=tried or [])
    profile = advice.profile
    facts = Facts("torch advise", Facts.members(advice, "way", "reasons", "profile"))
    rows = [[op.name, f"{op.share:.1%}", str(op.calls), op.kind] for op in profile.ops[:_SHOWN]]
    idle = "" if profile.idle is None else f", the GPU idle in {profile.idle:.0%}"
    facts.lines(f"{profile.call_ms:.3f} ms a call{idle}")
    facts.table(("operator", "share", "calls", "kind"), rows, ("share", "calls"))
    return facts.text("; ".join(advice.reasons), f"{advice.way}  ", bold=True)
