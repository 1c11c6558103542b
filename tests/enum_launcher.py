"""An operation of one launch whose kernel is chosen by a member of an `Enum`."""

from enum import Enum

import triton
import triton.language as tl

from triton_ops import ConfigSpace, LauncherKernel, TensorSpec
from triton_ops.backend import Arguments, TritonCompiler
from triton_ops.device import Target


class Way(Enum):
    ONE = 64
    TWO = 128


@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 1.0, mask=at < n)


def launch(x, n, *, mode):
    fill[(triton.cdiv(n, mode.value),)](x, n, BLOCK=mode.value, num_warps=4 if mode is Way.ONE else 8)


def ahead():
    """What is compiled for an H100, and the space of its configs."""
    space = ConfigSpace({"mode": list(Way)})
    arguments = Arguments(keyword={"x": TensorSpec((1000,), "float32"), "n": 1000})
    kernel = LauncherKernel(launch, outputs=("x",))
    return TritonCompiler(kernel, arguments, Target.named("sm_90"), space.members), space
