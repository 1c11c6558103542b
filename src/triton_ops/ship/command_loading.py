"""Commands on problems that files name: their kernels are loaded, then a lockfile is verified, or misses are tuned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from triton_ops.device import probe
from triton_ops.exceptions import DeviceError, SettingsError, TargetError
from triton_ops.kernels import load_object
from triton_ops.kernels import names as kernel_names
from triton_ops.many import ListedTune
from triton_ops.records import Lockfile, Misses, read_lockfile
from triton_ops.request import module_at
from triton_ops.ship.from_misses import MissOutcome, tune_misses
from triton_ops.ship.targets import Targets, as_target, is_declared
from triton_ops.ship.verification import Verdict, verify
from triton_ops.space import Config
from triton_ops.terminal import (
    CHECK_FAILED,
    INTERRUPTED,
    NOT_LOADED,
    Device,
    Json,
    folder_of,
    headed_table,
    only_data_on_stdout,
    say,
    say_json,
    stderr,
    tell,
    width,
)
from triton_ops.tuner import ProgressBar, result_json

_VERDICT_HEADER = ("outcome", "kernel", "problem", "device", "config")
_NOTHING = "no entry could be measured, for the reasons above"
_MISS_HEADER = ("count", "kernel", "problem", "median ms", "vs default", "what became of it")
_MISS_NUMBERS = ("count", "median ms", "vs default")
_NONE_TUNED = 1


def load_kernels(texts: Iterable[str]) -> dict[str, Any]:
    """The objects that KERNELS name, by the TARGET of each; those of a file or module are the ones that it declares."""
    objects: dict[str, Any] = {}
    for text in dict.fromkeys(texts):
        if ":" in text or text in kernel_names():
            objects[text] = load_object(text)
            continue
        values = vars(module_at(text))
        kernels = {id(value): (name, value) for name, value in values.items() if is_declared(value)}
        if not kernels:
            raise TargetError(
                f"{text} declares no kernel: no operation, no chooser, and no function under a decorator for kernels",
                hint=f"name a function by itself: {text}:NAME",
            )
        others = [id(value) for value in objects.values()]  # a file may import what another one declares
        objects |= {f"{text}:{name}": value for place, (name, value) in kernels.items() if place not in others}
    return objects


def verify_command(
    lockfile: Annotated[Path, typer.Argument(metavar="LOCKFILE", help="The lockfile.")] = Path(Lockfile.DEFAULT_NAME),
    kernels: Annotated[
        list[str] | None,
        typer.Option("--kernels", "--target", metavar="KERNELS", help="A file, module or TARGET to load; repeat it."),
    ] = None,
    kernel: Annotated[str | None, typer.Option("--kernel", metavar="NAME", help="Only entries of this kernel.")] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Only what needs no device: parsed, found, in its space, compiled.")
    ] = False,
    most_neighbours: Annotated[
        int, typer.Option("--neighbours", metavar="N", help="Neighbours that are measured beside each entry.")
    ] = 8,
    held_out: Annotated[
        int, typer.Option("--held-out", metavar="N", help="Measure at N further values of each range, too.")
    ] = 0,
    device: Device = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the order and the inputs.")] = 0,
    as_json: Json = False,
) -> int:
    """Check every entry of LOCKFILE, and measure it against the default and its neighbours; exit 5 if one fails."""
    if most_neighbours < 0:
        raise SettingsError(
            f"--neighbours is {most_neighbours}; it must be 0 or more", hint="0 measures the default only"
        )
    if held_out < 0:
        raise SettingsError(f"--held-out is {held_out}; it must be 0 or more", hint="leave it out for none")
    lock = read_lockfile(lockfile)
    with only_data_on_stdout():
        targets = Targets(load_kernels(kernels or ()).values())
        spec = None if static else probe(device)
        verdicts = list(
            verify(
                lock, targets, spec, device=device, kernel=kernel, most_neighbours=most_neighbours, held_out=held_out,
                seed=seed, listener=ProgressBar(stderr()),
            )
        )  # fmt: skip
    if kernel is not None and not verdicts:
        raise SettingsError(f"{lockfile} has no entry of {kernel}", hint="`triton-ops lock --check` lists what differs")
    if as_json:
        say_json([_verdict_json(verdict) for verdict in verdicts])
    else:
        say(*_verdict_lines(verdicts, width()))
    if any(verdict.failed for verdict in verdicts):
        return CHECK_FAILED
    if any(verdict.outcome == "not loaded" for verdict in verdicts):
        return NOT_LOADED
    if not static and verdicts and all(verdict.outcome == "not measured" for verdict in verdicts):
        raise DeviceError(_NOTHING, hint="run it where the device is and has room, or with --static")
    return 0


def _verdict_lines(verdicts: list[Verdict], columns: int | None) -> list[str]:
    if not verdicts:
        return ["0 entries"]
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    summary = f"{len(verdicts)} {'entry' if len(verdicts) == 1 else 'entries'}: {counts}"
    regrets = [verdict.regret for verdict in verdicts if verdict.at and verdict.regret is not None]
    held_out = [f"largest regret at {len(regrets)} held-out sizes: {max(regrets):.1%}"] if regrets else []
    return [*headed_table(_VERDICT_HEADER, [_verdict_row(one) for one in verdicts], columns), summary, *held_out]


def _verdict_row(verdict: Verdict) -> list[str]:
    entry = verdict.entry
    why = f": {verdict.reason}" if verdict.reason else ""
    label = " at ".join(filter(None, (entry.label or "-", verdict.at)))
    return [verdict.outcome, entry.kernel, label, entry.device, f"{entry.config}{why}"]


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "outcome": verdict.outcome, "reason": verdict.reason, "at": verdict.at, "regret": verdict.regret,
        "entry": msgspec.to_builtins(verdict.entry, enc_hook=Config.encode),
        "result": None if verdict.result is None else result_json(verdict.result),
    }  # fmt: skip


def tune_from_misses(
    run: ListedTune, targets: Sequence[str], most: int | None, kernels: Sequence[str], *, as_json: bool
) -> int:
    """Tune the misses of a cache folder, at most so many, and return the exit code.

    It is 6 if a kernel that a miss names is not loaded, and 1 if there are misses and none was tuned. The run is what
    the tunes have in common; a miss has its own device and state of the cache. Only misses of the TARGETs are tuned,
    where there are some; KERNELS are loaded, and restrict nothing.
    """
    if most is not None and most < 1:
        raise SettingsError(f"--most is {most}; it must be 1 or more", hint="leave it out for all")
    folder = folder_of(run.options.each.cache_dir)
    options = replace(run.options, each=replace(run.options.each, cache_dir=folder))
    with only_data_on_stdout():
        objects = [load_object(target) for target in targets]
        names = [as_target(each).name for each in objects]
        objects += load_kernels(kernels).values()
        misses = [miss for miss in Misses(folder).read() if not names or miss.key.kernel in names]
        outcomes, result = tune_misses(misses[:most], Targets(objects), options, tolerance=run.tolerance)
    if as_json:
        say_json([_miss_outcome_json(each) for each in outcomes])
    elif not outcomes:
        tell(f"there are no misses{f' of {names[0]}' if names else ''} in {folder}")
    else:
        say(*headed_table(_MISS_HEADER, [_miss_row(each) for each in outcomes], width(), _MISS_NUMBERS))
    if result.stopped == "interrupted":
        tell("interrupted: the same command goes on where it stopped")
        raise typer.Exit(INTERRUPTED)
    if not all(each.loaded for each in outcomes):
        return NOT_LOADED
    return _NONE_TUNED if outcomes and not any(each.result for each in outcomes) else 0


def _miss_outcome_json(outcome: MissOutcome) -> dict[str, Any]:
    result = None if outcome.result is None else result_json(outcome.result)
    facts = {"outcome": _word(outcome), "stored": outcome.stored, "reason": outcome.reason}
    return {**outcome.miss.as_json, "result": result, **facts}


def _word(outcome: MissOutcome) -> str:
    if not outcome.loaded:
        return "not loaded"
    return "not tuned" if outcome.result is None else "tuned"


def _miss_row(outcome: MissOutcome) -> list[str]:
    key, result = outcome.miss.key, outcome.result
    head = [str(outcome.miss.count), key.kernel, key.label or "-"]
    if result is None:
        return [*head, "-", "-", f"{_word(outcome)}: {outcome.reason}"]
    gain = "unproven" if result.unproven else "-" if result.gain is None else f"{result.gain:.2f}x"
    config = str(Config(result.best_config)) + (f"; {outcome.reason}" if outcome.reason else "")
    return [*head, f"{result.metrics.latency_ms:.4g}", gain, config]
