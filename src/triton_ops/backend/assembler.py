"""ptxas, the assembler behind Triton: which one is in use, faults that some versions have, and newer ones nearby.

ptxas before 13.3 can break pipelined products of a warp group (`wgmma`) whose left factor is in registers, as that of
attention's second product and of dequantised weights is; the developers of Triton saw 61 in place of 64. Triton 3.6 to
3.8 bring an older one.

12.8.93, which Triton 3.6 and 3.7 bring, can lose masks that a loop hands from one turn to the next, as it does for
loads that run ahead: on an H200 `rmsnorm_rope` of float32 with 16 and more masks of a thread left parts of rows
unwritten, or wrote wrong ones. With 13.5.37 the same PTX is right; of versions between them nothing is known.

Facts used, from Triton 3.6 to 3.9: `triton.backends.nvidia.compiler.get_ptxas(arch)` has the `path` of the program that
is called, which `TRITON_PTXAS_PATH` or, for some architectures, `TRITON_PTXAS_BLACKWELL_PATH` names.

Facts used, of Triton 3.6 to 3.9: the wheel has `backends/nvidia/bin/nvdisasm`; `TRITON_NVDISASM_PATH` names another.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops._paths import expanded
from triton_ops.backend.identity import own_program, ptxas_version
from triton_ops.base import require
from triton_ops.exceptions import MissingDependencyError, SettingsError
from triton_ops.settings import triton_program

_PROGRAM = "nvdisasm"
_LIMIT_S = 60.0  # very large kernels take seconds


def disassembled(cubin: bytes) -> str | None:
    """The machine code of a cubin as text; None where no nvdisasm can be run, or it does not know the architecture.

    Cost: a third of a second for a matrix product.
    """
    override = triton_program(_PROGRAM)
    for path in [*([Path(override)] if override else []), *own_program(_PROGRAM)]:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            try:
                process = subprocess.run(
                    [str(path), "-c", file.name], capture_output=True, text=True, check=False, timeout=_LIMIT_S
                )
            except (OSError, subprocess.TimeoutExpired):
                continue
        if process.returncode == 0:
            return process.stdout
    return None


HOPPER = 90
_TOOLKIT = Path("/usr/local/cuda/bin/ptxas")


@dataclass(frozen=True)
class _Fault:
    """A fault of some versions in code on Hopper.

    Attributes:
        shown_by: A text in PTX that it takes, `times` times at least.
        whole: The first version that is known to be without it.
        what: What an earlier version does, in words.
    """

    shown_by: re.Pattern[str]
    times: int
    whole: tuple[int, ...]
    what: str

    def may_be_in(self, text: str) -> bool:
        """Tell whether the code has what the fault takes."""
        return len(self.shown_by.findall(text)) >= self.times


_FROM_REGISTERS = re.compile(r"wgmma\.mma_async[^{;]*\{[^}]*\},\s*\{")
_REGISTERS = _Fault(_FROM_REGISTERS, 1, (13, 3), "can break products whose left factor is in registers")
_FAULTS = (_REGISTERS, _Fault(re.compile(r"\bmov\.pred\b"), 16, (13, 5), "may lose masks of loads that run ahead"))


@dataclass(frozen=True)
class Assembler:
    """One ptxas, of a version such as `13.4.59`; `origin` says in words where it comes from."""

    path: str
    version: str
    origin: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers."""
        return tuple(int(part) for part in re.findall(r"\d+", self.version))

    @property
    def faulty(self) -> bool:
        """Tell whether it can break products from registers on Hopper."""
        return self.numbers < _REGISTERS.whole

    def __str__(self) -> str:
        return f"{self.version}, {self.origin}"


def assembler_in_use(arch: int = HOPPER) -> Assembler | None:
    """The ptxas that Triton calls for an architecture such as 90; None without Triton, or where none answers."""
    try:
        tool = require("triton.backends.nvidia.compiler", "finding ptxas").get_ptxas(arch)
    except (MissingDependencyError, AttributeError, RuntimeError):  # no Triton, another form of it, or no program there
        return None
    path = str(tool.path)
    version = ptxas_version(Path(path))
    origins = {settings.triton_program(name): "named by the environment" for name in ("ptxas", "ptxas-blackwell")}
    origins |= {settings.torchs_ptxas(): "named by torch's compiler, and in no record's key"}
    origin = origins.get(path, "Triton's own")
    return None if version is None else Assembler(path, version, origin)


def installed_assemblers() -> list[Assembler]:
    """The ptxas of installed packages, of the CUDA toolkit and of the search path, the newest first.

    Cost: some ms for each, to ask its version.
    """
    assemblers: dict[Path, Assembler] = {}
    for path, origin in _candidates():
        version = ptxas_version(path)
        if version is not None:
            assemblers.setdefault(path.resolve(), Assembler(str(path), version, origin))
    return sorted(assemblers.values(), key=lambda one: one.numbers, reverse=True)


def use_ptxas(path: str | os.PathLike[str] | None = None) -> Assembler:
    """Let Triton call another ptxas in this process and in those that it starts; returns the one that is called.

    Kernels that this process has compiled stay as they are, so call it first. Winners are kept by version: those of
    another ptxas are not taken for those of this one. torch's compiler names its own, in `TRITON_PTXAS_PATH` alone and
    in the middle of a process; that one is in no key.

    Args:
        path: The program; None takes the newest that is installed, such as with `pip install nvidia-cuda-nvcc`.

    Raises:
        SettingsError: There is none, or the program does not tell its version.
    """
    if path is None:
        assembler = next(iter(installed_assemblers()), None)
        if assembler is None:
            raise SettingsError("no ptxas is installed beside Triton's", hint="pip install nvidia-cuda-nvcc")
    else:
        version = ptxas_version(expanded(path))
        if version is None:
            raise SettingsError(f"{path} does not tell the version of a ptxas", hint="name the program itself")
        assembler = Assembler(str(expanded(path).absolute()), version, "named by the caller")
    settings.name_triton_programs(assembler.path)
    return assembler


def suspicion(kernels: Sequence[Any]) -> str:
    """The fault of the ptxas in use that compiled kernels may show, in words; empty if they do not.

    Args:
        kernels: What Triton has compiled.

    Cost: reads the PTX; asks a program its version.
    """
    texts = [kernel.asm.get("ptx") for kernel in kernels if _arch(kernel) == HOPPER]
    code = [text for text in texts if isinstance(text, str)]
    suspects = [fault for fault in _FAULTS if any(map(fault.may_be_in, code))]
    assembler = assembler_in_use() if suspects else None
    faults = [fault for fault in suspects if assembler is not None and assembler.numbers < fault.whole]
    return _advice(assembler, faults) if assembler is not None and faults else ""


def _advice(assembler: Assembler, faults: Sequence[_Fault]) -> str:
    """The fault of an assembler and what to do about it, in words."""
    whole = ".".join(map(str, max(fault.whole for fault in faults)))
    return (
        f"it may be the assembler's fault: ptxas {assembler.version} {' and '.join(fault.what for fault in faults)}, "
        f"as here; ptxas {whole} does not: triton_ops.use_ptxas(), or TRITON_PTXAS_PATH"
    )


def _arch(kernel: Any) -> Any:
    return getattr(getattr(kernel.metadata, "target", None), "arch", None)


def _candidates() -> Iterator[tuple[Path, str]]:
    spec = find_spec("nvidia")
    for folder in map(Path, (spec.submodule_search_locations or ()) if spec is not None else ()):
        for path in sorted(folder.glob("*/bin/ptxas")):
            yield path, f"of the package nvidia/{path.parts[-3]}"
    if _TOOLKIT.is_file():
        yield _TOOLKIT, "of the CUDA toolkit"
    if (on_path := shutil.which("ptxas")) is not None:
        yield Path(on_path), "on the search path"
