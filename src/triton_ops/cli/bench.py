"""`triton-ops bench`: is a config, or one kernel, faster than another on this device?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from triton_ops.benchmark.kernels import KernelRun
from triton_ops.cli import bench_kernels
from triton_ops.cli.bench_contestants import BenchContestant, BenchRequest, bench_contestants
from triton_ops.cli.console import (
    CacheDir,
    Device,
    Dtype,
    Json,
    Shape,
    Verbose,
    bold,
    only_data_on_stdout,
    say,
    say_json,
    tell,
    width,
)
from triton_ops.cli.layout import paragraph, table
from triton_ops.cli.problem import parse_config, parse_shapes
from triton_ops.cli.record_selection import folder_of
from triton_ops.cli.terminal import stderr
from triton_ops.comparison.compare import Comparison, compare_contestants, duel_policy
from triton_ops.comparison.progress import rounds_bar
from triton_ops.hardware import probe
from triton_ops.space import Config
from triton_ops.task.budget import checked_seed
from triton_ops.tensors import dtype_name
from triton_ops.trial import Measurement

_HEADER = ("", "config", "p20 ms", "median ms", "p80 ms", "spread", "what")
_NUMBERS = ("p20 ms", "median ms", "p80 ms", "spread")


def bench_command(
    target: Annotated[
        str, typer.Argument(metavar="A", help="TARGET: a shipped kernel, module:object, or file.py:object.")
    ],
    other: Annotated[
        str | None,
        typer.Argument(metavar="B", help="A second TARGET; default A, with its default config.", show_default=False),
    ] = None,
    shape: Shape = None,
    dtype: Dtype = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=V", help="Config of A, repeated or NAME=V,NAME=V; default its winner."),
    ] = None,
    config_b: Annotated[
        list[str] | None,
        typer.Option("--config-b", metavar="NAME=V", help="Config of B; default as for A, of A its default."),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="No round is started after this time.")
    ] = 10.0,
    warm: Annotated[bool, typer.Option("--warm", help="On a GPU, leave L2 as the launch before left it.")] = False,
    device: Device = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the orders and the inputs.")] = 0,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End with an error if another process measures on the GPU.")
    ] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> None:
    """Find out whether A is faster than B, by running both in turn on one problem.

    With one TARGET, its winner or --config is compared with its default config. The winner of an operation is the
    config with which a call would run, as `why` tells. `bench kernels` compares every shipped kernel with the vendor's
    library, eager PyTorch and torch.compile at its named problems.
    """
    checked_seed(seed)
    if target == bench_kernels.NAME:
        one = {"B": other, "--shape": shape, "--dtype": dtype, "--config": config, "--config-b": config_b}
        run = KernelRun(seconds=seconds, device=device or "cuda", cold=not warm, cache_dir=cache_dir)
        with only_data_on_stdout():
            bench_kernels.bench_kernels(run, as_json=as_json, refused={name: bool(v) for name, v in one.items()})
        return
    policy = duel_policy(None, seconds)  # bad options are refused before the target's code runs
    configs = parse_config(config or [], "--config"), parse_config(config_b or [], "--config-b")
    asked = BenchRequest(
        shapes=parse_shapes(shape), dtype=dtype, device=device, cold=not warm, seed=seed, cache_dir=cache_dir
    )
    _check(asked)
    with only_data_on_stdout():
        a, b = bench_contestants((target, other), configs, asked)
        if a.contestant.kernel == b.contestant.kernel and a.contestant.config == b.contestant.config:
            tell(f"a and b are the same: {a.target} with {_config(a.contestant.config)}")
        with rounds_bar((a.contestant.name, b.contestant.name), seconds, stderr()) as follow:
            found = compare_contestants(
                a.contestant, b.contestant, policy, cold=asked.cold, seed=seed, wait=not no_wait, follow=follow
            )
    if as_json:
        say_json(_as_json(a, b, found))
    else:
        say(*_report(a, b, found, width()))


def _check(asked: BenchRequest) -> None:
    if asked.dtype is not None:
        dtype_name(asked.dtype)
    if asked.device is not None:
        probe(asked.device)
    folder_of(asked.cache_dir)


def _report(a: BenchContestant, b: BenchContestant, found: Comparison, columns: int | None) -> list[str]:
    rows = [_row(a, found.a), _row(b, found.b)]
    header, *lines = table(_HEADER, rows, columns, _NUMBERS)
    head = f"{a.problem} on {probe(a.contestant.device_name).name}"
    verdict, *notes = str(found).splitlines()
    said = [*map(bold, paragraph("", verdict, columns))]
    return [head, bold(header), *lines, *said, *(line for note in notes for line in paragraph("", note, columns))]


def _row(shown: BenchContestant, times: Measurement) -> list[str]:
    contestant = shown.contestant
    figures = [f"{time_ms:.4g}" for time_ms in (times.p20_ms, times.median_ms, times.p80_ms)]
    what = f"{shown.target}, {shown.origin}" + (f": {contestant.config}" if contestant.config else "")
    return [contestant.name, label(contestant.config), *figures, f"{times.spread:.1%}", what]


def label(config: Config) -> str:
    """The values of a config without their names, such as `128/4`; another column holds the names."""
    return "/".join(str(value) for value in config.plain.values()) or "-"


def _config(config: Config) -> str:
    return f"({config})" if config else "no config"


def _as_json(a: BenchContestant, b: BenchContestant, found: Comparison) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "percent": found.percent,
        "interval": list(found.interval),
        "needed": found.needed,
        "noise": found.noise,
        "confidence": found.confidence,
        "rounds": found.rounds,
        "mode": found.mode,
        "problem": a.problem.label,
        "device": probe(a.contestant.device_name).name,
        "a": _contestant_json(a, found.a),
        "b": _contestant_json(b, found.b),
        "guard": msgspec.to_builtins(found.guard),
        "notes": list(found.notes),
    }


def _contestant_json(shown: BenchContestant, times: Measurement) -> dict[str, Any]:
    rounds: Sequence[Sequence[float]] = times.by_round
    return {
        "target": shown.target,
        "config": dict(shown.contestant.config.plain),
        "label": label(shown.contestant.config),
        "origin": shown.origin,
        "median_ms": times.median_ms,
        "p20_ms": times.p20_ms,
        "p80_ms": times.p80_ms,
        "spread": times.spread,
        "samples": sum(map(len, rounds)),
    }
