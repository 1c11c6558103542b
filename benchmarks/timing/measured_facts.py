"""What timing on this GPU is like: the figures that set the constants of `triton_ops.timing`.

    python -m benchmarks.timing.measured_facts --out benchmarks/results/nvidia-h200/facts.json
    python -m benchmarks.timing.measured_facts --host-load --out benchmarks/results/nvidia-h200/host_load.json

Tick of the events; cost of a graph replay beside the launches in it; warm and cold; spread of a difference inside a
round by length of block; drift; whether NVML tells clocks and reasons; what a race of one config with itself says.

`--host-load` samples one config in turns with idle CPUs and with a compile pool at work, as in a search: by events at
4096³, and by graph replays on a short kernel.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.document import headed, parser_of, save
from benchmarks.tuning.spaces import SPACES, loaded, operation_of
from triton_ops.backend import Arguments, Protection, TritonCompiler
from triton_ops.base import Host
from triton_ops.compilation import CompilePool
from triton_ops.device import Target, probe
from triton_ops.timing import Arm, Interval, Launch, Rounds, Timer, guard_for
from triton_ops.timing.gpu_timers import EventTimer, GraphTimer, sets_needed
from triton_ops.timing.race_statistics import median_interval, robust_sigma
from triton_ops.values import Measurement

BLOCKS, ROUNDS = (1, 3, 5, 10), 60
TURNS, SAMPLES, SETTLE_S = 8, 30, 0.5
LOADED = {"event": ("matmul", (4096, 4096, 4096)), "graph": ("rmsnorm", (128, 8192))}


def tick_us() -> dict[str, Any]:
    """Smallest steps between event times of short launches."""
    x = torch.empty(1 << 16, device="cuda")
    timer = EventTimer(cache="warm")
    samples = sorted({round(1e3 * t, 4) for t in timer.prepare(Launch(lambda: x.add_(1))).take(timer, 2000)})
    steps = [round(b - a, 4) for a, b in itertools.pairwise(samples)]
    return {"smallest_step_us": min(steps, default=None), "median_us": statistics.median(samples)}


def launches(space: str, count: int) -> tuple[list[Launch], int]:
    """The first `count` fast configs of a space, with argument sets to rotate."""
    operation, arguments, executables, default = loaded(space)
    touched = sum(t.untyped_storage().nbytes() for t in arguments.tensors())
    count_of_sets = sets_needed(touched, probe("cuda").l2_bytes) or 1
    sets = [Protection.private_copy(arguments) for _ in range(count_of_sets - 1)]
    made = []
    for config in [default, *[c for c in executables if c != default]][: 4 * count]:
        first, *others = [executables[config].bind(values) for values in (arguments, *sets)]
        made.append(Launch(first, None, tuple(others), (arguments.keyword[operation.kernel.outputs[0]],)))
    timer = EventTimer()
    return sorted(made, key=lambda launch: min(timer.prepare(launch).take(timer, 3)))[:count], count_of_sets


def modes(launch: Launch, short: bool) -> dict[str, Any]:
    """Median and spread of one launch in every mode: cold by rotation, by flush, and warm."""
    timers: dict[str, Timer] = {f"event-{cache}": EventTimer(cache=cache) for cache in ("cold", "flushed", "warm")}
    if short:
        timers |= {"graph-cold": GraphTimer(cold=True), "graph-warm": GraphTimer(cold=False)}
    table = {}
    for name, timer in timers.items():
        sampler = timer.prepare(launch)
        samples = sampler.take(timer, 50)
        sigma = robust_sigma([math.log(s) for s in samples])
        table[name] = {"median_ms": statistics.median(samples), "sigma": sigma, "launches": sampler.launches}
    return table


def unrolled(launch: Launch) -> dict[str, float]:
    """Time per launch by number of launches in a graph."""
    timer = GraphTimer(cold=False)
    return {str(n): statistics.median(timer.prepare(launch, n).take(timer, 30)) for n in (1, 2, 4, 8, 16, 32, 64, 128)}


def paired(fast: list[Launch], timer: Timer, block: int) -> dict[str, Any]:
    """Spread of round-centred block medians and of paired differences, and of one config with itself."""
    arms = [Arm(timer.prepare(launch), block) for launch in [*fast, fast[0]]]
    start = time.monotonic()
    Rounds(timer=timer).run(arms, ROUNDS)
    seconds = time.monotonic() - start
    rows = [arm.values_ms for arm in arms]
    centres = [statistics.median(column) for column in zip(*rows, strict=True)]
    itself = Interval.of_gap(rows[-1], rows[0])
    level = [math.log(centre) for centre in centres]
    return {
        "block": block,
        "rounds": ROUNDS,
        "seconds": seconds,
        "sigma_absolute": statistics.median(robust_sigma([math.log(value) for value in row]) for row in rows),
        "sigma_round_centred": statistics.median(robust_sigma(Measurement.contrasts(row, centres)) for row in rows),
        "sigma_pair": statistics.median(robust_sigma(Measurement.contrasts(row, rows[0])) for row in rows[1:]),
        "itself": [itself.low, itself.centre, itself.high],
        "level_lag1": statistics.correlation(level[:-1], level[1:]),
        "level_range": max(level) - min(level),
    }


def facts() -> dict[str, Any]:
    """All figures but those of a busy host."""
    guard, spaces = guard_for("cuda"), {}
    for space in SPACES:
        short = space.startswith("rms") or "4096" in space
        fast, sets = launches(space, 6)
        timer = GraphTimer() if short else EventTimer(cache="cold")
        spaces[space] = {"copies": sets, "modes": modes(fast[0], short)}
        spaces[space]["paired"] = [paired(fast, timer, block) for block in BLOCKS]
        if space.startswith("rms"):
            spaces[space]["unrolled_warm_ms"] = unrolled(fast[0])
        guard.round_ok()
    return {"guard": str(guard.summary()), "tick": tick_us(), "spaces": spaces}


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Inside, every CPU compiles configs that nobody has compiled before."""
    operation = operation_of("matmul")
    problem = operation.problem((8192, 8192, 8192), "float16")
    compiler = TritonCompiler(operation.kernel, Arguments(keyword=dict(problem.arguments)), Target.of(probe("cuda")))
    with tempfile.TemporaryDirectory() as fresh, contextlib.ExitStack() as stack:
        before = os.environ["TRITON_CACHE_DIR"]
        os.environ["TRITON_CACHE_DIR"] = fresh
        stack.callback(os.environ.__setitem__, "TRITON_CACHE_DIR", before)
        pool = stack.enter_context(CompilePool(compiler))
        futures = [pool.submit(config, anyway=True) for config in operation.space_for(problem)]
        while not any(future.done() for future in futures):
            time.sleep(0.01)
        yield
        assert not all(future.done() for future in futures), "the compilers had too little to do"


def beside_compilers(clock: str) -> dict[str, Any]:
    """Medians with idle and with busy CPUs, turn by turn, and their ratio with its 95 % interval."""
    name, shape = LOADED[clock]
    operation = operation_of(name)
    problem = operation.problem(shape, None)
    arguments = operation.materialise(problem, "cuda")
    call = operation.kernel.compile(operation.space_for(problem).default_config, arguments).bind(arguments)
    call()
    timer = GraphTimer("cuda", cold=False) if clock == "graph" else EventTimer("cuda")
    sampler = timer.prepare(Launch(call))
    rows: dict[str, list[float]] = {"idle": [], "busy": []}
    for _ in range(TURNS):
        for state, medians in rows.items():
            with compiling() if state == "busy" else contextlib.nullcontext():
                time.sleep(SETTLE_S)
                sampler.take(timer, SAMPLES)  # to the same power state
                medians.append(statistics.median(sampler.take(timer, SAMPLES)))
    ratio = median_interval([math.log(b / i) for i, b in zip(rows["idle"], rows["busy"], strict=True)])
    return {
        "kernel": name,
        "shape": shape,
        "mode": timer.mode,
        "median_ms": {state: statistics.median(medians) for state, medians in rows.items()},
        "busy_over_idle": [math.exp(ratio.centre), math.exp(ratio.low), math.exp(ratio.high)],
    }


def main() -> None:
    """Measure and write."""
    parser = parser_of(__doc__)
    parser.add_argument("--host-load", action="store_true", help="what busy CPUs change, and nothing else")
    options = parser.parse_args()
    command, spec = "python -m benchmarks.timing.measured_facts", probe("cuda")
    if options.host_load:
        with tempfile.TemporaryDirectory() as compiled:
            os.environ["TRITON_CACHE_DIR"] = compiled
            clocks = {clock: beside_compilers(clock) for clock in LOADED}
        content: dict[str, Any] = {"device": spec.name, "cpus": Host.usable_cpus(), "turns": TURNS, "clocks": clocks}
        command += " --host-load"
    else:
        device = {"name": spec.name, "arch": spec.arch, "driver": spec.driver, "l2_bytes": spec.l2_bytes}
        content = {"device": device, **facts()}
    document = headed(command, options.commit, **content)
    if options.out:
        save(options.out, document)
    print(json.dumps(document))


if __name__ == "__main__":
    main()
