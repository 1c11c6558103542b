"""The documented example of `TritonAutoTuner`, word for word but for the device.

With a GPU it runs on `cuda`, without one on `cpu`; `device="cuda:0"` stays, since it is only the cache entry's label.
"""

import sys

import torch

from triton_ops import TritonAutoTuner, TuningResult


def dummy_kernel(x, BLOCK_SIZE=64, num_warps=4):
    return x * 2


def main(device: str) -> TuningResult:
    tuner = TritonAutoTuner(
        kernel_fn=dummy_kernel,
        config_space={
            "BLOCK_SIZE": [64, 128],
            "num_warps": [4, 8],
        },
        warmup_runs=2,
        benchmark_runs=5,
    )

    x = torch.randn(1024, device=device)
    return tuner.tune(x, problem_size=(1024,), device="cuda:0", kernel_type="dummy")


if __name__ == "__main__":
    print(main(sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"))
