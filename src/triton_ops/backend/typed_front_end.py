"""TTIR of a kernel whose parameters are said by their types, without arguments, launches and devices.

Facts used, of Triton 3.6 to 3.9: `ASTSource(fn, signature, constexprs, attrs)` with a type for each parameter in order,
`constexpr` for those whose values are in `constexprs`; `make_backend(target)` has `add_stages`, whose `ttir` comes
first; a module printed with `str` has the places of the source.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Mapping
from typing import Any

from triton_ops._optional import require
from triton_ops.hardware import Target

CONSTANT = "constexpr"


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
    require("triton", "lowering a kernel")
    compiler = importlib.import_module("triton.compiler.compiler")
    ir = importlib.import_module("triton._C.libtriton").ir
    arch = target.capability if target.kind == "cuda" else target.arch
    goal = importlib.import_module("triton.backends.compiler").GPUTarget(target.kind, arch, target.warp_size)
    backend = compiler.make_backend(goal)
    source = compiler.ASTSource(function, dict(types), dict(constants), {})
    options = backend.parse_options({})
    stages: dict[str, Any] = {}
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    backend.add_stages(stages, options, source.language)
    with contextlib.redirect_stdout(io.StringIO()):  # static_print, and what the compiler says of an error
        module = source.make_ir(
            goal, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
        )
        return str(stages["ttir"](module, {}))
