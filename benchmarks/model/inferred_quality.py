"""How well work that is read from TTIR ranks recorded spaces: `python -m benchmarks.model.inferred_quality RECORDING…`.

Beside declared work, for every space of a kernel whose source is here or close to one here: Spearman's correlation with
the best estimates, and the fraction of the optimum that the first 1, 5, 10 and 25 reach. Needs Triton and no GPU; about
30 ms for each different text.

`expected` is what the effort `expected` would run, with each other config as the default: for how many defaults the
model is sure, for how many of these its pick is more than 2 % slower, the worst of these, and the pick's fraction of
the optimum. `error` is the standard deviation of the logarithm of measured over expected times among the picks that
are compiled. `default` is the first value of each tunable: its fraction of the optimum, whether the model is sure
beside it, the speed of what then runs over it, and what the best of five picks and the default reach.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import triton

from benchmarks.document import headed, save
from benchmarks.model import held_out_spaces, plain_kernels
from benchmarks.model.model_quality import figures, read, recorded_model, resources_of, show, time_ms
from triton_ops.backend import Arguments, TritonKernel
from triton_ops.backend.offline import kernel_work
from triton_ops.cost_model import Model, Readings
from triton_ops.device import DeviceSpec, Machine, Target
from triton_ops.request import Effort
from triton_ops.space import Config
from triton_ops.tuner import expectation
from triton_ops.values import Resources, TensorSpec, dtype_name
from triton_ops_kernels import load
from triton_ops_lab.recording import readings_from, stored_readings, write_recording

_OPTIONS = ("num_warps", "num_stages")
_RACED = 5  # picks beside the default
_LOSS = 0.02  # of speed, below which a default was left wrongly
_MEANT = ("spearman", "best_of_1", "best_of_5", "best_of_10")  # figures that have a mean


def kernel_of(recording: Mapping[str, Any]) -> tuple[Any, Arguments] | None:
    """A kernel like the recorded one, with its arguments; None for another kind of kernel."""
    kind, shape = recording.get("kind"), [int(extent) for extent in recording.get("shape") or ()]
    every = (*plain_kernels.SPACES, *held_out_spaces.FRESH, *held_out_spaces.UNSEEN)
    for operation in (space.operation for space in every if set(space.space) == set(recording["space"])):
        if operation.name == kind:
            dtype = dtype_name(recording["family"].removeprefix(f"{kind}_")) if operation.dtypes else None
            problem = operation.problem(tuple(shape), dtype)
            return operation.kernel, Arguments(keyword=dict(problem.arguments))
    if kind == "matmul" and "GROUP_M" in recording["space"]:  # the shipped kernel
        operation = load("matmul")
        problem = operation.problem(tuple(shape), dtype_name(recording["family"].removeprefix("matmul_")))
        return operation.kernel, Arguments(keyword=dict(problem.arguments))
    if kind in ("matmul", "fp8"):
        M, N, K = shape
        dtype = "float8_e4m3fn" if kind == "fp8" else "bfloat16"
        right, strides = ((N, K), (1, K)) if kind == "fp8" else ((K, N), (N, 1))
        given = (
            TensorSpec((M, K), dtype), TensorSpec(right, dtype), TensorSpec((M, N), "bfloat16"), M, N, K, K, 1,
            *strides, N, 1,
        )  # fmt: skip
        return TritonKernel(plain_kernels.matmul_kernel, _tiles), Arguments(given)
    if kind in ("rms", "softmax"):
        rows, columns = shape
        x = TensorSpec((rows, columns), "bfloat16")
        function = plain_kernels.rmsnorm_kernel if kind == "rms" else plain_kernels.softmax_kernel
        return TritonKernel(function, _rows), Arguments(
            (x, x, rows, columns) if kind == "softmax" else (x, x, rows, columns, 1e-5)
        )
    return None


def readings_of(recording: Mapping[str, Any]) -> Readings | None:
    """What is read of every config; what the recording keeps where its kernel is gone or has changed; None without."""
    readings, stored = _read(recording), recording.get("inferred")
    return readings_from(stored) if stored and (readings is None or readings.silent) else readings


def _read(recording: Mapping[str, Any]) -> Readings | None:
    loaded = kernel_of(recording)
    if loaded is None:
        return None
    kernel, arguments = loaded
    configs = [Config(row["config"]) for row in recording["rows"]]
    readings = Readings(tuple(name for name in configs[0] if name not in _OPTIONS))
    specs, target = arguments.described(), Target.named("sm_90")
    for config in readings.representatives(configs):
        readings.works[readings.key(config)] = kernel_work(kernel, config, specs, target)
    return readings


def inferred(recording: Mapping[str, Any], readings: Readings | None) -> Model | None:
    """The model of the work that was read; None without a reading or a device."""
    spec = DeviceSpec.named(str(recording.get("gpu", "")))
    machine = Machine.of(spec) if spec is not None else None
    return None if readings is None or machine is None else readings.model(machine)


def quality(recording: dict[str, Any], of: Readings | None) -> dict[str, dict[str, float]]:
    """The figures of both models, as far as there are any."""
    rows = [row for row in recording["rows"] if row["status"] == "ok"]
    times = [time_ms(row) for row in rows]
    models = {"declared": recorded_model(recording), "inferred": inferred(recording, of)}
    return {
        name: figures(model.score([row["config"] for row in rows]), times)
        for name, model in models.items()
        if model is not None
    }


def expected(recording: Mapping[str, Any], of: Readings | None) -> dict[str, Any]:
    """What the effort `expected` would do in a space; empty without a model."""
    effort, model = Effort.named("expected"), inferred(recording, of)
    if model is None:
        return {}
    rows = [row for row in recording["rows"] if row["status"] == "ok"]
    times, guesses = [time_ms(row) for row in rows], model.score([row["config"] for row in rows])
    compiled = [resources_of(row, recording) for row in rows]
    first = sorted(range(len(rows)), key=guesses.__getitem__)[: effort.previews]
    flags = {at: None if (known := compiled[at].serialised) is None else Resources(serialised=known) for at in first}
    light = [at for at in first if not compiled[at].wasteful] or first
    known_ms = [model.expected_ms(row["config"], each) for row, each in zip(rows, compiled, strict=True)]
    leader = min(light, key=lambda at: model.expected_ms(rows[at]["config"], flags[at]))
    fastest = min(light, key=known_ms.__getitem__)
    pick = fastest if known_ms[leader] >= (1 + expectation._ERROR) * known_ms[fastest] else leader
    sure = [at for at in range(len(rows)) if known_ms[at] >= (1 + effort.expected_gain) * known_ms[leader]]
    errors = [math.log(times[at] / known_ms[at]) for at in light]
    speeds = [times[at] / times[pick] for at in sure]
    plain = {name: values[0] for name, values in recording["space"].items()}
    default = next((at for at, row in enumerate(rows) if row["config"] == plain), None)
    raced = sorted(range(len(rows)), key=guesses.__getitem__)[:_RACED] + ([] if default is None else [default])
    return {
        "defaults": len(rows) - 1, "sure": len(sure), "wrong": sum(speed < 1 - _LOSS for speed in speeds),
        "worst": round(min(speeds, default=1.0), 4), "fraction": round(min(times) / times[pick], 4),
        "default": 0.0 if default is None else round(min(times) / times[default], 4),
        "spoke": default is None or default in sure,
        "speed": None if default is None else round(times[default] / times[pick], 4) if default in sure else 1.0,
        "race": round(min(times) / min(times[at] for at in raced), 4),
        "error": round(statistics.stdev(errors), 4) if len(errors) > 2 else None,
    }  # fmt: skip


def summary(spaces: Mapping[str, Any], expectations: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The figures over all spaces that the model can rank."""
    first = [modes["inferred"]["best_of_1"] for modes in spaces.values() if "inferred" in modes]
    heard = [each for each in expectations.values() if each]
    if not heard:
        return {"spaces": len(spaces), "read": 0}
    speeds = [each["speed"] for each in heard if each["spoke"] and each["speed"] is not None]
    return {
        "spaces": len(spaces), "read": len(heard), "first": statistics.mean(first), "worst_first": min(first),
        "run": statistics.mean(each["fraction"] for each in heard), "worst_run": min(e["fraction"] for e in heard),
        "race": statistics.mean(each["race"] for each in heard), "worst_race": min(e["race"] for e in heard),
        "default": statistics.mean(each["default"] for each in heard), "spoke": sum(each["spoke"] for each in heard),
        "lowest_speed": min(speeds, default=1.0), "every_default": sum(each["defaults"] for each in heard),
        "spoke_beside": sum(each["sure"] for each in heard), "wrong_beside": sum(each["wrong"] for each in heard),
        "lowest_beside": min(each["worst"] for each in heard),
        "error": statistics.median(each["error"] for each in heard if each["error"] is not None),
    }  # fmt: skip


def table(spaces: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """The lines of a Markdown table of the spaces with inferred work, and the means."""
    figures_of = {name: modes["inferred"] for name, modes in spaces.items() if "inferred" in modes}
    ranked = [*_MEANT, "level"]
    lines = ["| space | Spearman | first | best of 5 | best of 10 | level |", "|---|---|---|---|---|---|"]
    for name, each in figures_of.items():
        title = re.sub(r"(?<=\d)x(?=\d)", "×", name.removesuffix(".json.gz").replace("_", " ").replace("-", " "))
        cells = [f"{each[what]:.2f}" if what == "level" else f"{each[what]:.3f}" for what in ranked]
        lines.append(f"| {' | '.join([title, *cells])} |")
    means = (
        [f"{statistics.mean(each[what] for each in figures_of.values()):.3f}" for what in _MEANT] if figures_of else []
    )
    return [*lines, f"| {' | '.join(['mean', *means])} | |"] if means else lines


def _tiles(meta: Mapping[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(meta["M"], meta["BM"]) * triton.cdiv(meta["N"], meta["BN"]),)


def _rows(meta: Mapping[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(meta["rows"], meta["ROWS"]),)


def command_of(recordings: Sequence[Path]) -> str:
    """The command of whole folders of recordings; those that are not of this repository have no path in it."""
    folders = dict.fromkeys(path.parent.as_posix() for path in recordings)
    words = [f"{each}/*.json.gz" if each.startswith("benchmarks/recordings") else "RECORDING…" for each in folders]
    return " ".join(["python -m benchmarks.model.inferred_quality", *words])


def main() -> None:
    """Print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--commit", help="of the tree that the script stands in, where that is no clone")
    parser.add_argument("--markdown", action="store_true", help="print a table of the spaces too")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="where to write the recordings with what was read")
    options = parser.parse_args()
    if options.write is not None:
        options.write.mkdir(parents=True, exist_ok=True)
    spaces: dict[str, dict[str, dict[str, float]]] = {}
    expectations: dict[str, dict[str, Any]] = {}
    for path in options.recordings:
        recording = read(path)
        work = readings_of(recording)
        spaces[path.name] = quality(recording, work)
        expectations[path.name] = expected(recording, work)
        if options.write is not None and work is not None:
            write_recording(options.write / path.name, {**recording, "inferred": stored_readings(work)})
    show(spaces)
    for name, each in expectations.items():
        print(f"{name:<36} expected  {each}")
    print(summary(spaces, expectations))
    if options.markdown:
        print(*table(spaces), sep="\n")
    if options.json:
        figures_of = {"summary": summary(spaces, expectations), "spaces": spaces, "expected": expectations}
        save(options.json, headed(command_of(options.recordings), options.commit, **figures_of))


if __name__ == "__main__":
    main()
