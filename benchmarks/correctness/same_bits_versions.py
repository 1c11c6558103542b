"""Whether a class of bits that is pinned under one version of Triton has the same bits under another.

    python -m benchmarks.correctness.same_bits_versions --out pinned.json  # under the first version; on a GPU
    python -m benchmarks.correctness.same_bits_versions --out FILE --pinned pinned.json  # under the second one
    python -m benchmarks.correctness.same_bits_versions --without-gpu --kernels softmax  # names of classes alone

First each kernel of `same_bits_tuned` is tuned freely, and the class of its winner locked. This runs on 200 inputs that
are drawn by their seeds, of which a third have outliers and a third numbers of all sizes, and a digest of all bits that
it writes is kept for each. The second run tunes within the class that each lockfile pins. On how many inputs the bits
are those of the first run is told of its `winner`, of the config that was `pinned`, and of the `default` beside them;
then these three run interleaved, with L2 cold. Where no config has the pinned class, `carried` is false, and the notes
of the tune say why. Classes of all configs are told by both runs, and compared by name. `--resume` goes on with a file
of the same versions; each row has the commits of its runs.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.correctness.same_bits_tuned import TUNED, Tuned
from benchmarks.correctness.same_bits_winners import LAST_ROUNDS, bits_of, compiled, drawn_anew, times_ms, tuned
from benchmarks.document import headed, parser_of, save
from triton_ops.backend import Arguments, CandidateError, Executable
from triton_ops.device import Turns, probe
from triton_ops.dispatch import use_lockfile
from triton_ops.exceptions import TritonKernelError
from triton_ops.records import LockEntry, LockPlan, lock_of, matching
from triton_ops.space import Config
from triton_ops.timing import EventTimer, Timer

Fact = dict[str, Any]
_HEAD = ("date", "command", "commit", "versions", "gpu")
_LONG = ("digests", "lockfile", "classes")


class Job(NamedTuple):
    """A kernel of the first run, or, with the row that it had there, of the second; `facts` are of its configs."""

    name: str
    facts: Sequence[Fact]
    before: Fact | None
    inputs: int
    budget_s: float
    on_gpu: bool
    until: float  # seconds since 1970


def main(argv: list[str] | None = None) -> int:
    """Pin the classes of the kernels that are named, or tune within those that are pinned; save after each."""
    parser = parser_of(__doc__, Path("same_bits_versions.json"))
    parser.add_argument("--pinned", type=Path, help="the file of the first run")
    parser.add_argument("--kernels", nargs="*", default=[*TUNED], choices=[*TUNED], help="which kernels")
    parser.add_argument("--inputs", type=int, default=200, help="inputs on which bits are compared")
    parser.add_argument("--budget-s", type=float, default=20.0, help="seconds of each tune, which most do not need")
    parser.add_argument("--limit-s", type=float, default=280.0, help="begin no kernel after so many seconds")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes, also that compile")
    parser.add_argument("--target", default="sm_90", help="the GPU's architecture")
    parser.add_argument("--resume", action="store_true", help="leave out kernels that the file holds already")
    parser.add_argument("--without-gpu", action="store_true", help="names of classes alone")
    options = parser.parse_args(argv)
    pinned = None if options.pinned is None else json.loads(options.pinned.read_text("utf-8"))
    document = headed(
        f"python -m {__spec__.name}{' --pinned FILE' * (pinned is not None)}", options.commit,
        gpu=None if options.without_gpu else torch.cuda.get_device_name(),
        pinned=None if pinned is None else {name: pinned[name] for name in _HEAD}, summary={}, kernels={},
    )  # fmt: skip
    if options.resume:
        document["kernels"] = begun(options.out, document)
    for name, row in worked(options, pinned and pinned["kernels"], document["kernels"]):
        document["kernels"][name] = commits_of(document) | row
        document["summary"] = {} if pinned is None else summary_of(document["kernels"])
        print(name, {key: value for key, value in row.items() if key not in _LONG}, flush=True)
        save(options.out, document)
    return 0


def begun(path: Path, document: Fact) -> dict[str, Fact]:
    """The rows of an earlier run with the same versions, but for those that an error ended."""
    old: Fact = json.loads(path.read_text("utf-8")) if path.is_file() else {"versions": None, "kernels": {}}
    same = old["versions"] == document["versions"]
    if document["pinned"] is not None:
        same = same and old["pinned"]["versions"] == document["pinned"]["versions"]
    rows = old["kernels"] if same else {}
    return {name: commits_of(old) | row for name, row in rows.items() if "error" not in row}


def commits_of(document: Fact) -> Fact:
    """The commit of a run, and that of the one before it."""
    pinned = document["pinned"]
    return {"commit": document["commit"]} | ({} if pinned is None else {"pinned_commit": pinned["commit"]})


def worked(options: Any, before: Mapping[str, Fact] | None, there: Mapping[str, Fact]) -> Iterator[tuple[str, Fact]]:
    """Each kernel that is not there yet with its row, as soon as it has one."""
    names = [name for name in options.kernels if name not in there and (before is None or name in before)]
    until, running = time.time() + options.limit_s, dict[Future[Fact], str]()
    context = multiprocessing.get_context("spawn")
    # A process has one kernel, so that one that leaves its GPU in an error is not met by the next.
    with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=1) as pool:
        for name, facts in compiled(names, options.jobs, options.target):
            if time.time() > until:
                break
            row = None if before is None else before[name]
            job = Job(name, facts, row, options.inputs, options.budget_s, not options.without_gpu, until)
            running[pool.submit(row_of, job)] = name
            yield from ended(running, [future for future in running if future.done()])
        yield from ended(running, as_completed(list(running)))


def ended(running: dict[Future[Fact], str], futures: Iterable[Future[Fact]]) -> Iterator[tuple[str, Fact]]:
    """Those that had the time to run, which are running no more."""
    for future in futures:
        name, row = running.pop(future), future.result()
        if row:
            yield name, row


def row_of(job: Job) -> Fact:
    """What a run tells of a kernel, and the error that ended this; nothing after the limit."""
    if time.time() > job.until:
        return {}
    classes = [fact["class"] if fact.get("silent") == "" else "" for fact in job.facts]
    row: Fact = {"classes": classes} if job.before is None else named_alike(job.before["classes"], classes)
    try:
        if job.on_gpu:
            run = TUNED[job.name], job.inputs, job.budget_s
            row |= pinned(*run) if job.before is None else kept(*run, job.before, classes)
    except (TritonKernelError, CandidateError, torch.cuda.OutOfMemoryError) as error:
        row["error"] = f"{type(error).__name__}: {error}"[-400:]
    return row


def named_alike(before: Sequence[str], now: Sequence[str]) -> Fact:
    """Of how many configs both runs tell the class, and of how many of these it has the same name."""
    told = [pair for pair in zip(before, now, strict=True) if all(pair)]
    return {"configs": len(now), "told": len(told), "same_names": sum(one == other for one, other in told)}


def pinned(case: Tuned, inputs: int, budget_s: float) -> Fact:
    """The lockfile of a free tune, and the digests of what its winner writes."""
    row = locked(case, budget_s)
    if not row["lockfile"]:
        return {**row, "error": f"nothing is pinned: {row['tune']['notes']}"}
    with on_gpu(case) as arguments:
        run = case.operation.kernel.compile(Config(row["tune"]["config"]), arguments)
        return {**row, **digests(run, arguments, inputs)}


def locked(case: Tuned, budget_s: float) -> Fact:
    """A free tune, and the lockfile that pins the class of its winner; empty where that has none."""
    with tempfile.TemporaryDirectory() as folder:
        tune = tuned(case, None, budget_s, folder)
        lock, _ = lock_of(matching(None, folder), LockPlan(unproven=True, same_bits=True))
    return {"tune": tune, "lockfile": lock.text if lock.entries else ""}


def kept(case: Tuned, inputs: int, budget_s: float, before: Fact, classes: Sequence[str]) -> Fact:
    """A tune within the class that is pinned, and how its winner stands to the bits of the first run."""
    entry, tune = within(case, before["lockfile"], budget_s)
    carried = tune["class"] == entry.bits
    sizes = {"before": before["classes"].count(entry.bits), "now": classes.count(entry.bits)}
    row = {"pinned_class": entry.bits, "of_class": sizes, "carried": carried, "tune": tune}
    configs = {"winner": Config(tune["config"]), "pinned": entry.config, "default": case.configs[0]}
    with on_gpu(case) as arguments:
        return {**row, **compared(case, configs, arguments, inputs, before, EventTimer(cache="cold"))}


def within(case: Tuned, lockfile: str, budget_s: float) -> tuple[LockEntry, Fact]:
    """The entry of a lockfile, and a tune within its class."""
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder, "lock.json")).write_text(lockfile, "utf-8")
        lock = use_lockfile(file)
        assert lock is not None
        return lock.entries[0], tuned(case, "lockfile", budget_s, str(Path(folder, "records")))


@contextmanager
def on_gpu(case: Tuned) -> Iterator[Arguments]:
    """The arguments of a kernel, the same in every run, and the turn of the GPU."""
    torch.manual_seed(0)  # of labels and indices
    with Turns("cuda").turn(Turns.key_of(probe("cuda"), "cuda")):
        yield case.operation.materialise(case.problem, "cuda")


def compared(
    case: Tuned, configs: Mapping[str, Config], arguments: Arguments, inputs: int, before: Fact, timer: Timer
) -> Fact:
    """On how many inputs configs write the bits of the first run, and their times; other inputs are an error."""
    run = {config: case.operation.kernel.compile(config, arguments) for config in {*configs.values()}}
    found = {config: digests(each, arguments, inputs) for config, each in run.items()}
    if any(each["given"] != before["given"] for each in found.values()):
        return {"error": "the inputs are others than in the first run"}
    ms = times_ms(run, arguments, timer, LAST_ROUNDS)
    pairs = {config: zip(each["digests"], before["digests"], strict=True) for config, each in found.items()}
    equal = {config: sum(one == other for one, other in each) for config, each in pairs.items()}
    return {
        "inputs": inputs, "configs_run": {name: dict(config) for name, config in configs.items()},
        "equal_bits": {name: equal[config] for name, config in configs.items()},
        "ms": {name: ms[config] for name, config in configs.items()},
    }  # fmt: skip


def digests(run: Executable, arguments: Arguments, count: int) -> Fact:
    """A digest of all bits that a launch writes for each input, and one of the last inputs themselves."""
    written, launch = [arguments.keyword[name] for name in run.outputs], run.bind(arguments)
    given = [value for name, value in arguments.keyword.items()
             if isinstance(value, torch.Tensor) and name not in run.outputs]  # fmt: skip
    found = [digest(bits_of(launch, written)) for _ in drawn_anew(arguments, run.outputs, count)]
    last = digest([value.flatten().view(torch.uint8) for value in given])
    return {"digests": torch.stack(found).tolist(), "given": int(last)}


def digest(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of bytes times odd weights of 64 bits, modulo 2**64, which is exact in any order; one number."""
    sums = []
    for nth, part in enumerate(parts):
        generator = torch.Generator(part.device).manual_seed(nth)
        weights = torch.randint(-(1 << 63), (1 << 63) - 1, part.shape, device=part.device, generator=generator)
        sums.append((part * (weights | 1)).sum())
    return torch.stack(sums).sum()


def summary_of(rows: Mapping[str, Fact]) -> Fact:
    """What all kernels say together; `speed` is that of winners over the configs that were pinned, a mean."""
    ran = [row for row in rows.values() if "equal_bits" in row]
    carried = [row for row in ran if row["carried"]]
    speeds = [row["ms"]["pinned"] / row["ms"]["winner"] for row in carried]
    equal = {name: sum(row["equal_bits"][name] == row["inputs"] for row in carried) for name in ("winner", "default")}
    return {
        "kernels": len(rows), "measured": len(ran), "carried": len(carried), "equal_in_every_bit": equal,
        "other_winners": sum(row["configs_run"]["winner"] != row["configs_run"]["pinned"] for row in carried),
        "speed": statistics.geometric_mean(speeds) if speeds else None,
        **{name: sum(row[name] for row in rows.values()) for name in ("configs", "told", "same_names")},
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
