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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages.tables_of_choices import choices_table, command_now, modes_gpu_table, modes_table, source
from benchmarks.shipped.kernel_limits import UNMEASURED, outcomes

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
)
KERNELS = ROOT / "benchmarks/results/nvidia-h200/kernels.json"
KERNELS_H100 = ROOT / "benchmarks/results/nvidia-h100-80gb-hbm3/kernels.json"
TUNE = ROOT / "benchmarks/results/nvidia-h200/tune.json"
COLD = ROOT / "benchmarks/results/nvidia-h200/cold_tune.json"
LIVE = ROOT / "benchmarks/results/nvidia-h200/live_tune.json"
LIVE_PLAIN = ROOT / "benchmarks/results/nvidia-h200/live_plain.json"
LAUNCH = ROOT / "benchmarks/results/nvidia-h100-80gb-hbm3/launch_cost.json"
BUCKETS = ROOT / "benchmarks/results/nvidia-h200/bucket_regret.json"
THIRD_PARTY = ROOT / "benchmarks/results/nvidia-h200/third_party.json"
ADOPTER = ROOT / "benchmarks/results/nvidia-h100-80gb-hbm3/adopter.json"
DYNAMIC = ROOT / "benchmarks/results/nvidia-h200/dynamic_shapes.json"
QUALITY = ROOT / "benchmarks/results/nvidia-h200/measurement_quality.json"
SELECTION = ROOT / "benchmarks/results/simulated/selection.json"
ENDS = ROOT / "benchmarks/results/simulated/race_ends.json"
COMPARE = ROOT / "benchmarks/results/cpu/compare_quality.json"
STATED = ROOT / "benchmarks/results/nvidia-h100-80gb-hbm3/stated.json"
IN_PLACE = ROOT / "benchmarks/results/nvidia-h200/in_place.json"
CONTENTS = ROOT / "benchmarks/results/nvidia-h200/contents.json"
SERVING = tuple(sorted((ROOT / "benchmarks/results").glob("*/serving*.json")))
RECORDED = {
    "24 developed on, now": "inferred.json",
    "the first 26, frozen": "h100_fresh.json",
    "the first 26, mended": "h100_fresh_mended.json",
    "the last 26, frozen": "h200_unseen.json",
    "the last 26, mended": "h200_unseen_mended.json",
}
_RANKS = ("spearman", "best_of_1", "best_of_5", "best_of_10")


def headline_table() -> str:
    """Five figures for whoever meets this package: what a tune and a launch take, and where a library is faster."""
    cold, live, others, launch, kernels = (
        json.loads(path.read_text()) for path in (COLD, LIVE, THIRD_PARTY, LAUNCH, KERNELS)
    )
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
        f"| {what} | **{ours}** | {beside} | {device.split()[1]}, {date[:10]} |"
        for what, ours, beside, device, date in rows
    ]
    return "\n".join(["| | `triton_ops` | for comparison | measured |", "|---|---|---|---|", *lines])


def tune_table() -> str:
    """Winners of exhaustive tunes beside the vendor's library."""
    document = json.loads(TUNE.read_text())
    rows = [
        "| kernel | problem | configs | winner | default | winner | library | share of library |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in document["runs"]:
        beside, result = run["beside_the_library"], run["result"]
        times, share = beside["median_ms"], beside["share_of_library_speed"]
        configs = sum(result["totals"].values())
        config = ", ".join(f"{name} {value}" for name, value in result["best_config"].items())
        rows.append(
            f"| {run['kernel']} | {'x'.join(map(str, run['shape']))} {run['dtype']} | "
            f"{configs} in {run['wall_s']:.0f} s | {config} | {times['default']:.4f} ms | {times['winner']:.4f} ms | "
            f"{times['library']:.4f} ms, {beside['library']} | {share['winner']:.1%} |"
        )
    versions, device = document["versions"], document["device"]
    rows.append("")
    rows.append(
        f"{device['name']}, driver {device['driver']}, Triton {versions['triton']}, torch {versions['torch']}, "
        f"{document['date'][:10]}; L2 cold, {document['runs'][0]['beside_the_library']['rounds']} interleaved rounds "
        f"of {document['runs'][0]['beside_the_library']['block']} samples; `{command_now(document)}`."
    )
    return "\n".join(rows)


def cold_table() -> str:
    """A tune from empty compile caches beside `triton.autotune`."""
    document = json.loads(COLD.read_text())
    ours, theirs = document["ours"], document["triton"]
    winners = document["winners"]["verdict"].partition(",")[0]
    return "\n".join(
        [
            "| | `triton_ops.tune` | `triton.autotune` |",
            "|---|---|---|",
            f"| {document['configs']} configs of a bf16 matrix product, 4096³, from an empty compile cache "
            f"| **{ours['wall_s']:.1f} s** | {theirs['wall_s']:.1f} s |",
            f"| first config measured after | {ours['first_measurement_s']:.1f} s | |",
            f"| the winner, side by side | {winners} | |",
            "",
            f"{document['device']}, {document['cpus']} CPU cores, Triton {document['versions']['triton']}, "
            f"torch {document['versions']['torch']}, {document['date'][:10]}; `{command_now(document)}`.",
        ]
    )


def live_table(path: Path = LIVE) -> str:
    """Default tunes from cold caches, from the start of their process to the decision."""
    cases = json.loads(path.read_text())["cases"]
    rows = [
        "| | within 1 % of the best | worst | decided after | of it imports | every config | `triton.autotune` |",
        "|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {case} | {it['within_1_percent']} of {it['runs']} | {it['worst_slower']:.2%} | "
        f"{_middle_and_most(it['decided_s'])} | {_middle_and_most([run['imports_s'] for run in it['tunes']])} | "
        f"{it['exhaustive']['trials']} in {it['exhaustive']['decided_s']:.0f} s | {_other(it['triton.autotune'])} |"
        for case, it in cases.items()
    ]
    first = next(iter(cases.values()))
    theirs = first.get("triton.autotune_measured", first["date"])[:10]
    commits = [it["commit"] for it in cases.values()]
    rows += [
        "",
        f"{first['device']}, {first['cpus']} CPU cores, Triton {first['versions']['triton']}, torch "
        f"{first['versions']['torch']}, {first['date'][:10]}, `triton.autotune` {theirs}; median (most), from the "
        f"start of the process; `python -m benchmarks.tuning.live_tune`{_of(commits)}.",
    ]
    return "\n".join(rows)


def _of(commits: list[str]) -> str:
    return f" at {', '.join(commits)}, row by row" if len({*commits}) > 1 else ""


def _other(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return ""
    return f"{run['tried']} in {run['decided_s']:.0f} s" + ("" if run["winner"] else ", cut off")


def _middle_and_most(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f} s ({max(seconds):.1f})"


def launch_table() -> str:
    """What a known launch costs the host."""
    document = json.loads(LAUNCH.read_text())
    ways = ("plain JIT", "triton.autotune", "triton_ops.autotune")
    rows = [f"| | {' | '.join(f'`{way}`' if '.' in way else way for way in ways)} |", "|---|---|---|---|"]
    rows += [f"| {case} | {' | '.join(f'{us[way]:.1f} µs' for way in ways)} |" for case, us in document["us"].items()]
    return "\n".join([*rows, "", source(document)])


def bucket_table() -> str:
    """By how much winners of buckets are slower than the best known config at sizes that were not tuned."""
    document = json.loads(BUCKETS.read_text())
    rows = [
        "| rule | held-out sizes | slower than the best known, beyond noise | median | largest |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| `{rule}` | {each['sizes']} | {each['slower']} | {100 * each['median']:.1f} % | "
        f"{100 * each['largest']:.0f} % |"
        for rule, each in document["rules"].items()
    ]
    return "\n".join([*rows, "", source(document)])


def third_party_table() -> str:
    """Operators of public packages under both tuners."""
    document = json.loads(THIRD_PARTY.read_text())
    summary, cases = document["summary"], document["cases"]
    rows = [
        "| operator | first call, `triton.autotune` | first call, `triton_ops` | later calls, of Triton's time |",
        "|---|---|---|---|",
    ]
    for name, case in cases.items():
        if "errors" not in case:
            first = case["first_s"]
            rows.append(f"| {name} | {first['triton']:.1f} s | {first['ours']:.1f} s | {case['ratio']:.2f} |")
    unequal = f"all but those of {', '.join(summary['unequal'])}" if summary["unequal"] else "all"
    rows += [
        "",
        f"{summary['tuned_faster']} of {summary['kernels']} autotuned kernels are tuned faster, all of them in "
        f"{summary['tuned_s']['ours']:.0f} s instead of {summary['tuned_s']['triton']:.0f} s; outputs and gradients "
        f"are equal in {unequal}. No figures: "
        + "; ".join(f"{name} ({_why(cases[name]['errors'])})" for name in summary["failed"])
        + f". {source(document)}",
    ]
    return "\n".join(rows)


def _why(errors: Mapping[str, str]) -> str:
    """Why an operator has no figures: what Triton's side says, or that the time was over."""
    reason = errors.get("triton", next(iter(errors.values())))
    return "cut off by the limit" if reason.startswith("no answer") else reason.partition(". ")[0].partition(" (see")[0]


def adopter_table() -> str:
    """A package before and after its patch: first calls, later calls, and its own tests."""
    document = json.loads(ADOPTER.read_text())
    cold, warm, locked = document["cold"]["cases"], document["warm"]["cases"], document["locked"]["first_s"]
    rows = [
        "| case | first call: before | after | with the lockfile | in the next process: before | after "
        "| later calls, of the time before |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, case in cold.items():
        first, again = case["first_s"], warm[name]["first_s"]
        rows.append(
            f"| {name} | {first['triton']:.1f} s | {first['ours']:.1f} s | {locked[name]:.1f} s | "
            f"{again['triton']:.2f} s | {again['ours']:.2f} s | {case['ratio']:.2f} |"
        )
    before, after = (sum(case["first_s"][mode] for case in cold.values()) for mode in ("triton", "ours"))
    equal = all(case["equal"] for case in (*cold.values(), *warm.values()))
    rows += [
        f"| all | {before:.1f} s | **{after:.1f} s** | {sum(locked.values()):.1f} s | | | |",
        "",
        f"Scores and gradients of both trees are {'equal' if equal else 'not all equal'} within 2 %. {_tests(document)}"
        f"{source(document)}",
    ]
    return "\n".join(rows)


def _tests(document: Mapping[str, Any]) -> str:
    """How many of the package's tests ended alike in both trees."""
    if "tests" not in document:
        return ""
    tests = document["tests"]
    counts = {mode: {end: len(names) for end, names in ends.items()} for mode, ends in tests["ends"].items()}
    texts = {mode: ", ".join(f"{count} {end}" for end, count in ends.items()) for mode, ends in counts.items()}
    return (
        f"The package's own tests: before {texts['triton']}; after {texts['ours']}; {len(tests['unequal'])} ended "
        "otherwise. "
    )


def dynamic_table() -> str:
    """Three ways of sizes that change inside compiled code."""
    document = json.loads(DYNAMIC.read_text())
    sizes = list(next(iter(document["ways"].values()))["us"])
    rows = [f"| µs at a size of | {' | '.join(sizes)} | compilations |", "|---" * (len(sizes) + 2) + "|"]
    for way, it in document["ways"].items():
        times = " | ".join(f"{it['us'][size]:.0f}" for size in sizes)
        rows.append(f"| {way} | {times} | {it['graphs']} |")
    return "\n".join([*rows, "", source(document)])


def quality_table() -> str:
    """How good selections are on a device, against an oracle."""
    document = json.loads(QUALITY.read_text())
    rows = [
        "| selections from a compiled space | within 1 % of the best | regret, p95 | time, of `do_bench`'s over it |",
        "|---|---|---|---|",
    ]
    rows += [
        f"| {name} | {it['within_1pct']} of {it['repeats']} | {it['regret_p95']:.2%} "
        f"| {it['seconds_median']:.1f} s, 1/{1 / it['share_of_do_bench']:.0f} |"
        for name, it in document["spaces"].items()
    ]
    theirs = document["do_bench_measured"]["date"][:10]
    commits = ", ".join(f"{name} at {commit}" for name, commit in document["commits"].items())
    rows += [
        "",
        f"{document['device']['name']}, {document['date'][:10]} ({commits}), `do_bench` {theirs}; "
        f"`{command_now(document)}`.",
    ]
    return "\n".join(rows)


def selection_table(document: Mapping[str, Any]) -> str:
    """Grades of selections on a simulated device."""
    rows = [
        "| disturbance | within 1 % | regret, mean | p95 | outside the tie set | differs from itself | 2 % found "
        "| of `do_bench`'s GPU time | changed by the reversed list |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {name} | {it['within_1pct']} of {it['selections']} | {it['regret_mean']:.2%} | {it['regret_p95']:.2%} | "
        f"{it['outside_tie_set']:.1%} | {it['aa_false_positive']:.1%} | {it['power_2pct']:.1%} | "
        f"1/{1 / it['share_of_do_bench']:.0f} | {it['reversed_list_changes']} |"
        for name, it in document["disturbances"].items()
    ]
    together, spaces = document["pooled"], next(iter(document["disturbances"].values()))["spaces"]
    rows += [
        "",
        f"Together {together['within_1pct']} of {together['of']} within 1 %, Wilson lower bound "
        f"{together['wilson_low']:.3f}; {document['repeats']} selections from each of "
        f"{len(spaces)} spaces of {document['configs']} configs; "
        f"`{command_now(document)}`.",
    ]
    return "\n".join(rows)


def ends_table(document: Mapping[str, Any]) -> str:
    """What the end of a race costs and what it decides, by its policy."""
    rows = [
        "| a race | in | winner within 1 % | regret, mean | worst | default replaced by one no faster "
        "| by one 0.25 % slower | default kept, 1 % behind | unsure | rounds | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {policy} | {kind} | {it['within_1pct']:.2%} | {it['regret_mean']:.2%} | {it['regret_max']:.2%} | "
        f"{it['replaced']:.2%} | {it['clearly']:.2%} | {it['missed']:.2%} | {it['unsure']:.1%} | {it['rounds']:.0f} | "
        f"{it['seconds']:.2f} |"
        for policy, kinds in document["figures"].items()
        for kind, it in kinds.items()
    ]
    counts = {kind: it["comparisons"] for kind, it in next(iter(document["figures"].values())).items()}
    each = " and ".join(f"{count:,} comparisons in {kind}" for kind, count in counts.items())
    return "\n".join([*rows, "", f"For each policy {each}, the same for all; `{command_now(document)}`."])


def compare_table() -> str:
    """How often `compare` was right about equal callables, and about one that does 10 % more."""
    document = json.loads(COMPARE.read_text())
    rows = [
        "| work | with itself: not distinguishable | with 10 % more: the right verdict | interval, median width |",
        "|---|---|---|---|",
    ]
    for name, case in document["cases"].items():
        same, more = case["itself"], case["10 % more"]
        rows.append(
            f"| {name.replace('_', ' ')} | {same['right']} of {same['runs']} | {more['right']} of {more['runs']} | "
            f"{same['interval_width_median']:.2f} % |"
        )
    low, high = min(document["load"]), max(document["load"])
    where = f"{document['device']}, {document['cores']} cores at load {low} to {high}, torch {document['torch']}"
    return "\n".join([*rows, "", f"{where}; `python -m benchmarks.timing.compare_quality`."])


def kernels_table() -> str:
    """The shipped kernels beside their rivals: mean and least speed over the named problems."""
    if not KERNELS.is_file():
        return "Not measured yet: `make gpu-bench PY=python3` on an H200 measures it."
    document = json.loads(KERNELS.read_text())
    rows = [
        "| kernel | beside | problems | speed, geometric mean | least |",
        "|---|---|---|---|---|",
    ]
    for pair, it in document["speedups"].items():
        kernel, rival = pair.split(" / ")
        rows.append(f"| {kernel} | {rival} | {it['problems']} | {it['geometric_mean']:.2f} | {it['least']:.2f} |")
    versions, device = document["versions"], document["device"]
    rows += [
        "",
        f"Speed is the other's time divided by the kernel's; `default` is the kernel with its untuned config. "
        f"{device['name']}, driver {device['driver']}, Triton {versions['triton']}, torch {versions['torch']}, "
        f"{document['date'][:10]}; L2 cold, interleaved rounds; `{command_now(document)}`.",
    ]
    return "\n".join(rows)


def limits_table() -> str:
    """The limits of `kernel_limits` and what was found of each: the mean, the least, and where that is.

    Limits beside the untuned config are one row if all of a device are met.
    """
    devices = (("H200", KERNELS), ("H100", KERNELS_H100))
    found = [_joined(_found(path)) for _, path in devices]
    limits = dict.fromkeys(limit for by_limit in found for limit in by_limit)
    rows = [f"| {limit} | {' | '.join(by_limit.get(limit, '') for by_limit in found)} |" for limit in limits]
    return "\n".join([f"| limit | {' | '.join(f'on an {device}' for device, _ in devices)} |", "|---|---|---|", *rows])


def _joined(found: Mapping[str, str]) -> dict[str, str]:
    """With one row for all limits beside the default where each is met."""
    defaults = {limit: each for limit, each in found.items() if "beside default" in limit}
    if not defaults or any(not each.startswith("met") for each in defaults.values()):
        return dict(found)
    others = {limit: each for limit, each in found.items() if limit not in defaults}
    return {**others, "a kernel beside its untuned config: each >= 1.0": f"met by {len(defaults)}"}


def _found(path: Path) -> dict[str, str]:
    """Each limit that the results of a device tell of, and how they stand to it."""
    rows = json.loads(path.read_text())["rows"] if path.is_file() else []
    measured = [each for each in outcomes({"rows": rows}) if each.state != UNMEASURED]
    return {str(each.limit): f"{each.state}: {each.found}" for each in measured}


def in_place_table() -> str:
    """Steps of five models: kernels that were tuned alone, then compared in the step."""
    document = json.loads(IN_PLACE.read_text())
    rows = [
        "| step | time | problems compared | lost in the step | the step gains | seconds of tunes, and of the step |",
        "|---|---|---|---|---|---|",
    ]
    for each in document["models"]:
        compared = [one for one in each["kernels"] if one["gains"]]
        lost = [one["kernel"].removesuffix("_kernel") for one in compared if one["after"] != one["before"]]
        gains = [100 * gain for gain in each["gain"] or ()]
        gain = "{:.1f} % ({:.1f} to {:.1f})".format(*gains) if gains else "nothing"
        seconds = " and ".join(f"{part:.0f}" for part in each["seconds"])
        how = "" if each["mode"].startswith("graph") else ", not captured"
        rows.append(
            f"| {each['model']} | {each['before_ms']:.2f} ms{how} | {len(compared)} | {', '.join(lost) or 'none'} | "
            f"{gain} | {seconds} |"
        )
    summary, equal = document["summary"], document["equal"]
    rows += [
        "",
        f"{summary['lost']} of {summary['problems']} winners lose in the step. Of {equal['decisions']} decisions among "
        f"equal configs, each in {equal['most_s']:.1f} s at most, {equal['changes'] or 'none'} was a change: "
        f"{source(document)}",
    ]
    return "\n".join(rows)


def serving_table() -> str:
    """Tables of serving engines, each row raced with what served before: what became faster, and what it took."""
    rows = [
        "| tables | served before | rows | faster | geometric mean, best | configs tried | seconds | found by engine |",
        "|---|---|---|---|---|---|---|---|",
    ]
    sources = []
    for path in SERVING:
        document = json.loads(path.read_text())
        groups = {
            before: [each for each in document["tables"] if bool(each["served_before"]) == before]
            for before in (True, False)
        }
        rows += [_served(path.stem, before, tables) for before, tables in groups.items() if tables]
        if beside := document.get("beside"):
            sources.append(
                f"vLLM's own way took {beside['seconds']:.0f} s for {beside['tried']} of its {beside['configs']} "
                f"configs for {beside['size']} tokens of {beside['case']}, so {beside['all_s']:.0f} s for all of them."
            )
        sources.append(f"{source(document).partition(' --')[0].rstrip('`.')}`.")  # whose cases the files tell
    return "\n".join([*rows, "", *dict.fromkeys(sources)])


def _served(name: str, before: bool, tables: Sequence[Mapping[str, Any]]) -> str:
    """The row of tables of one file of which all had a table before, or none had."""
    facts = [each["summary"] for each in tables]
    sums = {what: sum(one[what] for one in facts) for what in ("rows", "tuned", "proven", "tried")}
    mean = math.exp(sum(one["tuned"] * math.log(one["geometric_mean"]) for one in facts) / sums["tuned"])
    seconds = sum(row["seconds"] or 0 for each in tables for row in each["rows"])
    cells = (
        f"{len(tables)} of `{name}`", "their own" if before else "defaults", f"{sums['tuned']} of {sums['rows']}",
        sums["proven"], f"{mean:.3f}, {max(one['best'] for one in facts):.3f}", sums["tried"], f"{seconds:.0f}",
        sum(each.get("found_by_engine", 0) for each in tables),
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def recorded_table() -> str:
    """How well the model ranks recorded spaces before anything is compiled, by sets of them."""
    rows = ["| spaces | Spearman | default | first (worst) | best of 5 | best of 10 |", "|---|---|---|---|---|---|"]
    for name, file in RECORDED.items():
        document = json.loads((ROOT / "benchmarks/results/model" / file).read_text())
        ranks, defaults = document["spaces"].values(), document["expected"].values()
        cells = [statistics.fmean(each["inferred"][what] for each in ranks) for what in _RANKS]
        worst = min(each["inferred"]["best_of_1"] for each in ranks)
        default = statistics.fmean(each["default"] for each in defaults)
        spearman, first, *rest = (f"{cell:.3f}" for cell in cells)
        rows.append(f"| {name}: `{file}` | {spearman} | {default:.3f} | {first} ({worst:.3f}) | {' | '.join(rest)} |")
    return "\n".join(rows)


def contents_table() -> str:
    """Regrets on draws of routing that no tune has seen, in the mean and at worst, and the largest times."""
    document = json.loads(CONTENTS.read_text())
    first = document["problems"][0]["regrets"]
    names = [name for name in ("default", "one draw", "contents", "one body", "bodies") if name in first]
    beside = [name for name in ("contents", "bodies") if name in first]
    heads = ["problem", "the default", *names[1:], *(f"{name} over the default's time, at most" for name in beside)]
    rows = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for each in document["problems"]:
        regrets = each["regrets"]
        cells = [f"{100 * regrets[name]['mean']:.1f}, {100 * regrets[name]['worst']:.1f} %" for name in names]
        cells += [f"{regrets[name]['over_default']:.2f}" for name in beside]
        rows.append(f"| `{each['problem']}` | {' | '.join(cells)} |")
    return "\n".join([*rows, "", source(document)])


def stated_table() -> str:
    """What the documents state of GPUs: whether it holds on one, and the name under which it is shown again."""
    document = json.loads(STATED.read_text())
    rows = [
        f"| {each['statement']} | {'yes' if each['holds'] else 'no'} | `{name}` |"
        for name, each in sorted(document["rows"].items())
    ]
    return "\n".join(["| statement | holds | name |", "|---|---|---|", *rows, "", source(document)])


TABLES = {
    "headline": headline_table,
    "kernels": kernels_table,
    "kernel limits": limits_table,
    "recorded spaces": recorded_table,
    "tune": tune_table,
    "cold tune": cold_table,
    "live tune": live_table,
    "live tune undeclared": lambda: live_table(LIVE_PLAIN),
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
    "race ends": lambda: ends_table(json.loads(ENDS.read_text())),
    "simulated selections": lambda: selection_table(json.loads(SELECTION.read_text())),
}


def filled(text: str) -> str:
    """`text` with every table between its markers made anew."""
    for name, make in TABLES.items():
        pattern = rf"(<!-- table: {name} -->\n).*?(<!-- end -->)"
        text = re.sub(pattern, lambda match, table=make: f"{match[1]}{table()}\n{match[2]}", text, flags=re.DOTALL)
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
