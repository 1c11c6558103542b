"""The smallest failing shapes of faults in Triton kernels, as a referee finds them; on a GPU.

    python -m benchmarks.referee.faults --jobs 3 --out FILE

The faults are those of `benchmarks.correctness.verdict_kernels`, each at two tiles. A shape that was found is the
smallest if the kernel is right, by the same rule, wherever one of its extents is half as large; shapes that it or the
reference refuses count as right.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from benchmarks.correctness import verdict_kernels
from benchmarks.correctness.verdict_kernels import ATTENTION_FAULTS, MATMUL_FAULTS
from benchmarks.correctness.verdicts import ATTENTION_TILES, FAULTY_SHAPE, MATMUL_TILES
from benchmarks.document import headed, parser_of, save
from benchmarks.referee.asked import own_turns
from triton_ops import Check, Operation, check
from triton_ops.backend import CandidateError
from triton_ops.benchmark.check_inputs import Form, Inputs
from triton_ops.evaluation import ReferenceResults
from triton_ops.exceptions import TritonKernelError
from triton_ops.space import Config
from triton_ops.typed import TypedTarget

FILE = "benchmarks/correctness/verdict_kernels.py"
KERNELS: dict[str, tuple[tuple[str, ...], tuple[dict[str, int], ...], tuple[int, ...]]] = {
    "attention": (ATTENTION_FAULTS, ATTENTION_TILES[1:3], FAULTY_SHAPE),
    "product": (MATMUL_FAULTS, MATMUL_TILES[1:3], (1024, 1024, 1000)),
}
SECONDS = 10.0
SEEDS = range(4)


def _numbers(shape: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, part.split("x"))) for part in shape.split(",")]


EXTENTS = {
    "attention": lambda shape: _numbers(shape)[0],
    "product": lambda shape: (_numbers(shape)[0][0], _numbers(shape)[1][1], _numbers(shape)[0][1]),
}
"""From the shapes of the arguments to the operation's extents."""


def cases() -> Iterator[tuple[str, int, dict[str, int]]]:
    """A kernel, the number of its fault, and a config, each."""
    for kernel, (faults, tiles, _) in KERNELS.items():
        yield from ((kernel, number, tile) for number in range(1, len(faults) + 1) for tile in tiles)


def asked(kernel: str, number: int, tile: dict[str, int]) -> Check:
    """The referee's answer."""
    candidate = TypedTarget(f"{FILE}:{kernel}", config={**tile, "FAULT": number})
    words = "x".join(map(str, KERNELS[kernel][2]))
    return check(candidate, f"{FILE}:{kernel}", shapes=[words], dtype="float16", device="cuda", seconds=SECONDS)


def row_of(kernel: str, number: int, tile: dict[str, int]) -> dict[str, Any]:
    """What was found of one fault, and the shapes with one extent halved at which it is found as well."""
    faults, begin = KERNELS[kernel][0], time.monotonic()
    found = asked(kernel, number, tile)
    took_s = round(time.monotonic() - begin, 1)
    fault = found.fault
    extents = () if fault is None else EXTENTS[kernel](fault.shape)
    return {
        "kernel": kernel, "fault": faults[number - 1], "config": tile, "verdict": found.verdict, "text": str(found),
        "extents": extents, "values": "" if fault is None else fault.values,
        "smaller": [half for half in halved(extents) if fault and is_wrong(kernel, number, tile, half, fault.values)],
        "seconds": took_s,
    }  # fmt: skip


def is_wrong(kernel: str, number: int, tile: dict[str, int], extents: tuple[int, ...], values: str) -> bool:
    """Tell whether the kernel's result is wrong at some extents for one of a few seeds."""
    operation: Operation = getattr(verdict_kernels, kernel)
    form, config = Form.of_operation(operation, extents, "float16"), Config({**tile, "FAULT": number})
    for seed in SEEDS:
        drawn = Inputs(form, extents, seed, values).made("cuda")
        try:
            right = ReferenceResults(operation.reference, drawn, operation.kernel.outputs)
            operation.kernel.compile(config, drawn).bind(drawn)()
        except (RuntimeError, ValueError, TritonKernelError, CandidateError):
            return False
        if right.difference([drawn.result(name) for name in operation.kernel.outputs]) is not None:
            return True
    return False


def halved(extents: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Extents of which one is half as large."""
    for axis, extent in enumerate(extents):
        if extent > 1:
            yield (*extents[:axis], extent // 2, *extents[axis + 1 :])


def main() -> int:
    """Ask for each fault; 1 if one was not found, or fewer than nine of ten at the smallest shape."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="faults that are asked for at once")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"), initializer=own_turns) as pool:
        for each in as_completed([pool.submit(row_of, *case) for case in cases()]):
            rows.append(each.result())
            print(f"{rows[-1]['fault']}: {rows[-1]['text']}", flush=True)
            if options.out:
                save(options.out, headed(f"python -m {__spec__.name} --jobs {options.jobs}", options.commit, rows=rows))
    found = [row for row in rows if row["verdict"] == "wrong"]
    return 0 if len(found) == len(rows) and sum(not row["smaller"] for row in found) >= 0.9 * len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
