"""Kernels as Triton has compiled them: how they are loaded, what they take, and what failed.

Facts used, from Triton 3.6 to 3.9: `CompiledKernel._init_handles()` loads the binary and raises `OutOfResources`
without launching; `n_spills` counts 4-byte registers; a failing ptxas prints its whole input to stdout.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from triton_ops._hashing import fingerprint
from triton_ops.backend.assembler import suspicion
from triton_ops.backend.errors import CandidateError, candidate_error, not_of_the_config
from triton_ops.exceptions import CacheError
from triton_ops.resources import Resources
from triton_ops.trial import Status

_SPILL_UNIT_BYTES = 4
_TF32 = {"ptx": re.compile(r"\.tf32\b"), "ttir": re.compile(r"inputPrecision = tf32")}
_ATOMICS = {
    "ptx": re.compile(r"\b(?:atom|red|multimem\.red|cp\.reduce\.async\.bulk)\."), "ttir": re.compile(r"tt\.\w*atomic"),
}  # fmt: skip


def loaded(make: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """Triton's compiled kernels from `make`, loaded on the device.

    Raises:
        CandidateError: `compile` if the compiler refused one, `resources` if the device cannot hold one.
        CacheError: The compiler cannot write its files, as on a full disk.
    """
    said = io.StringIO()  # ptxas' input, on failure: a thousand lines that belong to nobody
    try:
        with contextlib.redirect_stdout(said):
            made = make()
            for compiled in made:
                compiled._init_handles()
    except Exception as error:
        raise compile_error(error) from error
    return made


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
    """Says of some threads that they shall not compile, and for all others what the hook before it says."""

    lock = threading.Lock()

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self.before = before
        self.threads: Counter[int] = Counter()  # how many blocks each of them is in

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self.threads[threading.get_ident()]:
            return True
        return None if self.before is None else self.before(*given, **named)


def resources_of(made: Sequence[Any]) -> Resources:
    """The resources of loaded kernels that one config launches: of each kind the most that one of them takes."""
    binaries = [compiled.asm.get("cubin") or compiled.asm.get("hsaco") for compiled in made]
    digests = [hashlib.sha256(binary).hexdigest()[:32] for binary in binaries if binary]
    spills = most(getattr(compiled, "n_spills", None) for compiled in made)
    return Resources(
        registers=most(getattr(compiled, "n_regs", None) for compiled in made),
        spill_bytes=None if spills is None else spills * _SPILL_UNIT_BYTES,
        shared_bytes=most(getattr(compiled.metadata, "shared", None) for compiled in made),
        binary=one_of(digests) if len(digests) == len(made) else None,
    )


def traits_of(made: Sequence[Any]) -> dict[str, Any]:
    """What `Executable` says of code: `tf32`, `atomics`, `compilation` and `suspect`."""
    hashes = [getattr(compiled, "hash", None) for compiled in made]
    return {
        "tf32": _in_one(made, _TF32), "atomics": _in_one(made, _ATOMICS), "suspect": lambda: suspicion(made),
        "compilation": None if None in hashes else fingerprint(hashes),
    }  # fmt: skip


def _in_one(made: Sequence[Any], words: Mapping[str, re.Pattern[str]]) -> bool | None:
    found = [_in_code(compiled, words) for compiled in made]
    return True if True in found else (None if None in found else False)


def _in_code(compiled: Any, words: Mapping[str, re.Pattern[str]]) -> bool | None:
    """Whether some instruction is in the compiled code; None where no form of the code is known to tell."""
    for form, word in words.items():
        if isinstance(text := compiled.asm.get(form), str):
            return word.search(text) is not None
    return None


def most(numbers: Iterable[int | None]) -> int | None:
    """The largest of the numbers that are known; None if none is."""
    return max((number for number in numbers if number is not None), default=None)


def one_of(digests: Sequence[str]) -> str | None:
    """The fingerprint of several binaries together; of a single one its own."""
    return fingerprint(list(digests)) if len(digests) > 1 else next(iter(digests), None)


def compile_error(error: Exception) -> CandidateError | CacheError:
    """What Triton raised while it compiled, as the config's failure, or as that of its disk cache."""
    cache = importlib.import_module("triton.knobs").cache.dir
    return not_of_the_config(error, str(cache)) or candidate_error(error, Status.COMPILE)
