"""What a call inside compiled code costs the host: launched by the code itself, as an operator, and torch's own.

    python -m benchmarks.launch.compiled [--modes default reduce-overhead] [--limit-s 75] [--out FILE]

Each function stands between a product and an addition. Torch makes the addition a part of its own softmax and layer
norm, and a kernel is one launch more: these two stand before a further product too, with as many launches as torch's.
Each is compiled by Inductor three times: with this package's kernel as the code launches it, with the same kernel as
one operator, and with torch's own function. Nothing waits for a call, the three take turns in rounds of random order,
and the least round of each counts. Results are compared with those outside of compiled code, and the code is read for
what stands in it. The last lines are the geometric mean and the largest of the ratios to torch's own. A GPU is needed.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch._inductor.utils import run_and_get_code

import triton_ops
from benchmarks.document import headed, parser_of, save
from benchmarks.launch_cost import least_us
from triton_ops.backend import CandidateError

LIMITS = {"launch": 1.25, "operator": 1.5}
MODES = ("default", "reduce-overhead")
ROUNDS, CALLS = 15, 100
_TILE = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 2}
_ROWS = {"BLOCK_SIZE": 256, "ROWS": 4, "num_warps": 4}
_TILES = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2}


def between(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """The function between a product and an addition, as code of its own, of which torch keeps its own cache."""

    def call(x: Any, w: Any) -> Any:
        return function(x @ w) + 1

    call.__code__ = call.__code__.replace()
    return call


def functions() -> dict[str, dict[str, Callable[[Any], Any]]]:
    """By name the three ways to compute one function of a matrix of 256x256."""
    new = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    v, weight, bias = new(256, 256) / 16, new(256), new(256)
    attend = torch.nn.functional.scaled_dot_product_attention
    operators = torch.ops.triton_ops

    def heads(x: Any) -> Any:
        return x.view(1, 256, 4, 64).transpose(1, 2)

    made = {}
    for name, config in {"matmul": _TILE, "matmul, host descriptors": {**_TILE, "LOADS": "host"}}.items():
        text = json.dumps(config)
        made[name] = {
            "torch": lambda x: x @ v,
            "launch": lambda x, config=config: triton_ops.matmul(x, v, config=config),
            "operator": lambda x, text=text: operators.matmul_new(x, v, config=text),
        }
    rows, tiles = json.dumps(_ROWS), json.dumps(_TILES)
    made |= {
        "softmax": {
            "torch": lambda x: torch.softmax(x, -1),
            "launch": lambda x: triton_ops.softmax(x, config=_ROWS),
            "operator": lambda x: operators.softmax(x, config=rows),
        },
        "layer_norm": {
            "torch": lambda x: torch.nn.functional.layer_norm(x, (256,), weight, bias),
            "launch": lambda x: triton_ops.layer_norm(x, weight, bias, config=_ROWS),
            "operator": lambda x: operators.layer_norm(x, weight, bias, config=rows),
        },
        "flash_attention": {
            "torch": lambda x: attend(heads(x), heads(x), heads(x)),
            "launch": lambda x: triton_ops.flash_attention(heads(x), heads(x), heads(x), config=_TILES),
            "operator": lambda x: operators.flash_attention(heads(x), heads(x), heads(x), config=tiles),
        },
    }
    for name in ("softmax", "layer_norm"):
        made[f"{name}, then a product"] = {
            way: lambda x, function=function: function(x) @ v for way, function in made[name].items()
        }
    return made


def compiled(function: Callable[..., Any], args: tuple[Any, ...], mode: str) -> tuple[Callable[[], Any], str]:
    """A call of compiled code that has been made before, and the text of the code."""
    call = torch.compile(function, fullgraph=True, mode=mode)
    _, texts = run_and_get_code(call, *args)
    for _ in range(3):  # a graph of torch's is recorded at one of them
        call(*args)
    return partial(call, *args), "\n".join(texts)


def measured(name: str, mode: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """The microseconds of each way, and whether code and results are as they should be."""
    torch._dynamo.reset()
    calls, right, stands = {}, {}, {}
    for way, function in functions()[name].items():
        calls[way], code = compiled(between(function), args, mode)
        right[way] = torch.allclose(calls[way]().float(), between(function)(*args).float(), rtol=2e-2, atol=2e-2)
        stands[way] = "operator" if "torch.ops.triton_ops." in code else "launch"
    us = least_us(calls, ROUNDS, torch.cuda.synchronize, CALLS)
    return {"us": us, "right": right, "stands": stands, "ratio": {way: us[way] / us["torch"] for way in LIMITS}}


def told(name: str, row: Mapping[str, Any]) -> None:
    """Print a row."""
    us = ", ".join(f"{way} {time_us:.1f} µs" for way, time_us in row["us"].items())
    ratios = ", ".join(f"{way} {row['ratio'][way]:.2f} (limit {limit:.2f})" for way, limit in LIMITS.items())
    kept = "" if row["stands"]["launch"] == "launch" else ", WHICH IS AN OPERATOR HERE TOO"
    wrong = [way for way, right in row["right"].items() if not right]
    print(f"{name}: {ratios}{kept}; {us}{'; WRONG: ' + ', '.join(wrong) if wrong else ''}", flush=True)


def summary(figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each way: ratios to torch's own, and how many rows are over the limit or not what they should be."""
    lines = []
    for way, limit in LIMITS.items() if figures else ():
        ratios = [row["ratio"][way] for row in figures.values()]
        over = sum(ratio > limit for ratio in ratios)
        other = sum(row["stands"][way] != way for row in figures.values())
        wrong = sum(not row["right"][way] for row in figures.values())
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        lines.append(f"{way}: {len(ratios)} rows, mean {mean:.2f}, largest {max(ratios):.2f}, {over} over {limit:.2f}, "
                     f"{other} stand otherwise, {wrong} wrong")  # fmt: skip
    return lines


def main() -> None:
    """Measure, and tell."""
    parser = parser_of(__doc__)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--only", nargs="+", metavar="FUNCTION", help="such as softmax; default: all")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="begin no further row after so many seconds")
    options = parser.parse_args()
    args = tuple(torch.randn(256, 256, device="cuda", dtype=torch.bfloat16) / 16 for _ in range(2))
    figures, end = {}, time.monotonic() + options.limit_s
    for name in options.only or functions():
        for mode in options.modes:
            if time.monotonic() < end:
                try:
                    row = figures[f"{name}, {mode}"] = measured(name, mode, args)
                except Exception as error:  # noqa: BLE001 - torch's compiler raises what it likes, and the rest goes on
                    print(f"{name}, {mode}: FAILED: {CandidateError.one_line(error)}", flush=True)
                else:
                    told(f"{name}, {mode}", row)
    print("\n".join(summary(figures)))
    if options.out is not None:
        device = torch.cuda.get_device_name()
        save(options.out, headed("python -m benchmarks.launch.compiled", options.commit, device=device,
                                 limits=LIMITS, figures=figures))  # fmt: skip


if __name__ == "__main__":
    main()
