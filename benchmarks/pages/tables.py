"""Write the measured tables into the pages from the JSON files in benchmarks/results.

python -m benchmarks.pages.tables            # rewrite
python -m benchmarks.pages.tables --check    # fail if a table is not what its file says
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.shipped.kernel_limits import UNMEASURED, outcomes

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
)
RESULTS = ROOT / "benchmarks/results"
H200, H100 = RESULTS / "nvidia-h200", RESULTS / "nvidia-h100-80gb-hbm3"
KERNELS, KERNELS_H100 = H200 / "kernels.json", H100 / "kernels.json"
RENAMED = {"compile_modes_gpu": "compile_modes --on cuda"}
RECORDED = {
    "24 developed on, now": "inferred.json",
    "the first 26, frozen": "h100_fresh.json",
    "the first 26, mended": "h100_fresh_mended.json",
    "the last 26, frozen": "h200_unseen.json",
    "the last 26, mended": "h200_unseen_mended.json",
}
_RANKS = ("spearman", "best_of_1", "best_of_5", "best_of_10")
Document = Mapping[str, Any]


def read(path: Path) -> Any:
    """The content of a result."""
    return json.loads(path.read_text(encoding="utf-8"))


def table(head: str, rows: Iterable[Iterable[Any]], *below: str) -> str:
    """Markdown of a table, and of lines below it.

    Args:
        head: Its titles, with ` | ` between them; a `-` stands for none.
        rows: Its cells.
        below: What it is followed by, after an empty line.
    """
    titles = ["" if title == "-" else title for title in head.split(" | ")]
    lines = [_line(titles), "|" + "---|" * len(titles), *map(_line, rows)]
    return "\n".join([*lines, *(["", *below] if below else ())])


def _line(cells: Iterable[Any]) -> str:
    return "|" + "".join(f" {cell} |" if str(cell) else " |" for cell in cells)


def command_now(document: Document) -> str:
    """The recorded command, by the path that its script has today."""
    recorded: str = document["command"]
    module = next((word for word in recorded.split() if word.startswith("benchmarks.")), None)
    if module is None:
        return recorded
    name, _, more = RENAMED.get(last := module.rpartition(".")[2], last).partition(" ")
    script = next(ROOT.joinpath("benchmarks").rglob(f"{name}.py"))
    return recorded.replace(module, f"{'.'.join(script.relative_to(ROOT).with_suffix('').parts)} {more}".strip())


def versions(document: Document) -> str:
    """The versions, the day and the command of a document."""
    these = document["versions"]
    return f"Triton {these['triton']}, torch {these['torch']}, {document['date'][:10]}"


def source(document: Document) -> str:
    """Where and with what the figures of a document were measured."""
    device = document.get("device")
    named = device if isinstance(device, str) and device.startswith("NVIDIA") else "NVIDIA H200"
    return f"{named}, {versions(document)}; `{command_now(document)}`."


def headline_table() -> str:
    """Five figures for whoever meets this package: what a tune and a launch take, and where a library is faster."""
    cold, live, others = (read(H200 / f"{name}.json") for name in ("cold_tune", "live_tune", "third_party"))
    launch, kernels = read(H100 / "launch_cost.json"), read(KERNELS)
    tune, host = live["cases"]["matmul bf16 4096x4096x4096"], launch["us"]["add, 4 arguments"]
    packages, attention = others["summary"], kernels["speedups"]["attention / library"]
    slower = packages["kernels"] - packages["tuned_faster"]
    rows = [
        (
            f"{cold['configs']} configs of a matrix product, from empty caches", f"{cold['ours']['wall_s']:.0f} s",
            f"`triton.autotune`: {cold['triton']['wall_s']:.0f} s", cold["device"], cold["date"],
        ),
        (
            "a default tune of this product: median time", f"{statistics.median(tune['decided_s']):.1f} s",
            f"{tune['within_1_percent']} of {tune['runs']} winners within 1 % of the best",
            tune["device"], tune["date"],
        ),
        (
            f"first use of {packages['kernels']} kernels of fla-core and liger-kernel",
            f"{packages['tuned_s']['ours']:.0f} s; {slower} took longer",
            f"`triton.autotune`: {packages['tuned_s']['triton']:.0f} s", cold["device"], others["date"],
        ),
        (
            "host time of a launch once tuned, 4 arguments", f"{host['triton_ops.autotune']:.1f} µs",
            f"plain: {host['plain JIT']:.1f}, `triton.autotune`: {host['triton.autotune']:.1f} µs",
            launch["device"], launch["date"],
        ),
        (
            f"the shipped attention's speed over torch's, {attention['problems']} problems",
            f"{attention['geometric_mean']:.2f}, worst {attention['least']:.2f}", "torch's fastest backend: 1",
            kernels["device"]["name"], kernels["date"],
        ),
    ]  # fmt: skip
    lines = [
        (what, f"**{ours}**", beside, f"{device.split()[1]}, {date[:10]}") for what, ours, beside, device, date in rows
    ]
    return table("- | `triton_ops` | for comparison | measured", lines)


def cold_table() -> str:
    """A tune from empty compile caches beside `triton.autotune`."""
    document = read(H200 / "cold_tune.json")
    ours, theirs = document["ours"], document["triton"]
    rows = [
        (
            f"{document['configs']} configs of a bf16 matrix product, 4096³, from an empty compile cache",
            f"**{ours['wall_s']:.1f} s**", f"{theirs['wall_s']:.1f} s",
        ),
        ("first config measured after", f"{ours['first_measurement_s']:.1f} s", ""),
        ("the winner, side by side", document["winners"]["verdict"].partition(",")[0], ""),
    ]  # fmt: skip
    return table(
        "- | `triton_ops.tune` | `triton.autotune`", rows,
        f"{document['device']}, {document['cpus']} CPU cores, {versions(document)}; `{command_now(document)}`.",
    )  # fmt: skip


def live_table(path: Path) -> str:
    """Default tunes from cold caches, from the start of their process to the decision."""
    cases = read(path)["cases"]
    rows = [
        (
            case, f"{it['within_1_percent']} of {it['runs']}", f"{it['worst_slower']:.2%}",
            _middle_and_most(it["decided_s"]), _middle_and_most([run["imports_s"] for run in it["tunes"]]),
            f"{it['exhaustive']['trials']} in {it['exhaustive']['decided_s']:.0f} s", _other(it["triton.autotune"]),
        )
        for case, it in cases.items()
    ]  # fmt: skip
    first = next(iter(cases.values()))
    theirs = first.get("triton.autotune_measured", first["date"])[:10]
    commits = [it["commit"] for it in cases.values()]
    of = f" at {', '.join(commits)}, row by row" if len({*commits}) > 1 else ""
    return table(
        "- | within 1 % of the best | worst | decided after | of it imports | every config | `triton.autotune`", rows,
        f"{first['device']}, {first['cpus']} CPU cores, {versions(first)}, `triton.autotune` {theirs}; median (most), "
        f"from the start of the process; `python -m benchmarks.tuning.live_tune`{of}.",
    )  # fmt: skip


def _other(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return ""
    return f"{run['tried']} in {run['decided_s']:.0f} s" + ("" if run["winner"] else ", cut off")


def _middle_and_most(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f} s ({max(seconds):.1f})"


def launch_table() -> str:
    """What a known launch costs the host."""
    document = read(H100 / "launch_cost.json")
    ways = ("plain JIT", "triton.autotune", "triton_ops.autotune")
    rows = [(case, *(f"{us[way]:.1f} µs" for way in ways)) for case, us in document["us"].items()]
    return table("- | plain JIT | `triton.autotune` | `triton_ops.autotune`", rows, source(document))


def bucket_table() -> str:
    """By how much winners of buckets are slower than the best known config at sizes that were not tuned."""
    document = read(H200 / "bucket_regret.json")
    rows = [
        (f"`{rule}`", it["sizes"], it["slower"], f"{100 * it['median']:.1f} %", f"{100 * it['largest']:.0f} %")
        for rule, it in document["rules"].items()
    ]
    head = "rule | held-out sizes | slower than the best known, beyond noise | median | largest"
    return table(head, rows, source(document))


def third_party_table() -> str:
    """Operators of public packages under both tuners."""
    document = read(H200 / "third_party.json")
    summary, cases = document["summary"], document["cases"]
    rows = [
        (name, f"{case['first_s']['triton']:.1f} s", f"{case['first_s']['ours']:.1f} s", f"{case['ratio']:.2f}")
        for name, case in cases.items() if "errors" not in case
    ]  # fmt: skip
    unequal = f"all but those of {', '.join(summary['unequal'])}" if summary["unequal"] else "all"
    without = "; ".join(f"{name} ({_why(cases[name]['errors'])})" for name in summary["failed"])
    return table(
        "operator | first call, `triton.autotune` | first call, `triton_ops` | later calls, of Triton's time", rows,
        f"{summary['tuned_faster']} of {summary['kernels']} autotuned kernels are tuned faster, all of them in "
        f"{summary['tuned_s']['ours']:.0f} s instead of {summary['tuned_s']['triton']:.0f} s; outputs and gradients "
        f"are equal in {unequal}. No figures: {without}. {source(document)}",
    )  # fmt: skip


def _why(errors: Mapping[str, str]) -> str:
    """Why an operator has no figures: what Triton's side says, or that the time was over."""
    reason = errors.get("triton", next(iter(errors.values())))
    return "cut off by the limit" if reason.startswith("no answer") else reason.partition(". ")[0].partition(" (see")[0]


def adopter_table() -> str:
    """A package before and after its patch: first calls, later calls, and its own tests."""
    document = read(H100 / "adopter.json")
    cold, warm, locked = document["cold"]["cases"], document["warm"]["cases"], document["locked"]["first_s"]
    rows = [
        (
            name, f"{case['first_s']['triton']:.1f} s", f"{case['first_s']['ours']:.1f} s", f"{locked[name]:.1f} s",
            f"{warm[name]['first_s']['triton']:.2f} s", f"{warm[name]['first_s']['ours']:.2f} s",
            f"{case['ratio']:.2f}",
        )
        for name, case in cold.items()
    ]  # fmt: skip
    before, after = (sum(case["first_s"][mode] for case in cold.values()) for mode in ("triton", "ours"))
    rows.append(("all", f"{before:.1f} s", f"**{after:.1f} s**", f"{sum(locked.values()):.1f} s", "", "", ""))
    equal = "equal" if all(case["equal"] for case in (*cold.values(), *warm.values())) else "not all equal"
    return table(
        "case | first call: before | after | with the lockfile | in the next process: before | after "
        "| later calls, of the time before", rows,
        f"Scores and gradients of both trees are {equal} within 2 %. {_tests(document)}{source(document)}",
    )  # fmt: skip


def _tests(document: Document) -> str:
    """How many of the package's tests ended alike in both trees."""
    if "tests" not in document:
        return ""
    ends, unequal = document["tests"]["ends"], len(document["tests"]["unequal"])
    before, after = (
        ", ".join(f"{len(names)} {end}" for end, names in ends[mode].items()) for mode in ("triton", "ours")
    )
    return f"The package's own tests: before {before}; after {after}; {unequal} ended otherwise. "


def dynamic_table() -> str:
    """Three ways of sizes that change inside compiled code."""
    document = read(H200 / "dynamic_shapes.json")
    sizes = list(next(iter(document["ways"].values()))["us"])
    rows = [
        (way, *(f"{it['us'][size]:.0f}" for size in sizes), it["graphs"]) for way, it in document["ways"].items()
    ]  # fmt: skip
    return table(f"µs at a size of | {' | '.join(sizes)} | compilations", rows, source(document))


def choices_table() -> str:
    """What was chosen for products of matrices, beside cuBLAS alone and beside the best single implementation."""
    document = read(H200 / "choices.json")
    cells = {tuple(row["shape"]): _choice(row) for row in document["rows"] if "chosen" in row}
    sizes = sorted({row["shape"][0] for row in document["rows"]})
    rows = [
        (f"{N} x {K}", *(cells.get((M, N, K), "") for M in sizes))
        for N, K in dict.fromkeys((N, K) for _, N, K in cells)
    ]  # fmt: skip
    summary = document["summary"]
    return table(
        f"N x K | {' | '.join(f'M = {M}' for M in sizes)}", rows,
        f"{summary['shapes']} of {summary['of']} shapes, {summary['over_cublas']:.3f} times cuBLAS's speed "
        f"(geometric mean), at most {summary['worst_percent']:.2f} % slower than the best single implementation.",
        "", source(document),
    )  # fmt: skip


def _choice(row: Mapping[str, Any]) -> str:
    return f"{row['chosen']['implementation']} {row['over_cublas']:.2f}"


def modes_table() -> str:
    """Ways to compile models on a CPU, and what a further comparison says of the recommended one."""
    document, rows = read(RESULTS / "cpu/compile_modes.json"), []
    for name, it in document["models"].items():
        times = {mode["name"]: mode for mode in it["modes"] if mode["steady_ms"] is not None}
        best = min((mode for mode in times.values() if mode["name"] != "eager"), key=lambda mode: mode["steady_ms"])
        rows.append((
            name, f"{times['eager']['steady_ms']:.3g} ms", f"{best['name']}, {best['steady_ms']:.3g} ms",
            f"{best['first_call_s']:.0f} s", it["recommended"], it.get("again", {}).get("confirmed", ""),
        ))  # fmt: skip
    device, torch = next(iter(document["models"].values()))["device"], document["versions"]["torch"]
    return table(
        "model | eager | fastest compiled way | its first call | recommended | once more, in other processes", rows,
        f"{device}, one thread, torch {torch}, {document['date'][:10]}; `{command_now(document)}`.",
    )  # fmt: skip


def modes_gpu_table() -> str:
    """Ways to compile models on a GPU: milliseconds of a call in steady state, and seconds of the first one."""
    document = read(H200 / "compile_modes.json")
    models = document["models"]
    names = [mode["name"] for mode in next(iter(models.values()))["modes"]]
    rows = [(name, *map(_mode_cell, it["modes"]), it["recommended"]) for name, it in models.items()]
    trapped = document["trap_ms"]["max-autotune"]
    return table(
        f"model | {' | '.join(names)} | recommended", rows,
        f"A mean of 50 calls of `max-autotune` (mlp-fp32) says {trapped['after 1 warm-up calls']:.3f} ms after one "
        f"warm-up call, and {trapped['after 3 warm-up calls']:.3f} ms after three: the second call records the graphs. "
        f"Max-autotune's products: {document['gate']}.",
        "", source(document),
    )  # fmt: skip


def _mode_cell(mode: Mapping[str, Any]) -> str:
    if mode["steady_ms"] is None:
        return str(mode["status"])
    first = f", {mode['first_call_s']:.0f} s" if mode["first_call_s"] >= 1 else ""
    return f"{mode['steady_ms']:.3f} ms{first}"


def quality_table() -> str:
    """How good selections are on a device, against an oracle."""
    document = read(H200 / "measurement_quality.json")
    rows = [
        (
            name, f"{it['within_1pct']} of {it['repeats']}", f"{it['regret_p95']:.2%}",
            f"{it['seconds_median']:.1f} s, 1/{1 / it['share_of_do_bench']:.0f}",
        )
        for name, it in document["spaces"].items()
    ]  # fmt: skip
    theirs = document["do_bench_measured"]["date"][:10]
    commits = ", ".join(f"{name} at {commit}" for name, commit in document["commits"].items())
    return table(
        "selections from a compiled space | within 1 % of the best | regret, p95 | time, of `do_bench`'s over it", rows,
        f"{document['device']['name']}, {document['date'][:10]} ({commits}), `do_bench` {theirs}; "
        f"`{command_now(document)}`.",
    )  # fmt: skip


def selection_table(document: Document) -> str:
    """Grades of selections on a simulated device."""
    rows = [
        (
            name, f"{it['within_1pct']} of {it['selections']}", f"{it['regret_mean']:.2%}", f"{it['regret_p95']:.2%}",
            f"{it['outside_tie_set']:.1%}", f"{it['aa_false_positive']:.1%}", f"{it['power_2pct']:.1%}",
            f"1/{1 / it['share_of_do_bench']:.0f}", it["reversed_list_changes"],
        )
        for name, it in document["disturbances"].items()
    ]  # fmt: skip
    together, spaces = document["pooled"], next(iter(document["disturbances"].values()))["spaces"]
    return table(
        "disturbance | within 1 % | regret, mean | p95 | outside the tie set | differs from itself | 2 % found "
        "| of `do_bench`'s GPU time | changed by the reversed list", rows,
        f"Together {together['within_1pct']} of {together['of']} within 1 %, Wilson lower bound "
        f"{together['wilson_low']:.3f}; {document['repeats']} selections from each of "
        f"{len(spaces)} spaces of {document['configs']} configs; `{command_now(document)}`.",
    )  # fmt: skip


def compare_table() -> str:
    """How often `compare` was right about equal callables, and about one that does 10 % more."""
    document, rows = read(RESULTS / "cpu/compare_quality.json"), []
    for name, case in document["cases"].items():
        same, more = case["itself"], case["10 % more"]
        rights = (f"{it['right']} of {it['runs']}" for it in (same, more))
        rows.append((name.replace("_", " "), *rights, f"{same['interval_width_median']:.2f} %"))
    low, high = min(document["load"]), max(document["load"])
    return table(
        "work | with itself: not distinguishable | with 10 % more: the right verdict | interval, median width", rows,
        f"{document['device']}, {document['cores']} cores at load {low} to {high}, torch {document['torch']}; "
        "`python -m benchmarks.timing.compare_quality`.",
    )  # fmt: skip


def kernels_table() -> str:
    """The shipped kernels beside their rivals: mean and least speed over the named problems."""
    document = read(KERNELS)
    device = document["device"]
    rows = [
        (*pair.split(" / "), it["problems"], f"{it['geometric_mean']:.2f}", f"{it['least']:.2f}")
        for pair, it in document["speedups"].items()
    ]
    return table(
        "kernel | beside | problems | speed, geometric mean | least", rows,
        "Speed is the other's time divided by the kernel's; `default` is the kernel with its untuned config. "
        f"{device['name']}, driver {device['driver']}, {versions(document)}; L2 cold, interleaved rounds; "
        f"`{command_now(document)}`.",
    )  # fmt: skip


def limits_table() -> str:
    """The limits of `kernel_limits` and what was found of each: the mean, the least, and where that is.

    Limits beside the untuned config are one row if all of a device are met.
    """
    found = [_joined(_found(path)) for path in (KERNELS, KERNELS_H100)]
    limits = dict.fromkeys(limit for by_limit in found for limit in by_limit)
    rows = [(limit, *(by_limit.get(limit, "") for by_limit in found)) for limit in limits]
    return table("limit | on an H200 | on an H100", rows)


def _joined(found: Mapping[str, str]) -> dict[str, str]:
    """With one row for all limits beside the default where each is met."""
    defaults = {limit: each for limit, each in found.items() if "beside default" in limit}
    if not defaults or any(not each.startswith("met") for each in defaults.values()):
        return dict(found)
    others = {limit: each for limit, each in found.items() if limit not in defaults}
    return {**others, "a kernel beside its untuned config: each >= 1.0": f"met by {len(defaults)}"}


def _found(path: Path) -> dict[str, str]:
    """Each limit that the results of a device tell of, and how they stand to it."""
    measured = [each for each in outcomes({"rows": read(path)["rows"]}) if each.state != UNMEASURED]
    return {str(each.limit): f"{each.state}: {each.found}" for each in measured}


def in_place_table() -> str:
    """Steps of five models: kernels that were tuned alone, then compared in the step."""
    document, rows = read(H200 / "in_place.json"), []
    for each in document["models"]:
        compared = [one for one in each["kernels"] if one["gains"]]
        lost = [one["kernel"].removesuffix("_kernel") for one in compared if one["after"] != one["before"]]
        gains = [100 * gain for gain in each["gain"] or ()]
        how = "" if each["mode"].startswith("graph") else ", not captured"
        rows.append((
            each["model"], f"{each['before_ms']:.2f} ms{how}", len(compared), ", ".join(lost) or "none",
            "{:.1f} % ({:.1f} to {:.1f})".format(*gains) if gains else "nothing",
            " and ".join(f"{part:.0f}" for part in each["seconds"]),
        ))  # fmt: skip
    summary, equal = document["summary"], document["equal"]
    return table(
        "step | time | problems compared | lost in the step | the step gains | seconds of tunes, and of the step", rows,
        f"{summary['lost']} of {summary['problems']} winners lose in the step. Of {equal['decisions']} decisions among "
        f"equal configs, each in {equal['most_s']:.1f} s at most, {equal['changes'] or 'none'} was a change: "
        f"{source(document)}",
    )  # fmt: skip


def serving_table() -> str:
    """Tables of serving engines, each row raced with what served before: what became faster, and what it took."""
    rows, sources = [], []
    for path in sorted(RESULTS.glob("*/serving*.json")):
        document = read(path)
        groups = ((old, [it for it in document["tables"] if bool(it["served_before"]) == old]) for old in (True, False))
        rows.extend(_served(path.stem, before, tables) for before, tables in groups if tables)
        if beside := document.get("beside"):
            sources.append(
                f"vLLM's own way took {beside['seconds']:.0f} s for {beside['tried']} of its {beside['configs']} "
                f"configs for {beside['size']} tokens of {beside['case']}, so {beside['all_s']:.0f} s for all of them."
            )
        sources.append(f"{source(document).partition(' --')[0].rstrip('`.')}`.")  # whose cases the files tell
    head = "tables | served before | rows | faster | geometric mean, best | configs tried | seconds | found by engine"
    return table(head, rows, *dict.fromkeys(sources))


def _served(name: str, before: bool, tables: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """The row of tables of one file of which all had a table before, or none had."""
    facts = [each["summary"] for each in tables]
    sums = {what: sum(one[what] for one in facts) for what in ("rows", "tuned", "proven", "tried")}
    mean = math.exp(sum(one["tuned"] * math.log(one["geometric_mean"]) for one in facts) / sums["tuned"])
    seconds = sum(row["seconds"] or 0 for each in tables for row in each["rows"])
    return (
        f"{len(tables)} of `{name}`", "their own" if before else "defaults", f"{sums['tuned']} of {sums['rows']}",
        sums["proven"], f"{mean:.3f}, {max(one['best'] for one in facts):.3f}", sums["tried"], f"{seconds:.0f}",
        sum(each.get("found_by_engine", 0) for each in tables),
    )  # fmt: skip


def recorded_table() -> str:
    """How well the model ranks recorded spaces before anything is compiled, by sets of them."""
    rows = []
    for name, file in RECORDED.items():
        document = read(RESULTS / "model" / file)
        ranks, defaults = document["spaces"].values(), document["expected"].values()
        cells = [statistics.fmean(each["inferred"][what] for each in ranks) for what in _RANKS]
        worst = min(each["inferred"]["best_of_1"] for each in ranks)
        default = statistics.fmean(each["default"] for each in defaults)
        spearman, first, *rest = (f"{cell:.3f}" for cell in cells)
        rows.append((f"{name}: `{file}`", spearman, f"{default:.3f}", f"{first} ({worst:.3f})", *rest))
    return table("spaces | Spearman | default | first (worst) | best of 5 | best of 10", rows)


def contents_table() -> str:
    """Regrets on draws of routing that no tune has seen, in the mean and at worst, and the largest times."""
    document, rows, names = read(H200 / "contents.json"), [], ("default", "one draw", "contents")
    for each in document["problems"]:
        regrets = each["regrets"]
        cells = [f"{100 * regrets[name]['mean']:.1f}, {100 * regrets[name]['worst']:.1f} %" for name in names]
        rows.append((f"`{each['problem']}`", *cells, f"{regrets['contents']['over_default']:.2f}"))
    heads = ["problem", "the default", *names[1:], "contents over the default's time, at most"]
    return table(" | ".join(heads), rows, source(document))


def stated_table() -> str:
    """What the documents state of GPUs: whether it holds on one, and the name under which it is shown again."""
    document = read(H100 / "stated.json")
    rows = [
        (each["statement"], "yes" if each["holds"] else "no", f"`{name}`")
        for name, each in sorted(document["rows"].items())
    ]
    return table("statement | holds | name", rows, source(document))


TABLES = {
    "headline": headline_table,
    "kernels": kernels_table,
    "kernel limits": limits_table,
    "recorded spaces": recorded_table,
    "cold tune": cold_table,
    "live tune": partial(live_table, H200 / "live_tune.json"),
    "live tune undeclared": partial(live_table, H200 / "live_plain.json"),
    "launch cost": launch_table,
    "bucket regret": bucket_table,
    "third party": third_party_table,
    "adopter": adopter_table,
    "dynamic shapes": dynamic_table,
    "choices": choices_table,
    "compile modes": modes_table,
    "compile modes gpu": modes_gpu_table,
    "selection quality": quality_table,
    "compare quality": compare_table,
    "in place": in_place_table,
    "contents": contents_table,
    "serving": serving_table,
    "stated of GPUs": stated_table,
    "simulated selections": lambda: selection_table(read(RESULTS / "simulated/selection.json")),
}


def filled(text: str) -> str:
    """`text` with every table between its markers made anew."""
    for name, make in TABLES.items():
        pattern = rf"(<!-- table: {name} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda match, made=make: f"{match[1]}{made()}\n{match[2]}", text, flags=re.DOTALL)
    return text


def main() -> int:
    """Rewrite or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    differ = False
    for page in PAGES:
        before = page.read_text()
        after = filled(before)
        if before != after and check:
            print(f"{page.relative_to(ROOT)} differs: run python -m benchmarks.pages.tables")
        elif before != after:
            page.write_text(after)
        differ |= before != after
    return int(check and differ)


if __name__ == "__main__":
    sys.exit(main())
