"""nvdisasm, the program that Triton brings to print machine code.

Facts used, of Triton 3.6 to 3.9: the wheel has `backends/nvidia/bin/nvdisasm`; `TRITON_NVDISASM_PATH` names another.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from triton_ops.backend.toolchain import own_program
from triton_ops.settings import triton_program

_PROGRAM = "nvdisasm"
_LIMIT_S = 60.0  # very large kernels take seconds


def disassembled(cubin: bytes) -> str | None:
    """The machine code of a cubin as text; None where no nvdisasm can be run, or it does not know the architecture.

    Cost: a third of a second for a matrix product.
    """
    named = triton_program(_PROGRAM)
    for path in [*([Path(named)] if named else []), *own_program(_PROGRAM)]:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            try:
                done = subprocess.run(
                    [str(path), "-c", file.name], capture_output=True, text=True, check=False, timeout=_LIMIT_S
                )
            except (OSError, subprocess.TimeoutExpired):
                continue
        if done.returncode == 0:
            return done.stdout
    return None
