"""The rivals of attention and of its gradient: the fastest of torch's fused ones at a problem, cuDNN's included."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from triton_ops._optional import require
from triton_ops.comparison.timing import time_ms
from triton_ops.exceptions import TargetError

_log = logging.getLogger("triton_ops")
_BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")
_TRIED_MS = 20.0


Call = Callable[..., Any]


def fused_attention(torch: Any, values: Mapping[str, Any]) -> Call:
    """The fastest backend of `scaled_dot_product_attention` that takes the problem; torch's own choice if none does.

    Args:
        torch: The module.
        values: The arguments of the operation `attention` by name.

    Cost: some calls of each backend.
    """
    return _fastest(torch, values, lambda backend: _by_backend(torch, backend, values)) or plain_attention(torch)


def fused_attention_backward(torch: Any, values: Mapping[str, Any]) -> Call:
    """The same for the gradient: that of a forward pass, made before, whose inputs stay where they are.

    Args:
        torch: The module.
        values: The arguments of the operation `attention_backward` by name.

    Cost: some calls of each backend.
    """
    found = _fastest(torch, values, lambda backend: _gradients(torch, _by_backend(torch, backend, values), values))
    return found or _gradients(torch, plain_attention(torch), values)


def _gradients(torch: Any, forward: Call, values: Mapping[str, Any]) -> Call:
    inputs = [values[name].detach().clone().requires_grad_() for name in ("q", "k", "v")]
    with torch.enable_grad():
        found = forward(*inputs, scale=values["scale"], CAUSAL=values["CAUSAL"])

    def gradients(grad: Any, **_given: Any) -> Any:
        return torch.autograd.grad(found, inputs, grad, retain_graph=True)

    return gradients


def _fastest(torch: Any, values: Mapping[str, Any], made: Callable[[Any], Call]) -> Call | None:
    """Of what is made for each backend, that with the least time; None if all fail."""
    times: dict[float, Call] = {}
    for name in _BACKENDS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says in one for each backend why it does not take the problem
                call = made(getattr(torch.nn.attention.SDPBackend, name))
                took = time_ms(call, kwargs=values, warmup_ms=_TRIED_MS / 4, rep_ms=_TRIED_MS).median_ms
        except (TargetError, RuntimeError) as error:
            _log.info("%s takes no such attention: %s", name, error)
            continue
        _log.info("%s: %.4f ms", name, took)
        times[took] = call
    return times[min(times)] if times else None


def plain_attention(torch: Any) -> Call:
    """`scaled_dot_product_attention` with the backend that torch chooses."""

    def attention(q: Any, k: Any, v: Any, scale: float, CAUSAL: bool, **_given: Any) -> Any:
        return _attended(torch, q, k, v, scale, CAUSAL)

    return attention


def _by_backend(torch: Any, backend: Any, values: Mapping[str, Any]) -> Call:
    seen = None
    if values["CAUSAL"] and "FLASH" not in str(backend):
        seen = _mask(torch, values["q"], values["k"])

    def attention(q: Any, k: Any, v: Any, scale: float, CAUSAL: bool, **_given: Any) -> Any:
        with torch.nn.attention.sdpa_kernel(backend):
            return _attended(torch, q, k, v, scale, CAUSAL, seen)

    return attention


def _attended(torch: Any, q: Any, k: Any, v: Any, scale: float, causal: bool, mask: Any = None) -> Any:
    """Torch's attention with the mask in which the last query sees all keys."""
    queries, keys = q.shape[2], k.shape[2]
    square = causal and queries == keys and queries > 1
    if causal and queries not in (1, keys):
        bias = require("torch.nn.attention.bias", "comparing kernels")
        mask = bias.causal_lower_right(queries, keys) if mask is None else mask
    else:
        mask = None
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, mask, is_causal=square, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )


def _mask(torch: Any, q: Any, k: Any) -> Any:
    queries, keys = q.shape[2], k.shape[2]
    return torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
