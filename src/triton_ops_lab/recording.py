"""Recordings: the times of all configs of a space, read from any of three forms of files.

1. Recordings of `triton-ops record`: JSON, usually gzipped, with `space` and `rows`; see docs/reference/files.md.
2. Kernel Tuner's cache files: JSON with `tune_params` and `cache`. A file that was cut off before its end counts as
   whole.
3. This project's run logs: JSON lines. The space is then exactly the configs that were tried.

A single pass is not reliable: the fastest config of one pass can be several percent slower than the best. The finalists
of each pass are measured side by side as in every tune, and these times replace those of the screening.
"""

from __future__ import annotations

import gzip
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from triton_ops.backend import Operation
from triton_ops.base import Count, Extent, Host, NamedFile, NotNegative, Sealed, cached_property
from triton_ops.compilation import CompilePool
from triton_ops.cost_model import AttentionTiles, ElementTiles, GemmTiles, ProductTiles, Readings, RowTiles
from triton_ops.device import DeviceSpec, Machine
from triton_ops.exceptions import RecordingError, SpaceError, TargetError, TritonKernelError
from triton_ops.kernel_ir import KernelWork
from triton_ops.records import Run
from triton_ops.request import Effort
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner import Survey, tune
from triton_ops.values import ITEM_BYTES, Argument, Compiled, Resources, Status, Trial, Work, dtype_name
from triton_ops_lab.ranking import UNHURRIED, ModelQuestion


def record(
    operation: Operation, space: Any = None, shape: Sequence[int] | None = None, dtype: str | None = None, *,
    passes: int = 2, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Measure every config of an operation's space; the content of a recording's file.

    The whole space is measured `passes` times, each time from scratch and in another order; `options` are further ones
    of `tune`. `TuningFailedError`: no config ran. `KeyboardInterrupt`: nothing is returned, since a part of a recording
    would look like a small space.
    """
    problem = operation.problem(None if shape is None else tuple(shape), dtype)
    effort = replace(Effort.named("exhaustive"), processes=0)  # which of tied configs wins is no part of a recording
    call = partial(tune, operation, space=space, shape=shape, dtype=dtype, effort=effort, keep=False, **options)
    results = [call(seed=seed).uninterrupted() for seed in range(passes)]
    configs = operation.space_for(problem) if space is None else ConfigSpace.from_user(space)
    passes_trials = [{trial.config: trial for trial in result.trials} for result in results]
    work = None if operation.work is None else operation.work(problem)
    inferred = _inferred(operation, configs, shape, dtype, results[0].device)
    # Shapes, dtypes, words and flags decide the distance to other problems (`ProblemPlace` of `search`).
    tensors = {name: {"shape": list(spec.shape), "dtype": spec.dtype} for name, spec in problem.specs.items()}
    choices = {name: value for name, value in problem.arguments if isinstance(value, (str, bool))}
    return {
        "family": "_".join(filter(None, [operation.name, dtype or (operation.dtypes[0] if operation.dtypes else "")])),
        "kind": operation.name, "shape": list(operation.full_shape(None if shape is None else tuple(shape))),
        "space": {name: list(tunable.values) for name, tunable in configs.tunables.items()},
        "arguments": {**tensors, **choices}, "gpu": results[0].device, **Host.versions(), "unit": "ms",
        "quantiles": ["min", "p20", "p50", "p80"],
        **({} if work is None else {"flops": work.flops, "bytes": work.bytes, "work": work_json(work)}),
        **({} if inferred is None else {"inferred": inferred}),
        "rows": [
            _row(config, [trials[config] for trials in passes_trials if config in trials])
            for config in dict.fromkeys(config for trials in passes_trials for config in trials)
            if config in configs
        ],
    }  # fmt: skip


def _inferred(
    operation: Operation, space: ConfigSpace, shape: Sequence[int] | None, dtype: str | None, device: str | None
) -> dict[str, Any] | None:
    """The readings of the kernel, for replays; None where nothing can be told."""
    spec = DeviceSpec.named(device or "")
    machine = Machine.of(spec)
    if spec is None or machine is None:
        return None
    expected = ModelQuestion.of(operation, space=space, shape=shape, dtype=dtype)
    try:
        with CompilePool(expected.compiler(spec)) as pool:
            readings = expected.readings(Survey.considered(expected.space), pool, machine, UNHURRIED)
    except TargetError:  # such as a function that is not compiled
        return None
    return None if readings.silent else stored_readings(readings)


def stored_readings(readings: Readings) -> dict[str, Any]:
    """Readings as plain values for a recording; `readings_from` reads them back."""
    works = [
        {"values": [value for _, value in key], "work": msgspec.to_builtins(work)}
        for key, work in readings.works.items()
    ]
    return {"names": list(readings.names), "works": works}


def readings_from(plain: Mapping[str, Any]) -> Readings:
    """The readings that `stored_readings` made `plain` of; `SpaceError` if they cannot be read."""
    errors = LookupError, OSError, TypeError, ValueError
    with SpaceError.when("what was read of the kernel cannot be read again", "", *errors):
        readings = Readings(tuple(str(name) for name in plain["names"]))
        for row in plain["works"]:
            config = Config.from_json(dict(zip(readings.names, row["values"], strict=True)))
            readings.works[readings.key(config)] = Sealed.typed(row["work"], KernelWork)
    return readings


def write_recording(path: Path, content: Mapping[str, Any]) -> None:
    """Write a recording as gzipped JSON with its checksum, whole or not at all; equal content gives equal bytes."""
    rest = {name: value for name, value in content.items() if name != Sealed.CHECKSUM}  # of a recording that was read
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file:
        file.write(json.dumps(Sealed(rest)).encode())
    with RecordingError.when(f"{path} cannot be written", hint="name a file in a folder that can be written"):
        NamedFile(path).write(packed.getvalue())


def _row(config: Config, trials: Sequence[Trial]) -> dict[str, Any]:
    failed = next((trial for trial in trials if not trial.ok), None)
    first = failed or trials[0]
    resources = first.resources
    row: dict[str, Any] = {
        "config": dict(config), "status": "ok" if failed is None else f"{failed.status}: {failed.error}",
        "compile_s": trials[0].compile_s, "shared": resources and resources.shared_bytes,
        "regs": resources and resources.registers, "spills": resources and resources.spill_bytes,
        **({} if resources is None or resources.serialised is None else {"serialised": resources.serialised}),
    }  # fmt: skip
    times = {"ms": [trial.measurement for trial in trials], "final": [trial.final for trial in trials]}
    for name, several in times.items() if failed is None else ():
        quantiles = [(min(it.samples_ms), it.p20_ms, it.median_ms, it.p80_ms) for it in several if it is not None]
        if quantiles:
            row[name] = [[round(ms, 6) for ms in each] for each in quantiles]
    return row


MODE = "recorded"
_RUN_LINE = b'{"type":'  # the beginning of a run log
_WORD_BYTES = 4  # the first recordings, which do not name Python, count spilled registers instead of bytes
_CACHE_NAME = b'"tune_params"'  # a name in every cache file of Kernel Tuner
_UNREADABLE = (
    ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError,
)  # fmt: skip

_FAILURES = {
    "CompilationFailedConfig": Status.COMPILE,
    "InvalidConfig": Status.CONSTRAINT,
    "RuntimeFailedConfig": Status.RUNTIME,
}  # Kernel Tuner's words


_Quantiles: TypeAlias = Annotated[list[NotNegative], msgspec.Meta(min_length=3)]


class _Row(msgspec.Struct, frozen=True):
    config: Config
    status: str
    compile_s: NotNegative | None = None
    shared: Count | None = None
    regs: Count | None = None
    spills: Count | None = None
    serialised: bool | None = None
    ms: list[_Quantiles] = []
    final: list[_Quantiles] = []


class _RecordingFile(msgspec.Struct, frozen=True):
    """The parts of a recording of `triton-ops record` that are read here."""

    family: str
    shape: tuple[Extent, ...]
    gpu: str
    space: dict[str, list[Any]]
    rows: list[_Row]
    arguments: dict[str, Argument] = {}
    python: str = ""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One kernel on one problem and device, with every config of its space measured.

    Kernel (without shape and dtype), problem, dtype, device and arguments are empty where the file does not tell.
    """

    file: str
    kernel: str
    problem: tuple[int, ...]
    dtype: str
    device: str
    space: ConfigSpace  # of exactly the recorded configs
    trials: Mapping[Config, Trial]
    head: Mapping[str, Any] = field(default_factory=dict)  # the file's content without its configs
    arguments: Mapping[str, Any] = field(default_factory=dict)  # as a key describes them

    @property
    def title(self) -> str:
        """The kernel, its problem and its dtype, as far as the file tells."""
        return " ".join(filter(None, (self.kernel, "x".join(map(str, self.problem)), self.dtype)))

    def work(self, *, undeclared: bool) -> Work | Readings | None:
        """The work of the kernel, declared unless that is passed over, or read; None if the file does not tell.

        `SpaceError`: it cannot be read.
        """
        declared = None if undeclared else recorded_work(self.head)
        if declared is not None and declared.tiles is not None:
            return declared
        plain = self.head.get("inferred")
        return readings_from(plain) if isinstance(plain, Mapping) else None

    @cached_property
    def best_ms(self) -> float:
        """Milliseconds of the fastest config."""
        return min(trial.median_ms for trial in self.trials.values() if trial.ok)

    @cached_property
    def compiled(self) -> Mapping[Config, Compiled]:
        """The compiler's result for each config; empty if the file has no figures of the compiler."""
        if all(trial.resources is None or trial.resources.registers is None for trial in self.trials.values()):
            return {}
        machine = Machine.of(DeviceSpec.named(self.device))
        return {config: _compilation(trial).with_residents(machine) for config, trial in self.trials.items()}


def read_recording(path: Path) -> Recording:
    """The recording, with a config that ran, in a file of any of the three forms; else `RecordingError`."""
    with RecordingError.when(f"{path} cannot be read", "give a file"):
        content = NamedFile(path).read(unpack=True)
    try:
        recording = _recording(path, content)
    except TritonKernelError as error:
        raise RecordingError(f"{path} is no recording: {error.message}", hint=error.hint) from error
    except _UNREADABLE as error:
        hint = "give a file of `triton-ops record`, a run log, or a cache file of Kernel Tuner"
        raise RecordingError(f"{path} is no recording: {type(error).__name__}: {error}", hint=hint) from error
    if not any(trial.ok for trial in recording.trials.values()):
        raise RecordingError(f"{path} holds no config that ran", hint="give a recording with at least one time")
    return recording


def _recording(path: Path, content: bytes) -> Recording:
    if content.startswith(_RUN_LINE):
        return recording_of(Run.of(path, content.split(b"\n")[:-1]))
    if _CACHE_NAME in content:
        Sealed.check_size(content)
        text = content.decode()
        try:
            return _of_cache(path.name, json.loads(text))
        except json.JSONDecodeError:  # Kernel Tuner closes the JSON only at the very end
            return _of_cache(path.name, json.loads(text.rstrip().rstrip(",") + "}}"))
    plain = Sealed.parsed(content)
    return _of_rows(path.name, Sealed.opened(plain) if Sealed.CHECKSUM in plain else plain)


def _of_rows(name: str, content: Mapping[str, Any]) -> Recording:
    file = Sealed.typed(content, _RecordingFile, Config.decode)
    unit_bytes = 1 if file.python else _WORD_BYTES
    trials = [_row_trial(row, unit_bytes) for row in file.rows]
    kernel, dtype = _family(file.family)
    return Recording(
        file=name, kernel=kernel, problem=file.shape, dtype=dtype, device=file.gpu, space=_space(file.space, trials),
        trials={trial.config: trial for trial in trials},
        head={name: value for name, value in content.items() if name != "rows"}, arguments=file.arguments,
    )  # fmt: skip


def _family(name: str) -> tuple[str, str]:
    """The kernel and the dtype in a name such as `matmul_bf16`; a name without a dtype is the kernel's alone."""
    for length in (2, 1):  # float8_e4m3fn is a dtype of two words
        words = name.rsplit("_", length)
        try:
            return words[0], dtype_name("_".join(words[1:]))
        except TritonKernelError:  # it is no dtype
            continue
    return name, ""


def _row_trial(row: _Row, unit_bytes: int) -> Trial:
    spilled = None if row.spills is None else row.spills * unit_bytes
    resources = Resources(row.regs, spilled, row.shared, serialised=row.serialised)
    fields: dict[str, Any] = {"resources": resources, "compile_s": row.compile_s}
    if row.status == "ok":
        finals = [quantiles[2] for quantiles in row.final]  # measured side by side: the best estimate
        ms = statistics.median(finals) if finals else min(quantiles[2] for quantiles in row.ms)
        return Trial.of_time(row.config, ms, MODE, **fields)
    word = row.status.partition(":")[0]
    status = next((each for each in Status if each.value == word), Status.RUNTIME)
    return Trial(row.config, Status.RESOURCES if word == "OutOfResources" else status, error=row.status, **fields)


def _compilation(trial: Trial) -> Compiled:
    """The part of a trial that was known before its launch; a config that failed later did compile."""
    was_known = trial.status.facts.refused or trial.status is Status.DEFERRED
    status, reason = (trial.status, trial.error) if was_known else (Status.OK, "")
    return Compiled(trial.config, status, reason, trial.resources, compile_s=trial.compile_s)


def _of_cache(name: str, content: Mapping[str, Any]) -> Recording:
    names = content["tune_params_keys"]
    trials = []
    for row in content["cache"].values():
        config, time = Config.from_json({name: row[name] for name in names}), row["time"]
        if isinstance(time, str) or time == 1e20:  # of any failure before it had these words
            trials.append(Trial(config, _FAILURES.get(time, Status.RUNTIME), error=str(time)))
        else:
            trials.append(Trial.of_time(config, time, MODE))
    size = content.get("problem_size", ())
    problem = tuple(size) if isinstance(size, (list, tuple)) else (size,)
    return Recording(
        file=name, kernel=content.get("kernel_name", ""), problem=problem, dtype="",
        device=content.get("device_name", ""),
        space=_space({key: content["tune_params"][key] for key in names}, trials),
        trials={trial.config: trial for trial in trials},
    )  # fmt: skip


def recording_of(run: Run) -> Recording:
    """The recording of the configs of a run's space; unlike `read_recording` also of a log in which none ran."""
    head, names = run.head, run.head.space.tunables.keys()
    trials = {it: trial for it, trial in run.trials.items() if not it.keys() > names}  # limits of registers are in none
    tensors = (argument for argument in head.key.problem.values() if isinstance(argument, dict))
    dtypes = (tensor["dtype"] for tensor in tensors if "dtype" in tensor)
    tunables = head.space.tunables
    axes = {name: [Config.from_json({name: value})[name] for value in values] for name, values in tunables.items()}
    dtype = head.dtype or next(dtypes, "")  # that was asked for, or of the first tensor
    return Recording(
        file=run.path.name, kernel=head.key.kernel, problem=head.shape or (), dtype=dtype,
        device=str(head.key.device.get("name", "")), space=_space(axes, list(trials.values())), trials=trials,
        arguments=head.key.problem,
    )  # fmt: skip


def _space(axes: Mapping[str, Sequence[Any]], trials: Sequence[Trial]) -> ConfigSpace:
    """A space of exactly the recorded configs; the tunables' values keep the order of the file."""
    return ConfigSpace(axes, listed=tuple(trial.config for trial in trials))


# Tiles are named as recordings name them: BM by BN elements of the result, and steps of BK.
_FAMILIES: dict[str, type[Any]] = {
    "gemm": GemmTiles, "products": ProductTiles, "attention": AttentionTiles, "rows": RowTiles,
    "elements": ElementTiles,
}  # fmt: skip


def work_json(work: Work) -> dict[str, Any]:
    """A work as plain values for a recording; `work_of` reads them back.

    The user's own tiles are left out, because a recording may be read where their class is unknown.
    """
    plain: dict[str, Any] = {"flops": work.flops, "bytes": work.bytes}
    for family, kind in _FAMILIES.items():
        if isinstance(work.tiles, kind):
            plain["tiles"] = {"family": family, **asdict(work.tiles)}
    return plain


def work_of(plain: Mapping[str, Any]) -> Work:
    """The work that `work_json` wrote; `SpaceError` for an unknown family, or one that lacks a field."""
    tiles = dict(plain.get("tiles") or {})
    if (family := tiles.pop("family", None)) is None:
        return Work(plain.get("flops", 0.0), plain.get("bytes", 0.0))
    if family not in _FAMILIES:
        message = f"tiles of family {family!r} are not known; known are {', '.join(_FAMILIES)}"
        raise SpaceError(message, hint="leave the tiles out; the model then makes no forecast")
    with SpaceError.when(f"tiles of family {family} cannot be read", ""):
        return Work(plain.get("flops", 0.0), plain.get("bytes", 0.0), Sealed.typed(tiles, _FAMILIES[family]))


_WIDE = "bfloat16"  # dtype of what products of 8-bit operands write


def _product_tiles(rows: int, columns: int, inner: int, dtype: str, group: str) -> GemmTiles:
    """The tiles of C[rows, columns] = A[rows, inner] @ B[inner, columns]; 8-bit matrix units want B along `inner`."""
    eight_bit = ITEM_BYTES[dtype] == 1
    return GemmTiles(
        rows, columns, inner, dtype=dtype, out_dtype=_WIDE if eight_bit else dtype,
        tile_rows="BM", tile_columns="BN", tile_inner="BK", group=group, b_along_inner=eight_bit,
    )  # fmt: skip


def _product_work(tiles: GemmTiles) -> Work:
    item, out = ITEM_BYTES[tiles.dtype], ITEM_BYTES[tiles.out_dtype]
    traffic = (tiles.rows + tiles.columns) * tiles.inner * item + tiles.rows * tiles.columns * out
    return Work(2.0 * tiles.rows * tiles.columns * tiles.inner, float(traffic), tiles)


def _row_work(rows: int, columns: int, dtype: str, tile_rows: str, tile_columns: str, weight: float = 1.0) -> Work:
    """The work of rows that are each read, reduced and written, as in a norm."""
    tiles = RowTiles(
        rows, columns, dtype=dtype, out_dtype=dtype, tile_rows=tile_rows, tile_columns=tile_columns, weight=weight
    )
    return Work(0.0, 2.0 * rows * columns * ITEM_BYTES[dtype], tiles)


def product_work(M: int, N: int, K: int, dtype: str) -> Work:  # noqa: N803 - as users name them
    """The work of a textbook's matrix product."""
    product = _product_tiles(M, N, K, dtype, "GROUP_M")
    return replace(_product_work(product), tiles=ProductTiles(product))


def row_work(rows: int, columns: int, dtype: str) -> Work:
    """The work of a textbook's norm over rows."""
    return _row_work(rows, columns, dtype, "BM", "BN")


def attention_work(batch: int, heads: int, queries: int, head_dim: int, dtype: str) -> Work:
    """The work of a textbook's attention, with as many keys as queries."""
    tiles = AttentionTiles(batch * heads, queries, queries, head_dim, dtype=dtype, tile_queries="BM", tile_keys="BN")
    elements = batch * heads * queries * head_dim
    return Work(4.0 * elements * queries, 4.0 * elements * ITEM_BYTES[dtype], tiles)


_SOFTMAX_WEIGHT = 2.0  # arithmetic of a softmax over that of a norm: an exponential and a running maximum more


def recorded_work(recording: Mapping[str, Any]) -> Work | None:
    """The work of a recording's head, declared or by its kind; None for an unknown one, `SpaceError` if unreadable."""
    if declared := recording.get("work"):
        return work_of(declared)
    kind, space = recording.get("kind"), recording.get("space") or {}
    shape = [int(extent) for extent in recording.get("shape") or ()]
    if kind in ("matmul", "fp8") and len(shape) == 3 and {"BM", "BN", "BK"} <= set(space):
        dtype, group = "float8_e4m3fn" if kind == "fp8" else "bfloat16", "GM" if "GM" in space else "GROUP_M"
        rows, columns, inner = shape
        return _product_work(_product_tiles(rows, columns, inner, dtype, group))
    if kind in ("rms", "softmax") and len(shape) == 2 and {"BLOCK", "ROWS"} <= set(space):
        rows, columns = shape
        weight = _SOFTMAX_WEIGHT if kind == "softmax" else 1.0
        return _row_work(rows, columns, "bfloat16", "ROWS", "BLOCK", weight)
    return None
