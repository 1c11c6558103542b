"""Recorded spaces: what every config of a kernel took, read from any of the forms that hold such a thing.

1. This project's own (`triton-ops record`): JSON, usually gzipped, with `space` and `rows`; docs/reference/files.md.
2. Kernel Tuner's cache files: JSON with `tune_params` and `cache`; one that was cut off before its end counts as whole.
3. This project's run logs: JSON lines. The space is then exactly the configs that were tried.
"""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from triton_ops.analysis import with_residents
from triton_ops.exceptions import RecordingError, RunLogError, SpaceError, UnsupportedDtypeError
from triton_ops.hardware import machine_of, spec_named
from triton_ops.history.head import Head
from triton_ops.history.run_log import Run, read_run
from triton_ops.space import Config, ConfigSpace, Tunable
from triton_ops.space.tunable import as_tunable
from triton_ops.tensors import dtype_name
from triton_ops.trial import Compiled, Measurement, Resources, Status, Trial

MODE = "recorded"
_RUN_LINE = '{"type":'  # how a run log begins

_FAILURES = {
    "CompilationFailedConfig": Status.COMPILE,
    "InvalidConfig": Status.CONSTRAINT,
    "RuntimeFailedConfig": Status.RUNTIME,
}  # Kernel Tuner's words


@dataclass(frozen=True)
class Recording:
    """One kernel on one problem and device, with every config of its space measured.

    Attributes:
        file: The name of the file it was read from.
        kernel: The kernel's name, without shape and dtype; empty where the form does not tell.
        problem: Shape of the problem; empty where the form does not tell.
        dtype: Of the problem; empty where the form does not tell.
        device: Name of the device; empty where the form does not tell.
        space: What may be tried: exactly the configs recorded.
        trials: How each of them ended.
        head: What the file says beside its configs.
        arguments: The problem's arguments, described as in a key; empty where the form does not tell.
    """

    file: str
    kernel: str
    problem: tuple[int, ...]
    dtype: str
    device: str
    space: ConfigSpace
    trials: Mapping[Config, Trial]
    head: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def best_ms(self) -> float:
        """The fastest config's milliseconds."""
        return min(trial.median_ms for trial in self.trials.values() if trial.ok)

    @cached_property
    def compiled(self) -> Mapping[Config, Compiled]:
        """What the compiler alone tells of each config; empty where the form does not hold it."""
        if all(trial.resources is None or trial.resources.registers is None for trial in self.trials.values()):
            return {}
        spec = spec_named(self.device)
        machine = machine_of(spec) if spec is not None else None
        return {config: with_residents(_compiled(trial), machine) for config, trial in self.trials.items()}

    def same_place(self, other: Recording) -> bool:
        """Whether the other is of the same kernel, problem and device: then it is no news, but the answer."""
        return (self.kernel, self.problem, self.dtype, self.device, set(self.space.tunables)) == (
            other.kernel, other.problem, other.dtype, other.device, set(other.space.tunables),
        )  # fmt: skip


def read_recording(path: Path) -> Recording:
    """The recording in a file of any of the three forms.

    Raises:
        RecordingError: It cannot be read, is none of them, or holds no config that ran.
    """
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode()
        found = _of_run(read_run(path)) if text.startswith(_RUN_LINE) else _parsed(path.name, text)
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror or error}", hint="give a file") from error
    except (EOFError, KeyError, SpaceError, StopIteration, TypeError, ValueError, AttributeError) as error:
        raise RecordingError(
            f"{path} is no recording: {type(error).__name__}: {error}",
            hint="give a file of `triton-ops record`, a run log, or a cache file of Kernel Tuner",
        ) from error
    except RunLogError as error:
        raise RecordingError(f"{path} is no recording: {error.message}", hint=error.hint) from error
    if not any(trial.ok for trial in found.trials.values()):
        raise RecordingError(f"{path} holds no config that ran", hint="give a recording with at least one time")
    return found


def _parsed(name: str, text: str) -> Recording:
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        content = json.loads(text.rstrip().rstrip(",") + "}}")  # Kernel Tuner appends, and closes at the very end
    return _of_cache(name, content) if "cache" in content else _of_rows(name, content)


def _of_rows(name: str, content: Mapping[str, Any]) -> Recording:
    trials = [_row_trial(row) for row in content["rows"]]
    kernel, dtype = _family(content["family"])
    return Recording(
        name, kernel, tuple(content["shape"]), dtype, content["gpu"],
        _space(content["space"], trials), {trial.config: trial for trial in trials},
        {name: value for name, value in content.items() if name != "rows"},
        content.get("arguments", {}),
    )  # fmt: skip


def _family(name: str) -> tuple[str, str]:
    """`matmul_bf16` is the kernel `matmul` on `bfloat16`; what ends in no dtype is a kernel's name alone."""
    for length in (2, 1):  # float8_e4m3fn is a dtype of two words
        words = name.rsplit("_", length)
        try:
            return words[0], dtype_name("_".join(words[1:]))
        except UnsupportedDtypeError:
            continue
    return name, ""


def _row_trial(row: Mapping[str, Any]) -> Trial:
    config, status = Config.from_json(row["config"]), row["status"]
    made = Resources(row.get("regs"), row.get("spills"), row.get("shared"))
    if status == "ok":
        return Trial(config, Status.OK, _measured(_row_ms(row)), "", made, row.get("compile_s"))
    return Trial(config, _row_failure(status), None, status, made, row.get("compile_s"))


def _compiled(trial: Trial) -> Compiled:
    """Of a trial only what was known before its launch: one that failed later had compiled."""
    if trial.status not in (Status.COMPILE, Status.RESOURCES, Status.CONSTRAINT, Status.DEFERRED):
        return Compiled(trial.config, Status.OK, "", trial.resources, trial.compile_s)
    return Compiled(trial.config, trial.status, trial.error, trial.resources, trial.compile_s)


def _row_ms(row: Mapping[str, Any]) -> float:
    """The best estimate of a row's time: the median of its final passes, else the faster of the first two."""
    if row.get("final"):
        return float(statistics.median(quantiles[2] for quantiles in row["final"]))
    return min(float(quantiles[2]) for quantiles in row["ms"])


def _row_failure(status: str) -> Status:
    word = status.partition(":")[0]
    if word == "OutOfResources":
        return Status.RESOURCES
    return Status(word) if word in {known.value for known in Status} else Status.RUNTIME


def _of_cache(name: str, content: Mapping[str, Any]) -> Recording:
    names = content["tune_params_keys"]
    trials = [_cache_trial(names, row) for row in content["cache"].values()]
    size = content.get("problem_size", ())
    problem = tuple(size) if isinstance(size, (list, tuple)) else (size,)
    return Recording(
        name, content.get("kernel_name", ""), problem, "", content.get("device_name", ""),
        _space({key: content["tune_params"][key] for key in names}, trials), {trial.config: trial for trial in trials},
    )  # fmt: skip


def _cache_trial(names: Sequence[str], row: Mapping[str, Any]) -> Trial:
    config, time = Config.from_json({name: row[name] for name in names}), row["time"]
    if isinstance(time, str):
        return Trial(config, _FAILURES.get(time, Status.RUNTIME), None, time)
    return Trial(config, Status.OK, _measured(time))


def _of_run(run: Run) -> Recording:
    head, trials = run.head, run.trials
    axes = {
        name: [Config.from_json({name: value})[name] for value in given] for name, given in head.space.tunables.items()
    }
    return Recording(
        run.path.name, str(head.key.get("kernel", "")), head.shape or (), _main_dtype(head),
        str(head.key.get("device", {}).get("name", "")), _space(axes, list(trials.values())), trials,
        arguments=head.key.get("problem", {}),
    )  # fmt: skip


def _main_dtype(head: Head) -> str:
    """The dtype that an operation was asked for, else that of the first tensor."""
    arguments = head.key.get("problem", {}).values()
    tensors = (given for given in arguments if isinstance(given, Mapping) and "dtype" in given)
    return head.dtype or str(next(tensors, {}).get("dtype", ""))


def _space(axes: Mapping[str, Sequence[Any]], trials: Sequence[Trial]) -> ConfigSpace:
    """Exactly the recorded configs, with the tunables' values in the order in which they were written down."""
    tunables: dict[str, Tunable] = {name: as_tunable(name, values) for name, values in axes.items()}
    return ConfigSpace(tunables, listed=tuple(trial.config for trial in trials))


def _measured(ms: float) -> Measurement:
    return Measurement((float(ms),), MODE)
