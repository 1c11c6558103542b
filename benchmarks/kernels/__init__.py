"""One operation of each kind of Triton kernel, to tune and to compile.

Each has a space that is small enough to be tried whole: at most 40 configs.
"""

from __future__ import annotations

from benchmarks.kernels.layer_norm_backward import layer_norm_backward
from benchmarks.kernels.matmul import device_matmul, gluon_matmul, host_matmul, specialized_matmul, split_k_matmul
from triton_ops import Operation

KINDS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        device_matmul,
        host_matmul,
        specialized_matmul,
        gluon_matmul,
        split_k_matmul,
        layer_norm_backward,
    )
}
