"""How well work that is read from TTIR ranks recorded spaces: `python -m benchmarks.model.inferred_quality RECORDING…`.

Beside declared work, for every space whose recording keeps TTIR or what was read of it: Spearman's correlation with the
best estimates, and the fraction of the optimum that the first 1, 5, 10 and 25 reach. `lowered` in a recording has the
TTIR of each launch with its grid and operands, in a few texts for all configs. It needs neither Triton nor a GPU, and
about 10 ms for a text.

`expected` is what the effort `expected` would run, with each other config as the default: for how many defaults the
model is sure, for how many of these its pick is more than 2 % slower, the worst of these, and the pick's fraction of
the optimum. `error` is the standard deviation of the logarithm of measured over expected times among the picks that
are compiled. `default` is the first value of each tunable: its fraction of the optimum, whether the model is sure
beside it, the speed of what then runs over it, and what the best of five picks and the default reach.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.document import headed, parser_of, save
from benchmarks.model.model_quality import figures, read, recorded_model, resources_of, show, time_ms
from triton_ops.cost_model import Model, Readings
from triton_ops.device import DeviceSpec, Machine
from triton_ops.kernel_ir import KernelWork, LaunchWork, Operand, UntoldError
from triton_ops.request import Effort
from triton_ops.tuner import expectation
from triton_ops.values import Resources
from triton_ops_lab.recording import readings_from, stored_readings, write_recording

_RACED = 5  # picks beside the default
_LOSS = 0.02  # of speed, below which a default was left wrongly


def readings_of(recording: Mapping[str, Any]) -> Readings | None:
    """What is read of every config from the TTIR that a recording keeps, else what was read before; None without."""
    if (lowered := recording.get("lowered")) is None:
        stored = recording.get("inferred")
        return readings_from(stored) if stored else None
    readings = Readings(tuple(lowered["names"]))
    for row in lowered["works"]:
        readings.works[readings.key(dict(zip(readings.names, row["values"], strict=True)))] = _work(row["launches"])
    return readings


def _work(launches: Sequence[Mapping[str, Any]]) -> KernelWork:
    try:
        return KernelWork(tuple(
            LaunchWork.of(one["text"], tuple(one["grid"]), [Operand(**each) for each in one["operands"]])
            for one in launches
        ))  # fmt: skip
    except UntoldError as error:
        return KernelWork(silent=str(error))


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


def command_of(recordings: Sequence[Path]) -> str:
    """The command of whole folders of recordings; those that are not of this repository have no path in it."""
    folders = dict.fromkeys(path.parent.as_posix() for path in recordings)
    words = [f"{each}/*.json.gz" if each.startswith("benchmarks/recordings") else "RECORDING…" for each in folders]
    return " ".join(["python -m benchmarks.model.inferred_quality", *words])


def main() -> None:
    """Print a table, and write JSON where asked."""
    parser = parser_of(__doc__)
    parser.add_argument("recordings", nargs="+", type=Path)
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
    if options.out:
        figures_of = {"summary": summary(spaces, expectations), "spaces": spaces, "expected": expectations}
        save(options.out, headed(command_of(options.recordings), options.commit, **figures_of))


if __name__ == "__main__":
    main()
