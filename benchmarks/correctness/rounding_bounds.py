"""How far rounding alone can take results from the exact ones, element by element.

The rule for verdicts takes its yardstick from the size of a result. The weights of attention are exponentials, whose
relative error grows with the score: with scores of hundreds two correct kernels are apart. Where a result is a
difference of equal numbers, as the gradient of scores is where a query sees one key or gives nearly all weight to one,
or that of a layer norm over one column or two, nothing is left but the rounding of what was subtracted, and two correct
kernels have nothing in common. There the sizes of what is added up tell how far off a result may be: a worst case, and
so wider than the rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

_SUM = 2.0**-24  # the unit of float32, in which all is added up
_VANISHING = 2.0**-126  # of float32: what is smaller may be 0
_EXPONENTIAL = 2.0**-20  # relative error of an exponential as hardware approximates it


def attention_excess(values: Mapping[str, Any], results: Sequence[Any]) -> float:
    """The largest error of a result of attention divided by what rounding can do.

    It is infinite where the exact result is NaN or infinite and the found one is anything else. A score is a sum in
    trees of short chains, so that its error grows with the root of the head's size.

    Args:
        values: The arguments of `attention`, by name.
        results: The result.
    """
    q, k, v, hidden = _by_head(values)
    unit, least = _rounding_of_weights(values["q"].dtype)
    scores = (q @ k.mT * values["scale"]).masked_fill(hidden, -math.inf)
    p = torch.softmax(scores, -1).masked_fill(hidden, 0.0)  # of a row that sees nothing, 0 and not NaN
    off = p * (_EXPONENTIAL + _SUM * (8 + math.sqrt(q.shape[3])) * 2 * (q.abs() @ k.abs().mT * values["scale"]))
    right = (p @ v).masked_fill(hidden.all(-1)[:, None], 0.0)  # whatever the values hold that no query sees
    each = off + (unit + _SUM * (k.shape[2] + 8)) * p + least + _VANISHING
    return _excess(results, [right], [each @ v.abs() + off.sum(-1, keepdim=True) * right.abs()])


def attention_gradient_excess(values: Mapping[str, Any], results: Sequence[Any]) -> float:
    """The largest error of dq, dk and dv divided by what rounding can do; infinite as of `attention_excess`.

    Args:
        values: The arguments of `attention_backward`, by name.
        results: dq, dk and dv.
    """
    return _excess(results, *_exact_and_bounds(values))


def layer_norm_gradient_excess(values: Mapping[str, Any], results: Sequence[Any]) -> float:
    """The largest error of dx, dweight and dbias divided by what rounding can do; infinite as of `attention_excess`.

    Args:
        values: The arguments of `layer_norm_backward`, by name.
        results: dx, dweight and dbias.
    """
    x, grad = (values[name].double() for name in ("x", "grad"))
    g = grad if values["weight"] is None else grad * values["weight"].double()
    rows, columns = x.shape
    along, down = (_SUM * (8 + math.sqrt(terms)) for terms in (columns, rows))  # sums are trees of short chains
    apart = x - _mean(x)
    scale = (_mean(apart.square()) + values["eps"]).rsqrt()
    n = apart * scale
    n_off = along * scale * (x.abs() + _mean(x.abs()))
    n_off = n_off + n.abs() * (_mean(n.abs() * n_off) + along)
    sizes = g.abs() + _mean(g.abs()) + n.abs() * _mean((g * n).abs())
    dx = scale * (g - _mean(g) - n * _mean(g * n))
    dx_off = scale * (along * sizes + n_off * _mean(g * n).abs() + n.abs() * _mean(g.abs() * n_off))
    dx_off = dx_off + dx.abs() * (_mean(n.abs() * n_off) + along)
    dweight_off = (grad.abs() * n_off + down * (grad * n).abs()).sum(0)
    exact = [dx, (grad * n).sum(0), grad.sum(0)]
    return _excess(results, exact, [dx_off, dweight_off, down * grad.abs().sum(0)])


def _mean(values: Any) -> Any:
    return values.mean(1, keepdim=True)


def _excess(results: Sequence[Any], exact: Sequence[Any], bounds: Sequence[Any]) -> float:
    """The largest error divided by what is allowed: the bound, and rounding to the result's dtype."""
    worst = 0.0
    for result, right, bound in zip(results, exact, bounds, strict=True):
        strange = ~torch.isfinite(right)
        same = (result.double() == right) | (result.isnan() & right.isnan())
        if not bool(same[strange].all()):
            return math.inf
        finite = torch.isfinite(right) & torch.isfinite(bound)
        error = torch.nan_to_num((result.double() - right).abs(), nan=math.inf)[finite]
        allowed = bound[finite] + torch.finfo(result.dtype).eps / 2 * right[finite].abs() + _least(result.dtype)
        worst = max(worst, float((error / allowed).max()) if error.numel() else 0.0)
    return worst


def _exact_and_bounds(values: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    group = values["q"].shape[1] // values["k"].shape[1]
    out, lse, grad = (values[name].double() for name in ("out", "lse", "grad"))
    q, k, v, hidden = _by_head(values)
    scale, (unit, least) = values["scale"], _rounding_of_weights(values["q"].dtype)
    blind = lse[..., None] == -math.inf
    p = torch.exp(q @ k.mT * scale - lse[..., None]).masked_fill(hidden | blind, 0.0)
    apart = grad @ v.mT - (out * grad).sum(-1, keepdim=True)
    exponent = (q.abs() @ k.abs().mT * scale + lse[..., None].abs()).masked_fill(hidden | blind, 0.0)
    p_share = _EXPONENTIAL + _SUM * (q.shape[3] + 8) * exponent
    sizes = grad.abs() @ v.abs().mT + (out * grad).abs().sum(-1, keepdim=True)
    ds, ds_off = p * apart, p * (p_share * apart.abs() + _SUM * (v.shape[3] + 8) * sizes) + _VANISHING * (1 + sizes)
    ds_off = ds_off + unit * (ds.abs() + ds_off) + least
    p_off = (p_share + unit) * p + least + _VANISHING
    products = {
        "dq": (ds, ds_off, k, scale),
        "dk": (ds.mT, ds_off.mT, q, scale),
        "dv": (p.mT, p_off.mT, grad, 1.0),
    }
    exact, bounds = [], []
    for name, (weights, off, factor, by) in products.items():
        terms = weights.shape[-1] * group + 8
        right = weights @ factor * by
        bound = (off + _SUM * terms * weights.abs()) @ factor.abs() * by
        exact.append(_shared(right, group) if name != "dq" else right.masked_fill(blind, 0.0))
        bounds.append(_shared(bound, group) if name != "dq" else bound)
    return exact, bounds


def _by_head(values: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    """q, k and v of each head of queries in float64, and which keys are hidden from which queries."""
    group = values["q"].shape[1] // values["k"].shape[1]
    q, (k, v) = values["q"].double(), (values[name].double().repeat_interleave(group, 1) for name in ("k", "v"))
    queries, keys = q.shape[2], k.shape[2]
    hidden = torch.zeros(queries, keys, dtype=torch.bool, device=q.device)
    if values["CAUSAL"]:
        hidden = torch.ones_like(hidden).triu(keys - queries + 1)
    return q, k, v, hidden


def _rounding_of_weights(dtype: Any) -> tuple[float, float]:
    """The relative and the least error of weights that are rounded to `dtype`: none to one of more than 16 bits."""
    return (0.0, 0.0) if dtype.itemsize > 2 else (torch.finfo(dtype).eps / 2, _least(dtype))


def _shared(each: Any, group: int) -> Any:
    """The sum over the heads of queries that share a head of keys."""
    return each.unflatten(1, (-1, group)).sum(2)


def _least(dtype: Any) -> float:
    """Half the distance of the smallest numbers."""
    return float(torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps / 2)
