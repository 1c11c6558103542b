"""Commands on a model: `triton-ops torch modes` compares ways to compile it, `advise` judges its speed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from triton_ops.base import base_class, gain_text, require
from triton_ops.compile_modes.call_profile import advise
from triton_ops.compile_modes.comparing_modes import tune_compile
from triton_ops.compile_modes.compile_mode import MODES
from triton_ops.compile_modes.mode_report import CompileReport, ModeResult
from triton_ops.exceptions import SettingsError, SpaceError, TargetError
from triton_ops.request import TuneOptions, TypedProblem, named_object
from triton_ops.terminal import Facts, folder_of, only_data_on_stdout, option, tell, with_options

_Model = Annotated[str, option("MODULE:FACTORY", "Returns (model, inputs); or a shipped model.")]
_FOR = "making a model"
_Module: Any = base_class("torch.nn", "Module", _FOR)


class SimpleMLP(_Module):  # type: ignore[misc]
    """Two linear layers with a ReLU between them; `features` are the extents of input, hidden layer and output."""

    def __init__(self, features: tuple[int, int, int] = (1024, 1024, 1024)) -> None:
        super().__init__()
        nn = require("torch.nn", _FOR)
        self.linear1 = nn.Linear(features[0], features[1])
        self.relu = nn.ReLU()
        self.linear2 = nn.Linear(features[1], features[2])

    def forward(self, x: Any) -> Any:
        """The output for `x`, (batch, features[0])."""
        return self.linear2(self.relu(self.linear1(x)))


class RMSNorm(_Module):  # type: ignore[misc]
    """Root mean square normalisation of the last axis, computed in float32, with a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch = require("torch", _FOR)
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        """`x` normalised, in its dtype."""
        wide = x.float()
        scale = (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        return (wide * scale).to(x.dtype) * self.weight


class LlamaBlock(_Module):  # type: ignore[misc]
    """A decoder block: RMSNorm, causal attention with fewer heads of keys, RMSNorm, gated MLP, both with a residual.

    `heads` is a multiple of `kv_heads`, and `hidden` the extent of the gated MLP.
    """

    def __init__(self, width: int = 4096, heads: int = 32, kv_heads: int = 8, hidden: int = 14336) -> None:
        super().__init__()
        nn = require("torch.nn", _FOR)
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        linear = partial(nn.Linear, bias=False)
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.o = linear(width, width), linear(width, width)
        self.k, self.v = linear(width, kv_heads * self.head), linear(width, kv_heads * self.head)
        self.gate, self.up, self.down = linear(width, hidden), linear(width, hidden), linear(hidden, width)

    def forward(self, x: Any) -> Any:
        """The hidden state after the block for `x`, (batch, sequence, width)."""
        functional = require("torch.nn.functional", _FOR)
        normed = self.norm1(x)
        projections = (self.q, self.heads), (self.k, self.kv_heads), (self.v, self.kv_heads)
        q, k, v = (each(normed).view(*x.shape[:2], heads, self.head).transpose(1, 2) for each, heads in projections)
        repeated = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeated, dim=1), v.repeat_interleave(repeated, dim=1)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).reshape(x.shape))
        normed = self.norm2(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class NormChain(_Module):  # type: ignore[misc]
    """Operations between the products of a decoder block: a gated activation, a residual, and the next RMSNorm."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.norm = RMSNorm(width)

    def forward(self, x: Any, gate: Any, up: Any) -> tuple[Any, Any]:
        """The normalised hidden state, and the hidden state, for three tensors (rows, width)."""
        functional = require("torch.nn.functional", _FOR)
        hidden = x + functional.silu(gate) * up
        return self.norm(hidden), hidden


def simple_mlp(
    batch: int = 256,
    features: tuple[int, int, int] = (1024, 1024, 1024),
    *,
    dtype: str = "float32",
    device: str | None = None,
) -> tuple[Any, tuple[Any, ...]]:
    """`SimpleMLP` and its input (batch, features[0]), on a GPU where there is one."""
    return _placed(SimpleMLP(features), [(batch, features[0])], dtype, device)


def llama_block(
    batch: int = 1,
    tokens: int = 128,
    sizes: tuple[int, int, int, int] = (4096, 32, 8, 14336),
    *,
    dtype: str = "bfloat16",
    device: str | None = None,
) -> tuple[Any, tuple[Any, ...]]:
    """A `LlamaBlock` of width, heads, heads of keys and hidden extent `sizes`, and its input (batch, tokens, width)."""
    return _placed(LlamaBlock(*sizes), [(batch, tokens, sizes[0])], dtype, device)


def norm_chain(
    rows: int = 512, width: int = 1024, *, dtype: str = "float32", device: str | None = None
) -> tuple[Any, tuple[Any, ...]]:
    """A `NormChain` and its three inputs (rows, width)."""
    return _placed(NormChain(width), [(rows, width)] * 3, dtype, device)


def _placed(
    model: Any, shapes: Sequence[tuple[int, ...]], dtype: str, device: str | None
) -> tuple[Any, tuple[Any, ...]]:
    torch: Any = require("torch", _FOR)
    place = {"device": device or ("cuda" if torch.cuda.is_available() else "cpu"), "dtype": getattr(torch, dtype)}
    return model.to(**place).eval(), tuple(torch.randn(*shape, **place) for shape in shapes)


SCENARIOS: Mapping[str, Callable[[], Any]] = {
    "simple-mlp": simple_mlp,
    "simple-mlp-bf16": partial(simple_mlp, dtype="bfloat16"),
    "llama-block": llama_block,
    "small-transformer": partial(llama_block, 1, 64, (256, 8, 4, 704), dtype="float32"),
    "one-token": partial(llama_block, 1, 1, (256, 8, 4, 704), dtype="float32"),
    "norm-chain": norm_chain,
}
"""Factories by the names that the command line takes."""


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


@with_options(
    TuneOptions, "budget_s", "seed", "wait", "cache_dir", budget_s="No further mode is begun after this time."
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
    options: TuneOptions,
) -> Facts:
    """Compile a model in every way, each in a process of its own, and say which is the fastest, and by how much."""
    modes: list[Any] = ["eager", *(mode or MODES), *(options_of(each) for each in option_sets or [])]
    folder = folder_of(options.cache_dir)
    with only_data_on_stdout():
        report = tune_compile(
            factory_of(target), modes=modes, training=training, why=why, warm=warm, warmup=warmup, seconds=seconds,
            budget_s=options.budget_s, compile_s=compile_s, resume=not fresh, collect=collect, logs=log or [],
            cache_dir=folder, seed=options.seed, wait=options.wait, follow=tell,
        )  # fmt: skip
    return report_facts(report, lambda: report.as_json(details))


def options_of(text: str) -> dict[str, Any]:
    """The options of one `--options`: `NAME=V,NAME=V` or a JSON object.

    A part without `=` continues the value before it, as in `max_autotune_gemm_backends=ATEN,CPP`, which may be quoted.
    """
    try:
        if text.lstrip().startswith("{"):
            return TypedProblem.config([text], "--options") or {}
        texts = [each.split(",") for each in _NEXT_OPTION.split(text)]
        if not all("=" in first and all(part.strip() for part in rest) for first, *rest in texts):
            raise ValueError("a part that continues nothing")
        options = [(name, value) for parts in texts for name, value in _option(parts).items()]
        if len(dict(options)) < len(options):
            raise ValueError("an option twice")
        return dict(options)
    except (SpaceError, ValueError) as error:
        raise SettingsError(
            f"--options {text!r} is neither NAME=value,NAME=value with each name once nor a JSON object",
            hint=_OPTIONS_HINT,
        ) from error


def _option(parts: list[str]) -> dict[str, Any]:
    name, _, value = ",".join(parts).partition("=")
    quotation = _QUOTED.fullmatch(value.strip())
    if len(parts) > 1 or quotation:
        return {name.strip(): quotation["text"] if quotation else value.strip()}
    return TypedProblem.config(parts, "--options") or {}


def factory_of(target: str) -> Any:
    """The factory that TARGET names: one that comes with the package, or `module:factory`."""
    require("torch", "compiling a model")
    if target in SCENARIOS:
        return SCENARIOS[target]
    if ":" not in target:
        raise TargetError(
            f"there is no model {target!r}; those that come with the package are {', '.join(SCENARIOS)}",
            hint="name module:factory or file.py:factory, a function that returns (model, inputs)",
        )
    factory = named_object(target)
    if not callable(factory):
        raise TargetError(
            f"{target} is a {type(factory).__name__}, not a function",
            hint="name a function that returns (model, inputs)",
        )
    return factory


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
    """Profile a model, and say what is worth doing about its speed, and why."""
    with only_data_on_stdout():
        advice = advise(factory_of(target), training=training, tried=tried or [])
    profile = advice.profile
    facts = Facts("torch advise", Facts.members(advice, "way", "reasons", "profile"))
    rows = [[op.name, f"{op.share:.1%}", str(op.calls), op.kind] for op in profile.ops[:_SHOWN]]
    idle = "" if profile.idle is None else f", the GPU idle in {profile.idle:.0%}"
    facts.lines(f"{profile.call_ms:.3f} ms a call{idle}")
    facts.table(("operator", "share", "calls", "kind"), rows, ("share", "calls"))
    return facts.text("; ".join(advice.reasons), f"{advice.way}  ", bold=True)
