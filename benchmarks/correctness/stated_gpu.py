"""Statements of the documents about GPUs, each shown on the one that is here, in a process of its own.

    python -m benchmarks.correctness.stated_gpu --out benchmarks/results/nvidia-h100-80gb-hbm3/stated.json
    python -m benchmarks.correctness.stated_gpu --only maxnreg row_keys --limit-s 120

Each row has the statement, whether it holds, and the figures; a process that fails is a row with its last line. The
exit code is 1 where a statement does not hold. Rows of earlier runs of the same file stay unless they are run again.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import triton_ops
import triton_ops_kernels as kernels
from benchmarks.document import headed, parser_of, save
from benchmarks.tuning import bucket_regret
from triton_ops import tune
from triton_ops.device import probe
from triton_ops.timing import Arm, Launch, Rounds
from triton_ops.timing.gpu_timers import EventTimer
from triton_ops.timing.timer import EventClock
from triton_ops.tuner import Silent
from triton_ops_torch.compiler_output import CompilerLog

Row = dict[str, Any]
_TIMEOUT_S = 120
_CALLS = 200
_AUTOTUNE = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}


def row(statement: str, holds: bool, **figures: Any) -> Row:
    """What a process tells of its statement."""
    return {"statement": statement, "holds": bool(holds), **figures}


def linear_relu() -> tuple[torch.nn.Module, torch.Tensor]:
    """A product of matrices with an epilogue."""
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU()).cuda().bfloat16().eval()
    return model, torch.randn(256, 1024, device="cuda", dtype=torch.bfloat16)


def kernels_of(options: dict[str, Any]) -> list[str]:
    """The names of the kernels that one call of the compiled model launches."""
    model, x = linear_relu()
    with torch.no_grad():
        compiled = torch.compile(model, options=options)
        compiled(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            compiled(x)
            torch.cuda.synchronize()
    return [event.name for event in profile.events() if "mem" not in event.name.lower()]


def epilogue_fusion() -> Row:
    """Fewer launches with an epilogue fused into the product."""
    options = {**_AUTOTUNE, "benchmark_epilogue_fusion": False}  # else a fusion that is slower here is not made
    fused, apart = (kernels_of({**options, "epilogue_fusion": fusion}) for fusion in (True, False))
    return row("a product with a ReLU is one launch fused, and more without", len(fused) < len(apart),
               fused=fused, apart=apart)  # fmt: skip


def gemm_backends() -> Row:
    """The source of the winner follows the back ends that may be asked."""
    aten, triton = (kernels_of({**_AUTOTUNE, "max_autotune_gemm_backends": name}) for name in ("ATEN", "TRITON"))
    holds = not any("triton_tem" in name for name in aten) and any("triton" in name for name in triton)
    return row("ATEN alone gives a library's kernel, TRITON alone a template's", holds, aten=aten, triton=triton)


def warm_caches() -> Row:
    """A second process compiles faster where it finds the first one's caches."""
    with tempfile.TemporaryDirectory() as folder:
        program = (
            "import time, torch\nfrom benchmarks.correctness.stated_gpu import linear_relu\nmodel, x = linear_relu()\n"
            "start = time.monotonic()\nwith torch.no_grad(): torch.compile(model, mode='max-autotune-no-cudagraphs')(x)"
            "\ntorch.cuda.synchronize()\nprint(time.monotonic() - start)"
        )
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}
        seconds = [float(_output([sys.executable, "-c", program], environment)) for _ in range(2)]
    return row("a second process with the first one's caches compiles faster", seconds[1] < seconds[0], seconds=seconds)


def events_and_wall() -> Row:
    """Back-to-back calls of a compiled model take the same by a pair of events and by the wall clock."""
    model, x = torch.compile(torch.nn.Linear(4096, 4096).cuda().bfloat16().eval()), None
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        for _ in range(20):
            model(x)
        pairs = [_both_clocks(lambda: model(x)) for _ in range(9)]
    shares = [events / wall for events, wall in pairs]
    share = statistics.median(shares)
    return row("a pair of events and the wall clock agree within 5 %", abs(share - 1) <= 0.05, events_over_wall=shares)


def _both_clocks(call: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds of many calls by the clock of `torch modes`, a pair of events, and by the wall clock."""
    clock = EventClock("cuda")
    begin, start = clock(), time.perf_counter()
    for _ in range(_CALLS):
        call()
    return (clock() - begin) / 1e6, 1e3 * (time.perf_counter() - start)


def recorded_again() -> Row:
    """A CUDA graph whose weights have moved is recorded again, which the reader of the compiler's log tells."""
    program = (
        "import torch\nfrom benchmarks.correctness.stated_gpu import linear_relu\nmodel, x = linear_relu()\n"
        "compiled = torch.compile(model, mode='reduce-overhead')\nwith torch.no_grad():\n"
        "    for _ in range(4): compiled(x)\n    weight = model[0].weight\n"
        "    weight.data = weight.data.clone()\n    for _ in range(3): compiled(x)\n    torch.cuda.synchronize()"
    )
    environment = {**os.environ, "TORCH_LOGS": "cudagraphs,perf_hints"}
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True,
                            check=True, timeout=_TIMEOUT_S)  # fmt: skip
    log = CompilerLog.read((result.stdout + result.stderr).splitlines())
    return row("a graph whose weights have moved is told as recorded again", bool(log.rerecorded),
               recordings=log.recordings, rerecorded=list(log.rerecorded))  # fmt: skip


def mode_as_options() -> Row:
    """A mode and its options written out take the same time."""
    model, x = linear_relu()
    options = {**torch._inductor.list_mode_options()["max-autotune"]}
    with torch.no_grad():
        ways = [torch.compile(model, mode="max-autotune"), torch.compile(model, options=options)]
        calls = []
        for way in ways:
            torch._dynamo.reset()
            for _ in range(5):
                way(x)
            calls.append(way)
        times = [[_both_clocks(lambda call=call: call(x))[1] / _CALLS for call in calls] for _ in range(9)]
    ratio = statistics.median(a / b for a, b in times)
    return row("max-autotune and its options take the same within 10 %", abs(ratio - 1) <= 0.1, ratio=ratio, ms=times)


def prepared_start() -> Row:
    """The first launch from a lockfile, with and without `prepare`, each in a process with empty caches."""
    program = (
        "import sys, time, torch, triton_ops\nimport triton_ops_kernels as kernels\n"
        "x = torch.randn(4096, 1024, device='cuda'); torch.cuda.synchronize()\n"
        "softmax = kernels.load('softmax')\nif sys.argv[2] == 'prepared': triton_ops.prepare(sys.argv[1])\n"
        "start = time.monotonic()\ntriton_ops.softmax(x)\ntorch.cuda.synchronize()\nprint(time.monotonic() - start)"
    )
    with tempfile.TemporaryDirectory() as folder:
        _tuned("softmax", (4096, 1024), "float32", folder)
        lockfile = f"{folder}/lock.json"
        _command("lock", "--lockfile", lockfile, "--cache-dir", folder)
        seconds = {}
        for way in ("prepared", "not prepared"):
            environment = {**os.environ, "TRITON_OPS_LOCKFILE": lockfile, "TRITON_CACHE_DIR": f"{folder}/{way}"}
            seconds[way] = float(_output([sys.executable, "-c", program, lockfile, way], environment))
    holds = seconds["prepared"] < seconds["not prepared"] / 3
    return row("a prepared kernel's first launch waits for no compiler", holds,
               seconds=seconds)  # fmt: skip


def row_keys() -> Row:
    """The number of rows does not change softmax's winner, the number of columns does."""
    with tempfile.TemporaryDirectory() as folder:
        shapes = [(rows, columns) for columns in (1024, 8192) for rows in (4096, 16384)]
        winners = {f"{r}x{c}": dict(_tuned("softmax", (r, c), "bfloat16", folder)) for r, c in shapes}
        advice = json.loads(_command("lock", "keys", "softmax", "--json", "--cache-dir", folder))
    verdicts = {"/".join(part["names"]): part["verdict"] for each in advice["items"] for part in each["parts"]}
    return row("rows never mattered to softmax, columns did", True, winners=winners, verdicts=verdicts)


def maxnreg() -> Row:
    """A limit of registers changes registers and time of a kernel that needs more of them."""
    operation = kernels.load("softmax")
    problem = operation.problem((4096, 8192), "float32")
    arguments, default = operation.materialise(problem, "cuda"), operation.space_for(problem).default_config
    timer, arms, registers = EventTimer(), {}, {}
    for limit in (None, 64, 24):
        narrow = {**default, "num_warps": 2}  # of 128 elements a thread
        config = type(default)(narrow if limit is None else {**narrow, "maxnreg": limit})
        executable = operation.kernel.compile(config, arguments)
        call = executable.bind(arguments)
        call()
        resources = executable.resources
        registers[str(limit)] = {"registers": resources.registers, "spill_bytes": resources.spill_bytes}
        arms[str(limit)] = Arm(timer.prepare(Launch(call)), 5)
    Rounds(timer=timer).run(list(arms.values()), 20)
    ms = {label: statistics.median(arm.values_ms) for label, arm in arms.items()}
    holds = registers["24"]["registers"] <= 24 < registers["None"]["registers"] and ms["24"] > 1.02 * ms["None"]
    return row("a limit of 24 registers a thread holds, and makes a softmax slower", holds, ms=ms, resources=registers)


def suite() -> Row:
    """The benchmark suite checks, times and compares kernels on the GPU, and refuses a wrong one."""
    bench = triton_ops.BenchmarkSuite(benchmark_runs=40)
    x = torch.randn(4096, 4096, device="cuda")
    outcome = bench.compare_with_pytorch(
        triton_ops.softmax, lambda x: torch.softmax(x, -1), "softmax", (4096, 4096), x
    )  # fmt: skip
    with contextlib.suppress(triton_ops.WrongResultError):
        bench.benchmark_kernel(lambda x: x, lambda x: x + 1, "wrong", (4096, 4096), x)
        return row("a wrong kernel is refused before it is timed", False)
    families = [*bench.benchmark_rmsnorm_rope([(2, 1024, 4096, 128)]), *bench.benchmark_fp8_gemm([(2048, 4096, 4096)]),
                *bench.benchmark_gated_mlp([(1, 512, 2048, 4096)])]  # fmt: skip
    speedups = {each.kernel_name: each.speedup for each in (outcome, *families)}
    return row("kernels of four families are compared, and a wrong one is refused before it is timed",
               len(speedups) == 4 and min(speedups.values()) > 0, speedups=speedups,
               interval=list(outcome.interval), mode=outcome.mode)  # fmt: skip


def drawn_graphs() -> Row:
    """The graphs of a model compiled with and without CUDA graphs, drawn in pairs with what differs."""
    modes = ("reduce-overhead", "default")
    with tempfile.TemporaryDirectory() as folder:
        chosen = [word for mode in modes for word in ("--mode", mode)]
        _command("torch", "modes", "benchmarks.correctness.stated_gpu:linear_relu", *chosen, "--collect", folder,
                 "--seconds", "1", "--cache-dir", f"{folder}/records")  # fmt: skip
        picture = Path(folder) / "pair.svg"
        drawn = json.loads(_command("torch", "draw", *(f"{folder}/{mode}" for mode in modes), "--json",
                                    "--out", str(picture)))  # fmt: skip
        nodes = len(xml.etree.ElementTree.fromstring(picture.read_text(encoding="utf-8")).findall(".//{*}text"))
    same = drawn["launches"][0] == drawn["launches"][1] > 0 and not any(map(len, drawn["kernels"]))
    differ = {name: drawn[name] for name in ("launches", "fusions", "kernels")}
    return row("with CUDA graphs a model launches the same kernels, as the pair of drawn graphs shows",
               same and nodes > 0, texts_drawn=nodes, **differ)  # fmt: skip


def profile_flow() -> Row:
    """The profile of a kernel in one command: its time, its kernels by name, and counters or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        words = ("softmax", "--shape", "4096x4096", "--dtype", "bf16", "--launches", "3")
        profile = json.loads(_command("explain", "profile", "flow", *words, "--out", f"{folder}/profile.csv", "--json"))
    names = [part["name"] for part in profile["parts"]]
    holds = profile["time"]["median_ms"] > 0 and any("softmax" in name for name in names)
    return row("one command times a kernel, names what ran, and has counters or says why not",
               holds and bool(profile["counters"] or profile["missing"]), time=profile["time"], parts=profile["parts"],
               counters=bool(profile["counters"]), missing=profile["missing"])  # fmt: skip


def one_entry_of_a_model() -> Row:
    """A GPU's labels are entries of their own, or with `by_model` all those of its model's name."""
    labels = ("cuda", "cuda:0", torch.cuda.get_device_name(0))
    with tempfile.TemporaryDirectory() as folder:
        by_model, apart = triton_ops.ConfigCache(f"{folder}/a", by_model=True), triton_ops.ConfigCache(f"{folder}/b")
        entries = []
        for cache in (by_model, apart):
            cache.set("softmax", (4096, 4096), "cuda:0", {"BLOCK_SIZE": 1024})
            entries.append([label for label in labels if cache.get("softmax", (4096, 4096), label) is not None])
    return row("by model all labels of a GPU are one entry, else each label is its own",
               entries == [list(labels), ["cuda:0"]], by_model=entries[0], by_label=entries[1])  # fmt: skip


def narrow_key() -> Row:
    """A key that lacks an extent which changes matmul's winner is told to take it."""
    with tempfile.TemporaryDirectory() as folder:
        shapes = [(4096, columns, 1024) for columns in (64, 1024, 16384)]
        winners = {f"{m}x{n}x{k}": dict(_tuned("matmul", (m, n, k), "bfloat16", folder, 8)) for m, n, k in shapes}
        advice = json.loads(_command("lock", "keys", "matmul", "--key", "M", "--json", "--cache-dir", folder))
    parts = [part for each in advice["items"] for part in each["parts"] if "N" in "/".join(part["names"]).split("/")]
    lacking = any(part["verdict"] == "matters" and not part["in_key"] for part in parts)
    return row("a key of M alone is too narrow for matmul: N belongs into it", lacking, winners=winners, parts=parts)


def ordered_by_a_model() -> Row:
    """A tune says that a model ordered its configs, and its winner is one that was measured."""
    with tempfile.TemporaryDirectory() as folder:
        result = tune(kernels.load("matmul"), shape=(4096, 4096, 4096), dtype="bfloat16", budget_s=8,
                      cache_dir=folder, listener=Silent())  # fmt: skip
    samples = len(result.winner.best_measurement.samples_ms)
    return row("a result says that a model ordered its configs, and its winner was measured",
               "a model of the work" in result.ordered_by and samples > 0, ordered_by=result.ordered_by,
               samples=samples, tried=len(result.trials))  # fmt: skip


def bucket_bound() -> Row:
    """What `lock verify --held-out --bound` lets pass loses no more at sizes that were not tuned; the rest fails."""
    most, sizes = 0.1, (1024, 4096)
    with tempfile.TemporaryDirectory() as folder:
        records = bucket_regret.tuned(sizes, "cuda", folder, 8, time.monotonic() + 60)
        verdicts = list(bucket_regret.held_out(records, "measured@2", "cuda", 2, 4, most))
    regrets = {f"{each.entry.problem['M']}: {each.at}": [each.outcome, each.regret] for each in verdicts}
    measured = [each for each in verdicts if each.regret is not None]
    holds = bool(measured) and all((each.regret <= most) == (each.outcome == "ok") for each in measured if each.regret)
    return row("a range that passes a bound loses no more than it at sizes that were not tuned", holds, bound=most,
               regrets=regrets, largest=max((each.regret for each in measured), default=None))  # fmt: skip


def tie_order() -> Row:
    """Equal ties are ordered by resources, then by p20 and p80; a test holds it."""
    return _tested("ties that resources do not tell apart are ordered by p20, then by p80",
                   "tests/cpu/evaluation/test_doubt.py", "in_the_order_of_use")  # fmt: skip


def clock_lock() -> Row:
    """Clocks are observed; a lock is refused on a shared GPU. Tests hold it, on a stand-in for NVML."""
    return _tested("nothing locks a clock unasked, and a lock is refused on a shared GPU",
                   "tests/cpu/device/test_nvidia.py", "clock")  # fmt: skip


def _tested(statement: str, file: str, names: str) -> Row:
    words = [sys.executable, "-m", "pytest", file, "-k", names, "-q", "-p", "no:cacheprovider"]
    return row(statement, True, tests=file, told=_output(words, dict(os.environ)).splitlines()[-1])


def _tuned(name: str, shape: tuple[int, ...], dtype: str, folder: str, budget_s: float | None = None) -> dict[str, Any]:
    operation, place = kernels.load(name), {"cache_dir": folder, "listener": Silent()}
    return tune(operation, shape=shape, dtype=dtype, budget_s=budget_s, **place).best_config


def _command(*words: str) -> str:
    return _output([sys.executable, "-m", "triton_ops", *words], dict(os.environ))


def _output(words: list[str], environment: dict[str, str]) -> str:
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr[-800:])
    return result.stdout.strip()


STATEMENTS: dict[str, Callable[[], Row]] = {
    each.__name__: each
    for each in (
        row_keys, maxnreg, suite, prepared_start, epilogue_fusion, gemm_backends, warm_caches, events_and_wall,
        recorded_again, mode_as_options, drawn_graphs, profile_flow, one_entry_of_a_model, narrow_key,
        ordered_by_a_model, bucket_bound, tie_order, clock_lock,
    )
}  # fmt: skip


def _without_frames(text: str) -> str:
    """The last lines of what a process has written, without those of a trace, which name the folders of a machine."""
    lines = [line for line in text.splitlines() if line and not line.startswith((" ", "Traceback"))]
    return "\n".join(lines[-6:])[-600:]


def in_a_process(name: str) -> Row:
    """The row of a statement; one that fails holds not, and tells why."""
    start = time.monotonic()
    try:
        text = _output([sys.executable, "-m", "benchmarks.correctness.stated_gpu", "--row", name], dict(os.environ))
        content: Row = json.loads(text.splitlines()[-1])
    except (RuntimeError, subprocess.TimeoutExpired, json.JSONDecodeError, IndexError) as error:
        content = row((STATEMENTS[name].__doc__ or "").strip(), False, error=_without_frames(str(error)))
    return {**content, "took_s": time.monotonic() - start}


def main() -> int:
    """Show what is asked for, and write one JSON file; also the part of one process."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="*", default=list(STATEMENTS), choices=list(STATEMENTS))
    parser.add_argument("--limit-s", type=float, default=600.0, help="start nothing more after so many seconds")
    parser.add_argument("--row", choices=list(STATEMENTS), help="used by the script itself")
    options = parser.parse_args()
    if options.row:
        with contextlib.redirect_stdout(io.StringIO()):
            content = STATEMENTS[options.row]()
        print(json.dumps(content, default=str))
        return 0
    out, start = options.out, time.monotonic()
    rows: dict[str, Row] = json.loads(out.read_text(encoding="utf-8"))["rows"] if out and out.is_file() else {}
    for name in options.only:
        if time.monotonic() - start < options.limit_s:
            rows[name] = in_a_process(name)
            print(name, json.dumps(rows[name], default=str)[:600], flush=True)
            if out:
                head = {"device": probe("cuda").name, "rows": rows}
                save(out, headed("python -m benchmarks.correctness.stated_gpu", options.commit, **head))
    return int(any(not each["holds"] for each in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
