"""Two examples of Triton's autotuner as tutorials have them, with this package in its place and nothing else changed.

They are run as a file of their own, by Triton's interpreter, since there is no GPU: their tensors are on the CPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.garbage import ENDS_UNSEARCHED
from triton_ops_torch import parse_printed

pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.processes]

PROJECT = Path(__file__).parents[3]
HEAD = """
import os
import torch
import triton
import triton.language as tl
import triton_ops

os.environ["TRITON_PRINT_AUTOTUNING"] = "1"
"""

VECTOR_ADD = """
@triton.autotune(
    configs=[
        triton.Config({"BLOCK_SIZE": 128}, num_warps=4, num_stages=2),
        triton.Config({"BLOCK_SIZE": 256}, num_warps=8, num_stages=2),
    ],
    key=["N"],
)
@triton.jit
def vecadd_kernel(x_ptr, y_ptr, out_ptr, N, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offs < N
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0)
    tl.store(out_ptr + offs, x + y, mask=mask)

def vec_add(x, y):
    N = x.numel()
    out = torch.empty_like(x)
    grid = (triton.cdiv(N, 128),)
    vecadd_kernel[grid](x, y, out, N)
    return out

x = torch.randn(301)
y = torch.randn_like(x)
assert torch.equal(vec_add(x, y), x + y)
print("again")
assert torch.equal(vec_add(x, y), x + y)
"""

MATMUL = """
@triton.autotune(
    configs=[
        triton.Config({"BM": 128, "BN": 128, "BK": 32}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BN": 256, "BK": 32}, num_warps=8, num_stages=3),
        triton.Config({"BM": 64, "BN": 64, "BK": 64}, num_warps=4, num_stages=4),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def my_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :],
                    mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0)
        b = tl.load(b_ptr + inner[:, None] * N + columns[None, :],
                    mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total,
             mask=(rows[:, None] < M) & (columns[None, :] < N))

def product(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N)
    my_kernel[lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))](a, b, c, M, N, K)
    return c

a, b = torch.randn(65, 33), torch.randn(33, 33)
assert torch.allclose(product(a, b), a @ b, atol=1e-5)
print("again")
assert torch.allclose(product(a, b), a @ b, atol=1e-5)
"""

# No test asks which config is faster, and what the interpreter takes for a launch would be most of the time.
STEADY = """
from tests.clocks import SteadyClock
from triton_ops.timing import HostTimer, rounds
rounds.HostTimer = lambda: HostTimer(SteadyClock())

from tests.interpreter import patch_once, remember_types
patch_once()
remember_types()
"""

NEXT = """
import sys
for stream in (sys.stdout, sys.stderr):
    print("next example", file=stream, flush=True)
"""
EXAMPLES = VECTOR_ADD + NEXT + MATMUL
# An interpreted kernel is tuned only where that is asked for.
CHANGED = {
    "the decorator": EXAMPLES.replace("@triton.autotune(", "@triton_ops.autotune(\n    on_miss='tune',"),
    "the process": "triton_ops.install(on_miss='tune')\n" + EXAMPLES,
}


@pytest.fixture(scope="module")
def all_ran(tmp_path_factory):
    """What both examples print and say on stderr, by what is changed; one process imports torch and Triton for all."""
    folder = tmp_path_factory.mktemp("tutorials")
    for number, text in enumerate(CHANGED.values()):
        (folder / f"part{number}").mkdir()
        (folder / f"part{number}" / "tutorial.py").write_text(HEAD + text)
    program = ENDS_UNSEARCHED + STEADY + NEXT.join(f"import part{number}.tutorial\n" for number in range(len(CHANGED)))
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, check=False, cwd=folder,
        env={
            **os.environ, "TRITON_INTERPRET": "1", "TRITON_OPS_CACHE_DIR": str(folder / "cache"),
            "TRITON_OPS_EFFORT": "quick", "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), *sys.path]),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    examples = list(zip(done.stdout.split("next example"), done.stderr.split("next example"), strict=True))
    return dict(zip(CHANGED, (examples[:2], examples[2:]), strict=True))


@pytest.fixture(params=CHANGED)
def ran(request, all_ran):
    return all_ran[request.param]


def printed(example):
    """The tunes that an example prints before and after its first call, and what it says on stderr."""
    message, told = example
    before, again, after = message.partition("again")
    assert again
    return parse_printed(before), parse_printed(after), told


def test_vector_add_is_tuned_once_and_its_fixed_grid_is_pointed_out(ran):
    (tune,), later, told = printed(ran[0])
    assert [(one["BLOCK_SIZE"], one["num_warps"], one["num_stages"]) for one in tune.tried] == [
        (128, 4, 2),
        (256, 8, 2),
    ]
    assert (tune.kernel, tune.best in tune.tried, later) == ("vecadd_kernel", True, [])
    assert told.count("FixedGridWarning: the grid (3,)") == 1
    assert "tutorial.py" in told.partition("FixedGridWarning")[0].splitlines()[-1]


def test_a_matmul_of_three_configs_is_tuned_once(ran):
    (tune,), later, told = printed(ran[1])
    tried = {(one["BM"], one["BN"], one["BK"]) for one in tune.tried}
    assert (len(tune.tried), tried) == (3, {(128, 128, 32), (128, 256, 32), (64, 64, 64)})
    assert (tune.best in tune.tried, later, "FixedGridWarning" in told) == (True, [], False)
