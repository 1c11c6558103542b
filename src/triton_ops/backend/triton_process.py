"""Triton's state in this process: its assembler, work that is done once, output, and kernels that run as Python.

Facts used, from Triton 3.6 to 3.9: its key of itself and the utilities of its driver, such as
`triton.backends.nvidia.driver.CudaUtils`, are made once per process; a failing ptxas prints its whole input to stdout.

The key is a part of the key of every compiled kernel. It takes a quarter of a second of a CPU, more where the files are
not in memory, and each process that compiles would make it anew.

Facts used, from Triton 3.6 to 3.9: `triton.runtime.cache.triton_key` takes no arguments, hashes Python files and
libraries of the package `triton`, and is looked up in its module whenever a kernel's key is made, so that another
function may stand in its place; `triton.knobs.cache.dir` is the folder of compiled kernels.

Facts used, from Triton 3.6 to 3.9: a kernel that runs as Python is an `InterpretedFunction`, and while one runs, the
functions of `triton.language` are others, for all threads of the process. The interpreter of 3.6 makes a number of an
array of one element by `int()`, which NumPy refuses from 2.4 on: kernels with a loop whose end is an argument do not
run then.

ptxas before 13.3 can break pipelined products of a warp group (`wgmma`) whose left factor is in registers, as that of
attention's second product and of dequantised weights is; the developers of Triton saw 61 in place of 64. Triton 3.6 to
3.8 bring an older one.

12.8.93, which Triton 3.6 and 3.7 bring, can lose masks that a loop hands from one turn to the next, as it does for
loads that run ahead: on an H200 `rmsnorm_rope` of float32 with 16 and more masks of a thread left parts of rows
unwritten, or wrote wrong ones. With 13.5.37 the same PTX is right; of versions between them nothing is known.

Facts used, from Triton 3.6 to 3.9: `triton.backends.nvidia.compiler.get_ptxas(arch)` has the `path` of the program that
is called, which `TRITON_PTXAS_PATH` or, for some architectures, `TRITON_PTXAS_BLACKWELL_PATH` names.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops._paths import expanded
from triton_ops.backend.identity import ptxas_version
from triton_ops.backend.origins import INTERPRETED, layers
from triton_ops.base import (
    DamagedError,
    Folder,
    ForkSafeLock,
    Sealed,
    StoredFile,
    fingerprint,
    import_in_order,
    require,
)
from triton_ops.device import VENDORS
from triton_ops.exceptions import CacheError, MissingDependencyError, SettingsError

HOPPER = 90
_TOOLKIT = Path("/usr/local/cuda/bin/ptxas")


@dataclass(frozen=True)
class _Fault:
    """A fault in code on Hopper of versions before `whole`, where `shown_by` is in the PTX `times` times at least."""

    shown_by: re.Pattern[str]
    times: int
    whole: tuple[int, ...]  # the first version that is known to be without it
    what: str  # an earlier version does, in words

    def may_be_in(self, text: str) -> bool:
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
    """The ptxas of installed packages, of the CUDA toolkit and of the search path, the newest first."""
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
    """The fault of the ptxas in use that compiled kernels may show, in words; empty if they do not."""
    texts = [kernel.asm.get("ptx") for kernel in kernels if _arch(kernel) == HOPPER]
    code = [text for text in texts if isinstance(text, str)]
    suspects = [fault for fault in _FAULTS if any(map(fault.may_be_in, code))]
    assembler = assembler_in_use() if suspects else None
    faults = [fault for fault in suspects if assembler is not None and assembler.numbers < fault.whole]
    return _advice(assembler, faults) if assembler is not None and faults else ""


def _advice(assembler: Assembler, faults: Sequence[_Fault]) -> str:
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


_REFUSED_BY_NUMPY = "only 0-dimensional arrays can be converted to Python scalars"
_FITS_NUMPY = (3, 7)  # the first Triton whose interpreter runs with NumPy 2.4

_turn = ForkSafeLock(threading.RLock)


def is_interpreted(function: Any) -> bool:
    """Tell whether a kernel, below its decorators, runs as Python."""
    return type(layers(function)[-1]).__name__ == INTERPRETED


def launcher_of(function: Any) -> Callable[..., Any]:
    """The callable that launches a kernel; of those that run as Python, one at a time."""
    return _InTurn(function) if is_interpreted(function) else function.run


class _InTurn:
    """Launches a kernel when no other one runs as Python."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch it; raises `MissingDependencyError` where Triton's interpreter does not run with this NumPy."""
        with _turn:
            try:
                return self.function.run(*args, **kwargs)
            except Exception as error:
                if (misfit := numpy_misfit(error)) is not None:
                    raise misfit from error
                raise


def numpy_misfit(error: Exception | None = None) -> MissingDependencyError | None:
    """The advice where Triton's interpreter is of before NumPy 2.4, and NumPy is not; None otherwise.

    None also for an error of the interpreter that is not because of NumPy.
    """
    refused = error is None or _REFUSED_BY_NUMPY in str(error)
    if not refused or _numbers("triton") >= _FITS_NUMPY or _numbers("numpy") < (2, 4):
        return None
    return MissingDependencyError(
        f"the interpreter of Triton {_version('triton')} does not run this kernel with NumPy {_version('numpy')}",
        hint="pip install 'numpy<2.4'; or use Triton 3.7 or newer",
    )


def _numbers(package: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", _version(package))[:2])


def _version(package: str) -> str:
    return str(require(package, "running kernels as Python").__version__)


KEPT = "triton-ops-triton-key.json"
_READ = (".py", ".so")  # the files of the package that the key may depend on
_LIMIT_BYTES = 1 << 20  # the key has 65 bytes for each of 60 files


def ready_key() -> None:
    """Have Triton's key ready in this process: the kept one if no file of Triton has changed, else a new one.

    Who may write into the folder of compiled kernels may replace each of them, and so is trusted with the key too. For
    child processes alone, since Triton's function is replaced by one that knows the answer. 2 ms if the key is kept,
    else 0.25 s of a CPU.
    """
    cache: Any = import_in_order("triton.runtime.cache")
    files = package_state(Path(cache.__file__).parents[1])
    path = Path(import_in_order("triton.knobs").cache.dir) / KEPT
    key = _stored_key(path, files)
    if key is None:
        keep(path, files, cache.triton_key())
    else:
        cache.triton_key = lambda: key


def package_state(package: Path) -> str:
    """A fingerprint of where the files of a package are, how large they are, and when they were last changed.

    The time of change is the file system's own (`st_ctime`), which no program that copies or unpacks files can set.
    """
    files = []
    for folder, _, names in os.walk(package, followlinks=True):
        for name in names:
            if name.endswith(_READ):
                status = Path(folder, name).stat()
                files.append([str(Path(folder, name)), status.st_size, status.st_mtime_ns, status.st_ctime_ns])
    return fingerprint(sorted(files))


def keep(path: Path, files: str, key: str) -> None:
    """Keep a key beside the state of the files that it was made from; a folder that cannot be written keeps nothing."""
    with contextlib.suppress(OSError, CacheError):
        Folder(path.parent).ensure()
        StoredFile(path).replace(json.dumps(Sealed({"files": files, "key": key})))


def _stored_key(path: Path, files: str) -> str | None:
    try:
        content = Sealed.read(StoredFile(path).read(_LIMIT_BYTES))
    except (OSError, DamagedError):
        return None
    key = content.get("key")
    return key if content.get("files") == files and isinstance(key, str) else None


def warm_up(launches: bool) -> threading.Thread:
    """Begin in a thread what Triton does once before its first kernel: it takes half a second and more.

    A process that imports torch meanwhile has it for nothing. Triton's key of itself is read or made, and, if this
    process `launches` kernels, the driver is readied with a module built by the C compiler. What fails is met again,
    and told, by whoever compiles or launches first.
    """

    def work() -> None:
        for vendor in VENDORS.values() if launches else ():
            with contextlib.suppress(Exception):
                driver = vendor.triton_driver
                getattr(import_in_order(driver.module), driver.utilities)()
        with contextlib.suppress(Exception):
            ready_key()

    thread = threading.Thread(target=work, name="triton-ops warm-up", daemon=True)
    thread.start()
    return thread
