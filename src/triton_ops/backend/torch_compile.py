"""Requests to `torch.compile`, as a compiled callable keeps them: backend, mode, options, dynamic shapes.

The wrapper that torch puts around a function looks like the function itself (`functools.wraps`), and runs other code.
Facts used, of torch 2.13; what another version does not tell makes a callable unknown. The wrapper is a function of the
module `torch._dynamo.eval_frame`, and its variable `self` is the context of the compilation. A compiled module is an
`OptimizedModule` with the context in `dynamo_ctx`. The context's `callback` leads to the backend through
`_torchdynamo_orig_backend`, earlier `_torchdynamo_orig_callable`. The backend that `torch.compile` makes has `config`
(Inductor), or `compiler_fn` and `kwargs` (others). The module `torch._inductor.config` gives all settings by
`get_config_copy`, and its `_config` has an entry with the default of each; torch before 2.6 has neither.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FunctionType
from typing import Any

_MODULE = "torch._dynamo.eval_frame"
_INDUCTOR_SETTINGS = "torch._inductor.config"
_ORIGINAL = "_torchdynamo_orig_callable"
_ASKED = ("fullgraph", "_dynamic", "_shapes_spec", "_hooks")  # attributes of a context that change what is compiled


def compilation_of(value: Any) -> Mapping[str, Any] | None:
    """The callable that `value` compiles, and the request; None if torch's compiler did not make `value`.

    Raises:
        LookupError: The compiler made it, and this version of torch does not tell how it was asked to.
    """
    if isinstance(value, FunctionType):
        if value.__globals__.get("__name__") != _MODULE or _ORIGINAL not in vars(value):
            return None
        cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=False))
        return {"of": vars(value)[_ORIGINAL], **_request(cells["self"].cell_contents if "self" in cells else None)}
    if type(value).__module__ == _MODULE and "_orig_mod" in getattr(value, "_modules", ()):
        return {"of": value._modules["_orig_mod"], **_request(vars(value).get("dynamo_ctx"))}
    return None


def _request(context: Any) -> dict[str, Any]:
    if not hasattr(context, "callback"):
        raise LookupError("this version of torch does not tell how `torch.compile` was asked to compile it")
    attributes = {name.strip("_"): getattr(context, name, None) for name in _ASKED}
    return {
        "context": type(context).__name__,
        **attributes,
        **_backend(context.callback),
        "changed": _changed_settings(),
    }


def _changed_settings() -> dict[str, Any]:
    """The settings of Inductor that differ from their defaults, by name; none where Inductor is not imported.

    Raises:
        LookupError: This version of torch does not tell the defaults.
    """
    settings = sys.modules.get(_INDUCTOR_SETTINGS)
    if settings is None:
        return {}
    entries, snapshot = getattr(settings, "_config", {}), getattr(settings, "get_config_copy", None)
    if snapshot is None:
        raise LookupError("this version of torch does not tell which settings of Inductor were changed")
    return {name: value for name, value in sorted(snapshot().items()) if value != entries[name].default}


def _backend(callback: Any) -> dict[str, Any]:
    """The innermost backend; not its name, which of an object may be its address."""
    while (inner := _inner(callback)) is not None:
        callback = inner
    if hasattr(callback, "config"):
        return {"backend": type(callback).__name__, "options": callback.config}
    if hasattr(callback, "compiler_fn"):
        return {"backend": callback.compiler_fn, "options": getattr(callback, "kwargs", None)}
    return {"backend": callback}


def _inner(callback: Any) -> Any:
    return getattr(callback, "_torchdynamo_orig_backend", None) or getattr(callback, _ORIGINAL, None)
