"""Kernels lowered and compiled by the types of their parameters alone, without a launch.

Facts used, of Triton 3.6 to 3.9: `ASTSource(fn, signature, constexprs, attrs)` with a type for each parameter in order,
`constexpr` for those whose values are in `constexprs`; `make_backend(target)` has `add_stages`, whose `ttir` comes
first; a module printed with `str` has the places of the source.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from triton_ops.backend.offline import Built
from triton_ops.base import require
from triton_ops.device import Target


def ttir_of(function: Any, types: Mapping[str, str], constants: Mapping[str, Any], target: Target) -> str:
    """The text of a kernel's TTIR, with the places of the source.

    Args:
        function: The JIT function.
        types: The type of each parameter, in order, such as `*bf16`, `i32` or `constexpr`.
        constants: Values of the parameters whose type is `constexpr`.
        target: What to lower for; below `sm_90` tensor descriptors become pointers and masks.

    Cost: 10 to 40 ms.

    Raises:
        Exception: Whatever Triton's front end raises.
    """
    compiler, goal = _compiler(target)
    ir = importlib.import_module("triton._C.libtriton").ir
    backend = compiler.make_backend(goal)
    source = compiler.ASTSource(function, dict(types), dict(constants), {})
    options = backend.parse_options({})
    stages: dict[str, Any] = {}
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    backend.add_stages(stages, options, source.language)
    with _quiet():
        module = source.make_ir(
            goal, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
        )
        return str(stages["ttir"](module, {}))


def binary_of(
    function: Any, types: Mapping[str, str], constants: Mapping[str, Any], target: Target, options: Mapping[str, int]
) -> Built:
    """The compiled kernel, whose pointers and whole numbers are taken as multiples of 16.

    Args:
        function: The JIT function.
        types: As for `ttir_of`.
        constants: As for `ttir_of`.
        target: What to compile for.
        options: Launch options, such as `num_warps`.

    Cost: 0.1 to some seconds; 1 ms from Triton's disk cache.

    Raises:
        Exception: Whatever Triton and the assembler raise.
    """
    compiler, goal = _compiler(target)
    even = [["tt.divisibility", 16]]
    whole = {(at,): even for at, kind in enumerate(types.values()) if kind.startswith("*") or kind in ("i32", "i64")}
    source = compiler.ASTSource(function, dict(types), dict(constants), whole)
    with _quiet():
        kernel = compiler.compile(source, target=goal, options=dict(options))
    binary, assembly = ("cubin", "ptx") if target.kind == "cuda" else ("hsaco", "amdgcn")
    return Built(kernel.asm[binary], kernel.asm[assembly], kernel.metadata._asdict(), kernel.hash)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Print nothing and warn of nothing: `static_print`, what is deprecated, an assembler's whole input."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _compiler(target: Target) -> tuple[Any, Any]:
    require("triton", "lowering a kernel")
    arch = target.capability if target.kind == "cuda" else target.arch
    goal = importlib.import_module("triton.backends.compiler").GPUTarget(target.kind, arch, target.warp_size)
    return importlib.import_module("triton.compiler.compiler"), goal
