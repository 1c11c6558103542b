"""Kernels whose lists of configs are hidden: what is read, found, and how good it is.

    python -m benchmarks.tuning.hidden_lists FOLDER --limit-s 270 --out FILE [--only NAME …]

FOLDER has the files of public packages, which are no part of this repository. The kernels of `written_kernels` need
none, and are measured where they are named. For each case the first launch of a kernel is taken up on its way. The
constants of its list, or those that its launcher chooses, are left out of the call, and the kernel is tuned as one
without a list. A constant of a list that changes results is given, as its first config has it, and configs of the list
that have another value are left out. Then its own list, all of it, and the leaders of that tune are compared. Configs
that compile to the same machine code are one program there, with one time: `num_stages`, say, changes nothing where no
loop loads. Results are compared with those of the package's own first config. Last, the winner and the fastest of the
list run in turn, the two alone: `paired` is the time of the second over that of the first, with an interval of 95 %.
Cases that the file holds of other runs stay in it, each with its date and commit; a process that dies costs one case.

In that comparison are also the model's first pick, the winner of the effort `race`, and the default. `pick` is what the
effort `expected` would choose, from the kernel and what the compiler makes of its previews alone. It is there also
where the model is not `sure`, as that effort has to be; it is the default where the model has no forecast (`silent`),
for the reason in `pick_said`. Nothing that was measured goes into these two. They come after the tune and find the code
that it has compiled, so that `pick_s` and `race_s` are those of a process that has started. `pick_share` and
`race_share` are the speeds over the fastest of all; 0 for one that failed, and none for one that the comparison had no
time to try.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

import triton_ops
from benchmarks.document import headed, parser_of, save
from benchmarks.tuning.hidden_list_cases import CASES as PUBLIC
from benchmarks.tuning.hidden_list_cases import Case, load
from benchmarks.tuning.written_kernels import WRITTEN
from triton_ops.backend import Arguments, Layers, Protection, ReadSpace
from triton_ops.request import TuneOptions
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner import RequestedTune, Silent
from triton_ops.tuner.expectation import Expectation
from triton_ops.values import Trial

CASES = {**PUBLIC, **WRITTEN}
USUAL, UNUSUAL = {"num_warps": 4, "num_stages": 3}, {"num_ctas": 1, "maxnreg": None, "ir_override": None}
SHOWN = ("error", "named_right", "share", "over_list", "paired", "paired_failed", "tune_s", "wrong", "sure",
         "pick_share", "pick_over_default", "pick_failed", "race_share", "race_failed", "race_s")  # fmt: skip
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
COMMAND = "python -m benchmarks.tuning.hidden_lists FOLDER"
LEADERS, LIST_S, EACH_S, MOST_LISTED = 6, 6.0, 0.3, 200
PAIR_S = 3.0
TOLERANCE = 0.02  # of the largest value: other tiles add up in another order


class Taken(Exception):  # noqa: N818 - no error
    """The launch that a case has reached."""


def taken(kernel: Any, call: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """The grid and the arguments by name of a kernel's first launch, which is not made."""
    launch: list[Any] = []

    def run(*args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:  # noqa: ARG001 - Triton's signature
        launch[:] = [grid, {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}]
        raise Taken

    kernel.run = run
    try:
        call()
    except Taken:
        return launch[0], launch[1]
    finally:
        del kernel.run
    raise ValueError("the case does not launch its kernel")


def bare(kernel: Any) -> Any:
    """The kernel without its list, below the heuristics that it has."""
    layers = Layers.of(kernel)
    function = layers[-1]
    for layer in reversed(layers[:-1]):
        if hasattr(layer, "values"):
            function = triton.heuristics(layer.values)(function)
    return function


def own_configs(kernel: Any, case: Case, grid: Any, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The package's own configs for a launch: those of its list, or what its launcher chooses."""
    tuner = next((layer for layer in Layers.of(kernel) if hasattr(layer, "configs")), None)
    if tuner is None:
        options = {name: values[name] for name in OPTIONS if name in values and name not in kernel.arg_names}
        own = {name: values[name] for name in case.tunables or ()}
        return [{**own, "num_warps": 4, **options}, *map(dict, case.beside)]
    tuner.nargs = dict(values)
    configs = [one.all_kwargs() for one in tuner.prune_configs({**values, "grid": grid})]
    return [{name: value for name, value in one.items() if value is not None} for one in configs]


def ran(function: Any, grid: Any, values: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors that a launch on copies has changed."""
    copies = Protection.private_copy(Arguments(keyword=values)).keyword
    function[grid](**copies, **config)
    tensors = {name: value for name, value in copies.items() if isinstance(value, torch.Tensor)}
    return {name: value for name, value in tensors.items() if not torch.equal(value, values[name])}


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The largest difference of two results, relative to the largest value; infinite for other tensors."""
    if one.keys() != other.keys():
        return float("inf")
    worst = 0.0
    for name, value in one.items():
        a, b = value.double(), other[name].double()
        both = torch.isfinite(a) & torch.isfinite(b)
        size = float(a[both].abs().max()) if both.any() else 1.0
        worst = max(worst, float((a - b)[both].abs().max()) / (size or 1.0) if both.any() else 0.0)
    return worst


@dataclass(frozen=True)
class Launch:
    """The first launch of a case's kernel, whose list is hidden.

    `fixed` are the arguments of a call over the space that is read.
    """

    function: Any
    grid: Any
    listed: list[dict[str, Any]]
    expected: set[str]
    read: ReadSpace
    read_s: float
    fixed: dict[str, Any]
    resets: dict[str, list[str]]

    @classmethod
    def of(cls, case: Case, folder: Path) -> Launch:
        """The launch that a case makes."""
        torch.manual_seed(0)
        module = load(folder, case.file)
        kernel = getattr(module, case.kernel)
        grid, values = taken(kernel, lambda: case.call(module))
        listed, function = own_configs(kernel, case, grid, values), bare(kernel)
        tuner = next((layer for layer in Layers.of(kernel) if hasattr(layer, "configs")), None)
        arguments = {name: value for name, value in values.items() if name in kernel.arg_names}
        expected = {name for config in listed for name in config if name not in OPTIONS or name in kernel.arg_names}
        start = time.monotonic()
        read = ReadSpace.of(function, {n: v for n, v in arguments.items() if n not in expected}, grid=grid)
        read_s = time.monotonic() - start
        hidden = expected & {*read.tunables} - {*case.given}
        fixed = {name: value for name, value in {**listed[0], **arguments}.items()
                 if name in kernel.arg_names and name not in hidden}  # fmt: skip
        resets = {} if tuner is None else {"reset_to_zero": list(tuner.reset_to_zero)}
        return cls(function, grid, listed, expected, read, read_s, fixed, resets)


def row_of(name: str, folder: Path) -> dict[str, Any]:
    """The figures of one case."""
    case = CASES[name]
    launch = Launch.of(case, folder)
    function, grid, listed = launch.function, launch.grid, launch.listed
    read, fixed, resets, expected = launch.read, launch.fixed, launch.resets, launch.expected
    row: dict[str, Any] = {
        "package": case.package, "kernel": case.kernel, "listed": len(listed), "expected": sorted(expected),
        "read": sorted(read.tunables), "derived": dict(read.derived), "left": dict(read.meaning),
        "named_right": {*read.tunables} - ({*fixed} - {*case.given}) == expected, "given": list(case.given),
        "read_s": round(launch.read_s, 3),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder_of_cache:
        os.environ["TRITON_CACHE_DIR"] = f"{folder_of_cache}/triton"
        decorated = triton_ops.autotune(key=[], cache_dir=f"{folder_of_cache}/records", **resets)(function)
        start = time.monotonic()
        call = decorated.launches.call_of(grid, (), fixed)
        result = call.tuned(listener=Silent())
        row |= {"tune_s": round(time.monotonic() - start, 2), "configs": call.space.size.valid,
                "winner": dict(result.best_config), "totals": result.totals, "notes": list(result.notes),
                "verified": result.verified}  # fmt: skip
        right = ran(function, grid, fixed, listed[0] if not fixed.keys() & listed[0].keys() else {
            n: v for n, v in listed[0].items() if n not in fixed})  # fmt: skip
        row["difference"] = difference(right, ran(function, grid, fixed, result.best_config))
        row["wrong"] = row["difference"] > TOLERANCE
        like_first = [one for one in listed if all(one[name] == listed[0][name] for name in case.given)]
        own = [{n: v for n, v in one.items() if n not in fixed} for one in like_first]
        again = decorated.launches.call_of(grid, (), fixed)
        row |= first_pick(again)
        row |= race(again, f"{folder_of_cache}/race")
        default = call.space.default_config
        named = {"pick": row["pick"], "race": row["race_winner"], "default": dict(default)}
        row |= beside(
            lambda space: triton_ops.autotune(space, key=[], **resets)(function).launches.call_of(grid, (), fixed),
            default, result, own, {name: config for name, config in named.items() if config is not None},
        )  # fmt: skip
        if row.get("list_best") is not None:
            row |= paired(launch, result.best_config, row["list_best"])
    return row


def paired(launch: Launch, winner: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The winner and another config in turn: the time of the other over the winner's, or why there is none."""

    def called(config: Mapping[str, Any]) -> Callable[..., Any]:
        return lambda **values: launch.function[launch.grid](**values, **config)

    try:
        found = triton_ops.compare(
            called(winner), called(other), kwargs=launch.fixed, names=("winner", "list"), seconds=PAIR_S, check=False,
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001 - a comparison that fails is told, and the case goes on
        return {"paired": None, "paired_failed": f"{type(error).__name__}: {error}"[:500]}
    return {"paired": found.speedup, "paired_interval": found.speedup_interval, "paired_rounds": found.rounds}


def first_pick(call: Any) -> dict[str, Any]:
    """What the effort `expected` would choose for a call, sure or not, as its rung finds it; nothing is measured."""
    start = time.monotonic()
    pick, silent, sure = call.space.default_config, True, False
    try:
        tune = RequestedTune(request=call.request.checked(), options=TuneOptions(effort="expected", keep=False))
        with tune.pool(launches=False) as pool:
            expectation = Expectation.of(tune.request, tune.effort, pool)
        pick, said, silent = list(expectation.pair)[-1], expectation.forecast, False
        sure = bool(expectation.gain >= tune.effort.expected_gain)
    except Exception as error:  # noqa: BLE001 - why there is no forecast is told, and the case goes on
        said = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
    return {"pick": dict(pick), "pick_said": said[:500], "silent": silent, "sure": sure,
            "pick_s": round(time.monotonic() - start, 2)}  # fmt: skip


def race(call: Any, folder: str) -> dict[str, Any]:
    """The winner of the effort `race` for a call, without records; None with the reason where there is none."""
    start, winner, failed = time.monotonic(), None, {}
    try:
        options = TuneOptions(effort="race", keep=False, force=True, cache_dir=folder)
        winner = dict(call.tuned(options, listener=Silent()).best_config)
    except Exception as error:  # noqa: BLE001 - a race that fails is told, and the case goes on
        failed = {"race_failed": f"{type(error).__name__}: {error}"[:500], "race_share": 0.0}
    return {"race_winner": winner, "race_s": round(time.monotonic() - start, 2), **failed}


def beside(
    call_over: Callable[[ConfigSpace], Any], default: Config, result: Any, listed: Sequence[Mapping[str, Any]],
    named: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """The winner beside the package's list, some named configs, and the leaders of its tune, in one comparison."""
    default = Config({**USUAL, **default})
    leaders = sorted((trial for trial in result.trials if trial.ok), key=lambda trial: trial.rank)[:LEADERS]
    own = [result.best_config, *listed[:MOST_LISTED], *named.values(), *(trial.config for trial in leaders)]
    every = [{**default, **{n: v for n, v in one.items() if n in default or v != UNUSUAL.get(n)}} for one in own]
    names = {name for one in every for name in one}
    whole = [Config({name: one.get(name, UNUSUAL.get(name)) for name in sorted(names)}) for one in every]
    space = ConfigSpace.from_configs(list(dict.fromkeys(whole)))
    budget_s = LIST_S + EACH_S * len(whole)
    options = TuneOptions(search="exhaustive", trials=1000, budget_s=budget_s, keep=False, force=True)
    raced = call_over(space).tuned(options, listener=Silent())
    times = times_ms(raced.trials)
    end = 1 + min(len(listed), MOST_LISTED)
    of_list = {one: times[one] for one in whole[1:end] if one in times}
    mine, of_named = times.get(whole[0]), shares_of(dict(zip(named, whole[end:], strict=False)), raced.trials)
    if mine is None or not times:
        return {"raced": raced.totals, "share": None, **of_named}
    return {
        "raced": raced.totals, "ms": mine, "best_ms": min(times.values()),
        "list_ms": min(of_list.values(), default=None), "list_raced": len(of_list),
        "list_best": dict(min(of_list, key=lambda one: times[one])) if of_list else None,
        "best": dict(min(times, key=lambda one: times[one])), "share": min(times.values()) / mine,
        "over_list": min(of_list.values()) / mine if of_list else None,
        "over_first": times.get(whole[1], 0.0) / mine or None, **of_named,
    }  # fmt: skip


def shares_of(named: Mapping[str, Config], trials: Sequence[Trial]) -> dict[str, Any]:
    """The speeds of named configs over the fastest, and of the pick over the default; 0 for one that failed, and why.

    A config that was not tried has no share.
    """
    times, ended = times_ms(trials), {trial.config: trial for trial in trials}
    row: dict[str, Any] = {}
    for name, config in named.items():
        own, trial = times.get(config), ended.get(config)
        row |= {f"{name}_ms": own, f"{name}_share": min(times.values()) / own if own else None}
        if own is None:
            row[f"{name}_failed"] = "it was not tried" if trial is None else f"{trial.status}: {trial.error}"[:500]
            row[f"{name}_share"] = None if trial is None else 0.0
    pick, default = row.get("pick_ms"), row.get("default_ms")
    return {**row, "pick_over_default": default / pick if pick and default else None}


def times_ms(trials: Sequence[Trial]) -> dict[Config, float]:
    """The time of each config that ran; one program's configs have one, since the last rounds time one of them only."""
    programs = {trial.config: trial for trial in trials}
    return {one.config: programs.get(one.same_code_as or one.config, one).median_ms for one in trials if one.ok}


def summary(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The counts over all cases."""
    done = [row for row in rows.values() if "error" not in row]
    shares = [row["share"] for row in done if row.get("share")]
    seconds = sorted(row["tune_s"] for row in done)
    return {
        "cases": len(rows), "errors": len(rows) - len(done), "named_right": sum(row["named_right"] for row in done),
        "within_1_percent": sum(share >= 0.99 for share in shares), "raced": len(shares),
        "beat_by_3_percent": sum((row.get("over_list") or 0.0) > 1.03 for row in done),
        "wrong": sum(row["wrong"] for row in done), "median_s": seconds[len(seconds) // 2] if seconds else None,
        "longest_s": max(seconds, default=None), **summary_of_picks(rows),
    }  # fmt: skip


def summary_of_picks(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of the model's first picks and of the races, over the cases that have them."""
    picks = {name: row["pick_share"] for name, row in rows.items() if row.get("pick_share") is not None}
    races = {name: row["race_share"] for name, row in rows.items() if row.get("race_share") is not None}
    seconds = [row["race_s"] for row in rows.values() if "race_s" in row]
    sure = {name: row.get("pick_over_default") for name, row in rows.items() if row.get("sure")}
    return {
        "picks": len(picks), "silent": sum(bool(row.get("silent")) for row in rows.values()),
        "mean_pick_share": statistics.mean(picks.values()) if picks else None,
        "median_pick_share": statistics.median(picks.values()) if picks else None,
        "worst_pick_share": min(picks.values(), default=None),
        "worst_pick": min(picks, key=picks.__getitem__, default=None),
        "sure": len(sure), "smallest_pick_over_default_where_sure": min(filter(None, sure.values()), default=None),
        "races": len(races), "mean_race_share": statistics.mean(races.values()) if races else None,
        "worst_race_share": min(races.values(), default=None),
        "worst_race": min(races, key=races.__getitem__, default=None),
        "median_race_s": statistics.median(seconds) if seconds else None, "longest_race_s": max(seconds, default=None),
    }  # fmt: skip


def work(names: Sequence[str], folder: Path) -> None:
    """Print a row for each case, one line each."""
    for name in names:
        try:
            row = row_of(name, folder)
        except Exception as error:  # noqa: BLE001 - a case that fails is told, and the next one goes on
            row = {"package": CASES[name].package, "kernel": CASES[name].kernel,
                   "error": f"{type(error).__name__}: {error}"[:500]}  # fmt: skip
        print("row", name, json.dumps(row, default=str), flush=True)


def main() -> None:
    """The cases of packages, or those that are named, each process going on with what the one before has left."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path())
    parser.add_argument("--only", nargs="*", default=list(PUBLIC), choices=list(CASES))
    parser.add_argument("--limit-s", type=float, default=600.0)
    parser.add_argument("--case-s", type=float, default=45.0)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.only, options.folder)
        return
    end_s = time.monotonic() + options.limit_s
    before = json.loads(options.out.read_text(encoding="utf-8")) if options.out and options.out.exists() else {}
    rows, todo = dict(before.get("cases", {})), list(options.only)
    while todo and time.monotonic() < end_s:
        rows, todo = one_process(rows, todo, options, end_s)
        print(json.dumps(summary(rows)), flush=True)
        keep(rows, options)


def keep(rows: Mapping[str, Any], options: argparse.Namespace) -> None:
    """Write what there is, where a file is named."""
    if options.out:
        save(options.out, headed(COMMAND, options.commit, summary=summary(rows), cases=rows))


def one_process(
    rows: dict[str, Any], todo: list[str], options: argparse.Namespace, end_s: float
) -> tuple[dict[str, Any], list[str]]:
    """The rows after one process, and the cases that it has not reached."""
    command = [sys.executable, "-m", "benchmarks.tuning.hidden_lists", str(options.folder), "--work", "--only", *todo]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: [lines.put(line) for line in process.stdout or ()], daemon=True).start()
    heard_s = time.monotonic()
    while todo and time.monotonic() < min(end_s, heard_s + options.case_s):
        with contextlib.suppress(queue.Empty):
            word, _, rest = lines.get(timeout=0.1).partition(" ")
            if word == "row":
                name, _, row = rest.partition(" ")
                seen = headed(COMMAND, options.commit)
                rows[name] = {**json.loads(row), "date": seen["date"], "commit": seen["commit"]}
                heard_s = time.monotonic()
                todo = [each for each in todo if each != name]
                print(name, {key: rows[name][key] for key in SHOWN if rows[name].get(key) is not None}, flush=True)
                keep(rows, options)
            continue
        if process.poll() is not None:
            break
    process.kill()
    process.wait()
    if todo and time.monotonic() < end_s:
        name, *todo = todo
        why = f"its process ended with {process.returncode}, or took longer than the limit"
        rows[name] = {"package": CASES[name].package, "kernel": CASES[name].kernel, "error": why}
    return rows, todo


if __name__ == "__main__":
    main()
