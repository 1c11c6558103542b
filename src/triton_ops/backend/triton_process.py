"""Triton in this process: its assembler, its loaded kernels, work done once, and kernels that run as Python.

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

Facts used, from Triton 3.6 to 3.9: `CompiledKernel._init_handles()` loads the binary and raises `OutOfResources`
without launching; `n_spills` counts 4-byte registers; a failing ptxas prints its whole input to stdout.

Triton asks the allocator that was given to `triton.set_allocator`, and fails where there is none. Here a launch finds
one that takes torch's memory; the user's own, where one is set, is asked instead.

Facts used, from Triton 3.6 to 3.9: `triton.runtime._allocation._allocator` is a `ContextVar` whose value is a
`NullAllocator` until one is set; the launch asks it in the context that launches. A thread begins with an empty context
up to Python 3.13, so that threads of this package that launch for a caller are given a copy of the caller's.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import re
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops.backend.callables import ptxas_version
from triton_ops.backend.origins import INTERPRETED, Layers
from triton_ops.backend.portable import Packed
from triton_ops.backend.roles import CandidateError
from triton_ops.base import ForkSafeLock, SealedFile, fingerprint, import_in_order, require, warn
from triton_ops.device import VENDORS, Target
from triton_ops.exceptions import KernelTypeError, MissingDependencyError, SettingsError, TargetError
from triton_ops.settings import expanded
from triton_ops.values import Resources

HOPPER = 90
_TOOLKIT = Path("/usr/local/cuda/bin/ptxas")


@dataclass(frozen=True)
class _Fault:
    """A fault in code on Hopper of versions before `whole`, where `shown_by` is in the PTX `times` times at least."""

    shown_by: re.Pattern[str]
    times: int
    whole: tuple[int, ...]  # the first version that is known to be without it
    what: str  # an earlier version does, in words


_FROM_REGISTERS = re.compile(r"wgmma\.mma_async[^{;]*\{[^}]*\},\s*\{")
# triton-lang/triton#9433 and #11781; NVIDIA's release notes of CUDA 13.3 list the repair. The second fault was only
# seen as told above, and has no report known to us.
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


def assembler_in_use() -> Assembler | None:
    """The ptxas that Triton calls for Hopper; None without Triton, or where none answers."""
    try:
        tool = require("triton.backends.nvidia.compiler", "finding ptxas").get_ptxas(HOPPER)
    except (MissingDependencyError, AttributeError, RuntimeError):  # no Triton, another form of it, or no program there
        return None
    path = str(tool.path)
    version = ptxas_version(Path(path))
    origins = {settings.triton_program(name): "named by the environment" for name in ("ptxas", "ptxas-blackwell")}
    origins |= {settings.torchs_ptxas(): "named by torch's compiler, and in no record's key"}
    return None if version is None else Assembler(path, version, origins.get(path, "Triton's own"))


def installed_assemblers() -> list[Assembler]:
    """The ptxas of installed packages, of the CUDA toolkit and of the search path, the newest first."""
    assemblers: dict[Path, Assembler] = {}
    for path, origin in _candidates():
        if (version := ptxas_version(path)) is not None:
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
        if (assembler := next(iter(installed_assemblers()), None)) is None:
            raise SettingsError("no ptxas is installed beside Triton's", hint="pip install nvidia-cuda-nvcc")
    else:
        if (version := ptxas_version(expanded(path))) is None:
            raise SettingsError(f"{path} does not tell the version of a ptxas", hint="name the program itself")
        assembler = Assembler(str(expanded(path).absolute()), version, "named by the caller")
    for variable in ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"):
        settings.set_variable(variable, assembler.path)
    return assembler


def suspicion(kernels: Sequence[Any]) -> str:
    """The fault of the ptxas in use that compiled kernels may show, in words; empty if they do not."""
    archs = [getattr(getattr(kernel.metadata, "target", None), "arch", None) for kernel in kernels]
    texts = [kernel.asm.get("ptx") for kernel, arch in zip(kernels, archs, strict=True) if arch == HOPPER]
    code = [text for text in texts if isinstance(text, str)]
    suspects = [fault for fault in _FAULTS if any(len(fault.shown_by.findall(text)) >= fault.times for text in code)]
    assembler = assembler_in_use() if suspects else None
    faults = [fault for fault in suspects if assembler is not None and assembler.numbers < fault.whole]
    if assembler is None or not faults:
        return ""
    whole = ".".join(map(str, max(fault.whole for fault in faults)))
    return (
        f"it may be the assembler's fault: ptxas {assembler.version} {' and '.join(fault.what for fault in faults)}, "
        f"as here; ptxas {whole} does not: triton_ops.use_ptxas(), or TRITON_PTXAS_PATH"
    )


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
# triton-lang/triton#9171, mended by #9172.
_FITS_NUMPY = (3, 7)  # the first Triton whose interpreter runs with NumPy 2.4

_turn = ForkSafeLock(threading.RLock)


class TritonProcess:
    """Triton in this process: what runs as Python, what is done once, and when nothing is compiled."""

    @staticmethod
    def is_interpreted(function: object) -> bool:
        """Tell whether a kernel, below its decorators, runs as Python."""
        return type(Layers.of(function)[-1]).__name__ == INTERPRETED

    @staticmethod
    def launcher_of(function: Any) -> Callable[..., object]:
        """The callable that launches a kernel; of those that run as Python, one at a time."""
        return partial(_run_in_turn, function) if TritonProcess.is_interpreted(function) else function.run

    @staticmethod
    def numpy_misfit(error: Exception | None = None) -> MissingDependencyError | None:
        """The advice where Triton's interpreter is of before NumPy 2.4, and NumPy is not; None otherwise.

        None also for an error of the interpreter that is not because of NumPy.
        """
        refused = error is None or _REFUSED_BY_NUMPY in str(error)
        if not refused or _numbers("triton") >= _FITS_NUMPY or _numbers("numpy") < (2, 4):
            return None
        triton, numpy = _version("triton"), _version("numpy")
        message = f"the interpreter of Triton {triton} does not run this kernel with NumPy {numpy}"
        return MissingDependencyError(message, hint="pip install 'numpy<2.4'; or use Triton 3.7 or newer")

    @staticmethod
    def warm_up(launches: bool, *, is_child: bool = True) -> threading.Thread:
        """Begin in a thread what Triton does once before its first kernel: it takes half a second and more.

        In a process that imports torch meanwhile it costs no time. Triton's key of itself is read or made, and, if this
        process `launches` kernels, the driver is readied with a module built by the C compiler. What fails is met
        again, and told, by whoever compiles or launches first. Nothing of Triton is changed unless it `is_child`.
        """

        def work() -> None:
            for vendor in VENDORS.values() if launches else ():
                with contextlib.suppress(Exception):
                    getattr(import_in_order(vendor.triton.driver), vendor.triton.utilities)()
            with contextlib.suppress(Exception):
                ready_key() if is_child else import_in_order("triton.runtime.cache").triton_key()
                _ = launches and import_in_order("triton.experimental.gluon")  # which reads the arguments of a launch

        thread = threading.Thread(target=work, name="triton-ops warm-up", daemon=True)
        thread.start()
        return thread

    @staticmethod
    @contextlib.contextmanager
    def nothing_compiled() -> Iterator[None]:
        """Have Triton compile nothing for this thread meanwhile: a kernel without a binary in this process fails.

        Triton asks its `jit_cache_hook` before it compiles, and lets the compilation be where that says so; the launch
        that asked for it then launches nothing. Other threads compile what they want, and the hook that was there is
        asked for them. The hook is given back by the last thread that leaves, unless somebody has set another one
        meanwhile.
        """
        if (knobs := sys.modules.get("triton.knobs")) is None:
            yield
            return
        with _Refusal.lock:
            hook = knobs.runtime.jit_cache_hook
            if not isinstance(hook, _Refusal):
                hook = knobs.runtime.jit_cache_hook = _Refusal(hook)
            hook.threads[threading.get_ident()] += 1
        try:
            yield
        finally:
            with _Refusal.lock:
                hook.threads -= Counter((threading.get_ident(),))
                if not hook.threads and knobs.runtime.jit_cache_hook is hook:
                    knobs.runtime.jit_cache_hook = hook.before


def _run_in_turn(function: Any, /, *args: Any, **kwargs: Any) -> object:
    """Launch a kernel when no other one runs as Python.

    Raises `MissingDependencyError` where Triton's interpreter does not run with this NumPy.
    """
    with _turn:
        try:
            return function.run(*args, **kwargs)
        except Exception as error:
            if (misfit := TritonProcess.numpy_misfit(error)) is not None:
                raise misfit from error
            raise


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
    if (key := _stored_key(path, files)) is None:
        SealedFile(path).keep({"files": files, "key": cache.triton_key()})
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


def _stored_key(path: Path, files: str) -> str | None:
    try:
        content = SealedFile(path).read(limit_bytes=_LIMIT_BYTES)
    except OSError:
        return None
    key = content.get("key")
    return key if content.get("files") == files and isinstance(key, str) else None


_MODULE = "triton.runtime._allocation"


class ScratchAllocator:
    """The allocator that a launch asks for memory: the user's, where one is set, else torch's memory."""

    @staticmethod
    def around(launch: Callable[..., object]) -> Callable[..., Any]:
        """`launch` with an allocator, for the time of the call, if none is set then."""
        variable = _variable()

        def launch_with_memory(*args: object) -> Any:
            if _is_set(variable):
                return launch(*args)
            token = variable.set(_from_torch)
            try:
                return launch(*args)
            finally:
                variable.reset(token)

        return launch_with_memory

    @staticmethod
    def packed() -> bytes | None:
        """The user's allocator as bytes; None if there is none, or it exists in this process only."""
        if _MODULE not in sys.modules or not _is_set(_variable()):
            return None
        try:
            return Packed.of(_variable().get()).content
        except (KernelTypeError, TargetError):  # the default allocator serves as well
            return None

    @staticmethod
    def take(content: bytes) -> None:
        """Make the user's allocator that of this context; torch's memory is taken where it cannot be made again."""
        try:
            require("triton", "launching kernels").set_allocator(Packed.loaded(content))
        except KernelTypeError as error:
            warn("kernels are given torch's memory, and not that of the allocator that was set: %s", error.message)


@lru_cache(maxsize=1)
def _variable() -> Any:
    # Private: nothing public tells whether an allocator is set. It is a `ContextVar` since triton-lang/triton#7685.
    return importlib.import_module(_MODULE)._allocator


def _is_set(variable: Any) -> bool:
    return type(variable.get()).__name__ != "NullAllocator"


def _from_torch(size: int, _alignment: int, _stream: int | None) -> Any:
    """Memory of the current device; torch's allocator aligns it to 512 bytes, and Triton asks for 128 at most."""
    torch = require("torch", "memory that a kernel asks for")
    return torch.empty(size, dtype=torch.int8, device="cuda")


_SPILL_UNIT_BYTES = 4
_TF32 = {"ptx": re.compile(r"\.tf32\b"), "ttir": re.compile(r"inputPrecision = tf32")}
_NARROW_SUMS = {  # inside of a reduction or a scan alone: other code may add two numbers once
    "ttir": re.compile(r'"tt\.(reduce|scan)"(?:(?!tt\.\1\.return)[\s\S])*?arith\.addf [^:\n]* : (?:bf16|f16)\b'),
}
_ROUNDED = re.compile(  # to 16 bits; MLIR writes the type of a result last
    r"(%\w+) = (arith\.(?:mulf|addf|subf|divf|truncf)|math\.fma) [^\n]*[ x](?:bf16|f16)>?(?: loc\(.*\))?$", re.MULTILINE
)
_USES = re.compile(r"^ *(?:%[\w:]+ = )?\"?([\w.]+)\"?\b(.*)$", re.MULTILINE)
_STORES = re.compile(r"tt\..*(?:store|atomic|return)")
_ATOMICS = {
    "ptx": re.compile(r"\b(?:atom|red|multimem\.red|cp\.reduce\.async\.bulk)\."), "ttir": re.compile(r"tt\.\w*atomic"),
}  # fmt: skip


def loaded(make: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Triton's compiled kernels from `make`, loaded on the device, and what an `Executable` of them has of them.

    Fails as `CandidateError.of_compiler`, or with the `TargetError` of what cannot be compiled without being launched.
    """
    start = time.perf_counter()
    output = io.StringIO()  # ptxas' input, on failure: a thousand lines that belong to nobody
    try:
        with contextlib.redirect_stdout(output):
            kernels = make()
            for kernel in kernels:
                kernel._init_handles()
    except TargetError:
        raise
    except Exception as error:
        raise CandidateError.of_compiler(error) from error
    compile_s, resources = time.perf_counter() - start, together([_resources(kernel) for kernel in kernels])
    return kernels, {"compile_s": compile_s, "resources": resources, **traits_of(kernels)}


class _Refusal:
    """A hook that lets some threads compile nothing, and answers for all others as the hook before it."""

    lock = ForkSafeLock()

    def __init__(self, before: Callable[..., object] | None) -> None:
        self.before = before
        self.threads: Counter[int] = Counter()  # how many blocks each of them is in

    def __call__(self, *args: object, **kwargs: object) -> object:
        if self.threads[threading.get_ident()]:
            return True
        return None if self.before is None else self.before(*args, **kwargs)


def _resources(kernel: Any) -> Resources:
    binary, spills = Target.binary_among(kernel.asm), getattr(kernel, "n_spills", None)
    return Resources(
        registers=getattr(kernel, "n_regs", None),
        spill_bytes=None if spills is None else spills * _SPILL_UNIT_BYTES,
        shared_bytes=getattr(kernel.metadata, "shared", None),
        binary=binary_digest(binary) if binary else None,
    )


def binary_digest(binary: bytes) -> str:
    """The fingerprint of a binary, as in `Resources.binary`."""
    return hashlib.sha256(binary).hexdigest()[:32]


def together(parts: Sequence[Resources]) -> Resources:
    """The resources of a config that launches several kernels: of each kind the most that one takes.

    The binary is the fingerprint of all. The instructions are those of the first kernel that uses the matrix unit, and
    the loads the narrowest.
    """
    if len(parts) == 1:
        return parts[0]
    digests = [part.binary for part in parts if part.binary is not None]
    mma = [part.mma for part in parts if part.mma is not None]
    return Resources(
        registers=_most(part.registers for part in parts),
        spill_bytes=_most(part.spill_bytes for part in parts),
        shared_bytes=_most(part.shared_bytes for part in parts),
        binary=fingerprint(digests) if digests and len(digests) == len(parts) else None,
        stack_bytes=_most(part.stack_bytes for part in parts),
        mma=next((name for name in mma if name != "none"), next(iter(mma), None)),
        load_bytes=min((part.load_bytes for part in parts if part.load_bytes is not None), default=None),
        serialised=max((part.serialised for part in parts if part.serialised is not None), default=None),
    )


def traits_of(kernels: Sequence[Any]) -> dict[str, Any]:
    """The fields of `Executable` that code decides, such as `tf32`, `narrow_sums`, `atomics` and `compilation`."""
    texts = [text for kernel in kernels if isinstance(text := kernel.asm.get("ttir"), str)]
    hashes = [getattr(kernel, "hash", None) for kernel in kernels]
    return {
        "tf32": _in_one(kernels, _TF32), "narrow_sums": _in_one(kernels, _NARROW_SUMS),
        "narrow_steps": any(map(rounds_between, texts)) if texts else None,
        "atomics": _in_one(kernels, _ATOMICS), "suspect": lambda: suspicion(kernels),
        "compilation": None if None in hashes else fingerprint(hashes),
    }  # fmt: skip


def rounds_between(ttir: str) -> bool:
    """Tell whether code goes on to compute with what it has rounded to 16 bits: products, sums or casts.

    A cast that only a product of tiles takes is none, since the operands of those have 16 bits.
    """
    casts = {name: operation == "arith.truncf" for name, operation in _ROUNDED.findall(ttir)}
    return any(
        operation.startswith(("arith.", "math.")) if casts[name] else not _STORES.match(operation)
        for operation, rest in (_USES.findall(ttir) if casts else ())
        for name in re.findall(r"%\w+", rest)
        if name in casts
    )


def _in_one(kernels: Sequence[object], words: Mapping[str, re.Pattern[str]]) -> bool | None:
    answers = [_in_code(kernel, words) for kernel in kernels]
    return True if True in answers else (None if None in answers else False)


def _in_code(kernel: Any, words: Mapping[str, re.Pattern[str]]) -> bool | None:
    """Tell whether some instruction is in the compiled code; None where no form of the code is known to tell."""
    for form, word in words.items():
        if isinstance(text := kernel.asm.get(form), str):
            return word.search(text) is not None
    return None


def _most(numbers: Iterable[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)
