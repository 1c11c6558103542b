"""Kernels as Triton has compiled them: how they are loaded, what they take, and what failed.

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
import logging
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from triton_ops.backend.portable import pack, unpack
from triton_ops.backend.roles import CandidateError
from triton_ops.backend.triton_process import suspicion
from triton_ops.base import fingerprint, require
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.values import Resources

_log = logging.getLogger("triton_ops")
_MODULE = "triton.runtime._allocation"


class ScratchAllocator:
    """The allocator that a launch asks for memory: the user's, where one is set, else torch's memory."""

    @staticmethod
    def around(launch: Callable[[], Any]) -> Callable[[], Any]:
        """`launch` with an allocator, for the time of the call, if none is set then."""
        variable = _variable()

        def launch_with_memory() -> Any:
            if _is_set(variable):
                return launch()
            token = variable.set(_from_torch)
            try:
                return launch()
            finally:
                variable.reset(token)

        return launch_with_memory

    @staticmethod
    def packed() -> bytes | None:
        """The user's allocator as bytes; None if there is none, or it exists in this process only."""
        if _MODULE not in sys.modules or not _is_set(_variable()):
            return None
        try:
            return pack(_variable().get()).content
        except (KernelTypeError, TargetError):  # the default allocator serves as well
            return None

    @staticmethod
    def take(content: bytes) -> None:
        """Make the user's allocator that of this context; torch's memory is taken where it cannot be made again."""
        try:
            require("triton", "launching kernels").set_allocator(unpack(content))
        except KernelTypeError as error:
            _log.warning(
                "kernels are given torch's memory, and not that of the allocator that was set: %s", error.message
            )


@lru_cache(maxsize=1)
def _variable() -> Any:
    return importlib.import_module(_MODULE)._allocator


def _is_set(variable: Any) -> bool:
    return type(variable.get()).__name__ != "NullAllocator"


def _from_torch(size: int, _alignment: int, _stream: int | None) -> Any:
    """Memory of the current device; torch's allocator aligns it to 512 bytes, and Triton asks for 128 at most."""
    torch = require("torch", "memory that a kernel asks for")
    return torch.empty(size, dtype=torch.int8, device="cuda")


_SPILL_UNIT_BYTES = 4
_TF32 = {"ptx": re.compile(r"\.tf32\b"), "ttir": re.compile(r"inputPrecision = tf32")}
_ATOMICS = {
    "ptx": re.compile(r"\b(?:atom|red|multimem\.red|cp\.reduce\.async\.bulk)\."), "ttir": re.compile(r"tt\.\w*atomic"),
}  # fmt: skip


def loaded(make: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """Triton's compiled kernels from `make`, loaded on the device; fails as `CandidateError.of_compiler`."""
    output = io.StringIO()  # ptxas' input, on failure: a thousand lines that belong to nobody
    try:
        with contextlib.redirect_stdout(output):
            kernels = make()
            for kernel in kernels:
                kernel._init_handles()
    except Exception as error:
        raise CandidateError.of_compiler(error) from error
    return kernels


@contextlib.contextmanager
def nothing_compiled() -> Iterator[None]:
    """Have Triton compile nothing for this thread meanwhile: a kernel without a binary in this process fails.

    Triton asks its `jit_cache_hook` before it compiles, and lets the compilation be where that says so; the launch that
    asked for it then launches nothing. Other threads compile what they want, and the hook that was there is asked for
    them. The hook is given back by the last thread that leaves, unless somebody has set another one meanwhile.
    """
    knobs = sys.modules.get("triton.knobs")
    if knobs is None:
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


class _Refusal:
    """A hook that lets some threads compile nothing, and answers for all others as the hook before it."""

    lock = threading.Lock()

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self.before = before
        self.threads: Counter[int] = Counter()  # how many blocks each of them is in

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.threads[threading.get_ident()]:
            return True
        return None if self.before is None else self.before(*args, **kwargs)


def resources_of(kernels: Sequence[Any]) -> Resources:
    """The resources of loaded kernels that one config launches."""
    return together([_resources(kernel) for kernel in kernels])


def _resources(kernel: Any) -> Resources:
    binary, spills = kernel.asm.get("cubin") or kernel.asm.get("hsaco"), getattr(kernel, "n_spills", None)
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
    """The fields of `Executable` that code decides: `tf32`, `atomics`, `compilation` and `suspect`."""
    hashes = [getattr(kernel, "hash", None) for kernel in kernels]
    return {
        "tf32": _in_one(kernels, _TF32), "atomics": _in_one(kernels, _ATOMICS), "suspect": lambda: suspicion(kernels),
        "compilation": None if None in hashes else fingerprint(hashes),
    }  # fmt: skip


def _in_one(kernels: Sequence[Any], words: Mapping[str, re.Pattern[str]]) -> bool | None:
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
