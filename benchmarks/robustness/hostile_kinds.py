"""One healthy file of every kind that this package reads, and how a tune, a search or a command reads it."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from triton_ops import tune
from triton_ops.backend import operation
from triton_ops.benchmark import ConfigCache
from triton_ops.cli.cache import _blocks, _facts, _row
from triton_ops.device import Calibration, DeviceSpec, Machine
from triton_ops.device.calibration import calibration_path
from triton_ops.exceptions import CacheError, LockfileError, RecordingError, RunLogError
from triton_ops.records import (
    RECORDS,
    DirectoryStore,
    LockedDevice,
    LockEntry,
    Lockfile,
    MemoryStore,
    Misses,
    Quarantine,
    Record,
    Run,
    Runs,
)
from triton_ops.records.bundle import export_records, import_records
from triton_ops.records.lock_entry import EntryOrigin as Origin
from triton_ops.records.lock_entry import LockedTiming as Measured
from triton_ops.records.misses import flush_misses
from triton_ops.records.run_log import has_ended
from triton_ops.records.store import open_store
from triton_ops.report.run_facts import Report
from triton_ops.request import TuneProblem
from triton_ops.space import Config
from triton_ops.tuner import Silent
from triton_ops.tuner.priors import transfers_to
from triton_ops.values import Key, Status, TensorSpec, Trial
from triton_ops_lab.recording import read_recording, write_recording

ASKED = 3  # times that each miss is noted: its count is that, or a multiple where a line is repeated
MOST_VISITS = 20  # lines of a run log that are alike
GPU = "NVIDIA H200"


@operation(name="hostile", space={"n": [1, 2]}, arguments=lambda M=8: {"x": TensorSpec((M,), "float32")}, device="cpu")
def hostile(x: Any, *, n: int) -> Any:
    """A call that takes microseconds."""
    return x if n else None


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of file.

    Attributes:
        name: Its name in reports.
        path: Where the file lies.
        read: Reads it as the package does; what is served, by name, and nothing for what is missed or left out.
        refusals: Errors that are documented for a file of this kind that cannot be read.
        sealed: Whether the file carries checksums, so that damage must be noticed.
        bits: Whether each bit is flipped; not so for a file that is of another kind too.
    """

    name: str
    path: Path
    read: Callable[[], dict[str, Any]]
    refusals: tuple[type[Exception], ...] = ()
    sealed: bool = True
    bits: bool = True


def kinds(folder: Path) -> list[Kind]:
    """Healthy files of every kind in `folder`."""
    tune(hostile, cache_dir=folder / "cache", listener=Silent())
    cache = folder / "cache"
    (record,) = open_store(cache)
    [log] = (cache / "runs").rglob("*.jsonl")
    log.write_bytes(_shorter(log.read_bytes()))
    task = TuneProblem(target=hostile, shape=(16,)).request().checked()
    key = Key.of(task.problem, task.kernel.identity, task.device)
    quarantine = folder / "quarantine.jsonl"
    for n in (1, 2, 3):
        Quarantine(quarantine).add(Trial(Config(n=n), Status.CRASH, error="it ended by signal 11"))
    ConfigCache(folder / "configs").set("k", [64, 64], "cuda:0", {"BM": 64, "warps": 4, "on": True, "x": [1.5, None]})
    [config] = (folder / "configs").glob("*.json")
    rates = Calibration(GPU, "580.1", dram_gbps=4000.0, l2_gbps=9000.0, launch_us=2.0, sync_us=9.0,
                        mma_tflops={"bfloat16": 700.0})  # fmt: skip
    calibration = rates.save(folder)
    assert calibration == calibration_path(folder, GPU)
    bundle, recording, tuner = folder / "bundle.json", folder / "recording.json.gz", folder / "tuner.json"
    export_records([record], bundle)
    write_recording(recording, _recording())
    tuner.write_text(json.dumps(_kernel_tuner()))
    lockfile, missed = folder / "lock.json", folder / "missed" / "misses.jsonl"
    _lock().write(lockfile)
    for label in ("one", "two"):
        for _ in range(ASKED):
            Misses(missed.parent).note(replace(key, kernel=label), 1.0)
    flush_misses()
    copied = folder / "copied.jsonl"
    copied.write_bytes(log.read_bytes())
    return [
        Kind(name="record", path=cache / f"{record.id}.record.json", read=lambda: _looked_up(cache, record.id)),
        Kind(name="record of another problem", path=cache / f"{record.id}.record.json",
             read=lambda: _learned(task, key, cache), bits=False),
        Kind(name="run log", path=log, read=lambda: _gone_on(cache, record.id, log), refusals=(RunLogError,)),
        Kind(name="run log as a recording", path=copied, read=lambda: _replayed(copied), refusals=(RecordingError,),
             bits=False),
        Kind(name="quarantine", path=quarantine, read=lambda: _held(quarantine)),
        Kind(name="config", path=config, read=lambda: _config(folder / "configs")),
        Kind(name="calibration", path=calibration, read=lambda: _rates(folder)),
        Kind(name="bundle", path=bundle, read=lambda: _taken(bundle), refusals=(CacheError,)),
        Kind(name="recording", path=recording, read=lambda: _replayed(recording), refusals=(RecordingError,)),
        Kind(name="lockfile", path=lockfile, read=lambda: _pinned(lockfile), refusals=(LockfileError,)),
        Kind(name="misses", path=missed, read=lambda: _missed(missed.parent)),
        Kind(name="Kernel Tuner's cache", path=tuner, read=lambda: _replayed(tuner), refusals=(RecordingError,),
             sealed=False),
    ]  # fmt: skip


def _shorter(log: bytes) -> bytes:
    """A run log with some of its hundreds of equal lines, one for each visit of the last comparison."""
    lines = log.splitlines(keepends=True)
    visits = [line for line in lines if json.loads(line)["type"] == "begun"]
    return b"".join(line for line in lines if line not in visits[MOST_VISITS:])


def _lock() -> Lockfile:
    device = LockedDevice(alias="h200", kind="cuda", name=GPU, arch="sm_90", units=132)
    tensor = {"shape": [32, 64], "dtype": "float16", "stride": [64, 1], "aligned": True}
    entry = LockEntry(
        kernel="add", device="h200", label="32x64", config=Config(BLOCK=32), default=Config(BLOCK=1),
        measured=Measured(cache_state="cold", mode="graph-cold", median_ms=0.5, default_ms=1.0, gain=2.0),
        problem={"x": tensor, "M": 32, "eps": 1e-6}, identity={"source": "a" * 32, "triton": "3.6.0"},
        origin=Origin(record="c" * 32, run="r", created="2026-11-22T08:46:27+00:00", driver="570.1"),
    )  # fmt: skip
    return Lockfile((device,), (entry, replace(entry, kernel="mul")))


def _recording() -> dict[str, Any]:
    rows = [
        {"config": {"BM": bm, "num_warps": 4}, "status": "ok", "compile_s": 0.5, "shared": 1024, "regs": 40,
         "spills": 0, "ms": [[1.0, 1.1, bm / 32, 9.0], [1.0, 1.1, bm / 31, 9.0]], "final": [[1.0, 1.1, bm / 32, 9.0]]}
        for bm in (32, 64, 128)
    ]  # fmt: skip
    rows.append({"config": {"BM": 256, "num_warps": 4}, "status": "OutOfResources: shared", "compile_s": None})
    return {
        "family": "matmul_bf16", "kind": "matmul", "shape": [64, 64, 64], "gpu": GPU, "unit": "ms",
        "space": {"BM": [32, 64, 128, 256], "num_warps": [4]},
        "arguments": {"a": {"shape": [64, 64], "dtype": "bfloat16"}},
        "rows": rows,
    }  # fmt: skip


def _kernel_tuner() -> dict[str, Any]:
    return {
        "device_name": "A100", "kernel_name": "wait", "problem_size": [64, 64], "tune_params_keys": ["a", "b"],
        "tune_params": {"a": [1, 2], "b": [4]},
        "cache": {"1,4": {"a": 1, "b": 4, "time": 1.5}, "2,4": {"a": 2, "b": 4, "time": "InvalidConfig"}},
    }  # fmt: skip


def _looked_up(cache: Path, entry_id: str) -> dict[str, Any]:
    """The record as a hit, an iteration and `show` see it."""
    entry = open_store(cache).get(entry_id)
    entries = list(DirectoryStore(cache, RECORDS, read_only=True))
    for record in entries:
        _facts(record)
        _blocks([_row(record), _row(record)]).printed(80)
        RECORDS.dumps(record)
    return {} if entry is None else {"record": RECORDS.dumps(entry)}


def _learned(task: Any, key: Key, cache: Path) -> dict[str, Any]:
    """The forecasts that a tune of another problem takes from the record and its run log."""
    priors = transfers_to(task, key, open_store(cache), cache)
    configs = list(task.space)
    for prior in priors:
        assert all(0 <= score < math.inf or math.isnan(score) for score in prior.score(configs))
    return {}


def _gone_on(cache: Path, key_id: str, log: Path) -> dict[str, Any]:
    """The trials of the run, as resume, transfer and a report read them."""
    runs = Runs(cache, key_id)
    trials = {str(trial.config): repr(trial) for trial in runs.trials()}
    with contextlib.suppress(RunLogError):
        run = Run.read(log)
        assert all(math.isfinite(at_s + trial.median_ms) for at_s, trial in Report(run).best_so_far)
        runs.unfinished(run.head.space.fingerprint)
        has_ended(log)
    return trials


def _replayed(path: Path) -> dict[str, Any]:
    recording = read_recording(path)
    assert math.isfinite(recording.best_ms)
    assert len(recording.compiled) in (0, len(recording.trials))
    return {str(config): repr(trial) for config, trial in recording.trials.items()}


def _held(path: Path) -> dict[str, Any]:
    quarantine = Quarantine(path)
    quarantined = {config: quarantine.held(config) for config in (Config(n=n) for n in range(10))}
    assert len(quarantine) >= sum(trial is not None for trial in quarantined.values())
    return {str(config): repr(trial) for config, trial in quarantined.items() if trial is not None}


def _config(folder: Path) -> dict[str, Any]:
    cache = ConfigCache(folder)
    entry = cache.get("k", [64, 64], "cuda:0")
    cache.get_all_keys()
    return {} if entry is None else {"config": entry}


def _rates(folder: Path) -> dict[str, Any]:
    calibration = Calibration.load(folder, GPU)
    spec = DeviceSpec.named(GPU)
    assert spec is not None
    Machine.of(replace(spec, calibration=calibration))
    return {} if calibration is None else {"rates": calibration}


def _taken(bundle: Path) -> dict[str, Any]:
    store: MemoryStore[Record] = MemoryStore(RECORDS)
    import_records(bundle, store)
    return {record.id: RECORDS.dumps(record) for record in store}


def _pinned(path: Path) -> dict[str, Any]:
    """Entries by place, as a look-up and `triton-ops lock` read them."""
    lock = Lockfile.read(path)
    for entry in lock.entries:
        device = next(asdict(one) for one in lock.devices if one.alias == entry.device)
        key = Key(kernel=entry.kernel, problem=entry.problem, identity=entry.identity, device=device, cache_state="")
        lock.find(key)
        lock.why_not(key)
    return {"lock": lock.text}


def _missed(folder: Path) -> dict[str, Any]:
    """Misses by key; a line that is there twice counts twice, which no checksum of a line can tell."""
    with_fields = msgspec.structs.replace
    return {miss.key.id: repr(with_fields(miss, count=miss.count % ASKED)) for miss in Misses(folder).read()}
