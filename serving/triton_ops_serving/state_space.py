"""vLLM's update of a state space as an operation: its own function, whose choice of a config is the candidate.

A step is one token of each of some sequences: states in the cache are updated in place, each in a slot of its own. The
reference is plain PyTorch.

Facts used, of vLLM 0.33: slot 0 of the cache stands for no sequence. The first Mamba has a step, a decay and a gate for
each column, with no heads; the second one those of a head for all its columns, which the kernel is told by strides of
0, and its gate comes later. A row is for sequences times heads: one that is below a rank's heads is for fewer heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from triton_ops import ConfigSpace, Operation, TensorSpec, Work
from triton_ops.base import require
from triton_ops.values import Problem
from triton_ops_serving import kernels
from triton_ops_serving.model import EngineProblem

_MODULE = "vllm.model_executor.layers.mamba.ops.mamba_ssm"
_NAMES = ("selective_state_update", "try_get_optimal_ssm_config", "_get_default_ssm_launch_config", "current_platform")
_HERE = SimpleNamespace(accelerator=SimpleNamespace(device_index=nullcontext))
"""What the function takes of torch: its guard of a device, which is the current one, and in a compile there is none."""
_WIDEST = 128  # columns of a tile, of which each has all of a state


def _launcher(update: Callable[..., Any]) -> Callable[..., Any]:
    def state_space(
        state: Any, x: Any, dt: Any, decay: Any, b: Any, c: Any, d: Any, bias: Any, gate: Any, slots: Any,
        *, BLOCK_SIZE_M: int, num_warps: int,  # noqa: N803
    ) -> tuple[Any, Any]:  # fmt: skip
        config = BLOCK_SIZE_M, num_warps
        launch = kernels.answered(update, try_get_optimal_ssm_config=lambda *_: config, torch=_HERE)
        dt, decay, d, bias = _by_column(state, dt, decay, d, bias)
        out = x.new_empty(x.shape)
        launch(
            state, x, dt, decay, b, c, d, bias, z=gate, dt_softplus=True, state_batch_indices=slots,
            dst_state_batch_indices=slots, out=out,
        )  # fmt: skip
        return out, state

    return state_space


def _by_column(state: Any, dt: Any, decay: Any, d: Any, bias: Any) -> tuple[Any, ...]:
    """Steps, decays, and what is added, for each column: without copies where a head has one for all its columns."""
    width, depth = state.shape[-2:]
    if decay.ndim > 1:
        return dt, decay, d, bias
    heads = decay[:, None, None].expand(-1, width, depth)
    return dt[..., None].expand(*dt.shape, width), heads, *(each[:, None].expand(-1, width) for each in (d, bias))


def reference(
    state: Any, x: Any, dt: Any, decay: Any, b: Any, c: Any, d: Any, bias: Any, gate: Any, slots: Any
) -> tuple[Any, Any]:
    """What a step gives, and the cache after it."""
    torch, at, dtype = require("torch", "the reference of a state space"), slots.long(), x.dtype
    dt, decay, d, bias = _by_column(state, dt, decay, d, bias)
    wide = torch.promote_types(dtype, torch.float32)
    x, dt, decay, b, c, d, bias = (each.to(wide) for each in (x, dt, decay, b, c, d, bias))
    b, c = (each.repeat_interleave(x.shape[1] // each.shape[1], dim=1)[..., None, :] for each in (b, c))
    step = torch.nn.functional.softplus(dt + bias)
    new = state[at].to(wide) * (decay * step[..., None]).exp() + b * (step * x)[..., None]
    out = (new * c).sum(-1) + x * d
    if gate is not None:
        out = out * torch.nn.functional.silu(gate.to(wide))
    after = state.clone()
    after[at] = new.to(state.dtype)
    return out.to(dtype), after


def _decays(*shape: int) -> Any:
    """Rates of decay as models begin with: -1 to -16, over the last axis."""
    torch = require("torch", "filling a state space")
    return -(1.0 + torch.arange(math.prod(shape), dtype=torch.float32) % 16).view(shape)


def _slots(count: int) -> Any:
    """The slot of each sequence in a random order, alike each time."""
    torch = require("torch", "filling a state space")
    return torch.randperm(count, generator=torch.Generator().manual_seed(count)).int() + 1


def work_of(problem: Problem) -> Work:
    """The work of a step: each state that is in use is read and written once."""
    state, x = problem.specs["state"], problem.specs["x"]
    values = math.prod(x.shape) * state.shape[-1]
    return Work(6.0 * values, 2.0 * values * state.nbytes / math.prod(state.shape) + 2.0 * x.nbytes)


def operation_of(problem: EngineProblem, served: kernels.Served) -> Operation:
    """The operation whose one extent is sequences times heads; its default is the config that the engine takes."""
    width, depth, cache = (problem.facts[name] for name in ("headdim", "dstate", "cache_dtype"))
    heads, groups = problem.extents["heads"], problem.extents.get("groups")
    module = kernels.imported(_MODULE, *_NAMES)
    tiles = [each for each in (4, 8, 16, 32, 64, _WIDEST) if each < 2 * width]
    values = {"BLOCK_SIZE_M": tuple(tiles), "num_warps": (1, 2, 4, 8)}

    def arguments(batch: int = 16) -> dict[str, Any]:
        mine = min(heads, batch)
        count, dtype = max(1, batch // mine), served.dtype
        own, parts = ((), math.gcd(mine, groups)) if groups else ((width,), 1)
        decay = (mine, *(() if groups else (width, depth)))
        return {
            "state": TensorSpec((count + 1, mine, width, depth), cache), "x": TensorSpec((count, mine, width), dtype),
            "dt": TensorSpec((count, mine, *own), dtype), "decay": TensorSpec(decay, "float32", fill=_decays(*decay)),
            "b": TensorSpec((count, parts, depth), dtype), "c": TensorSpec((count, parts, depth), dtype),
            "d": TensorSpec((mine, *own), dtype), "bias": TensorSpec((mine, *own), dtype),
            "gate": None if groups else TensorSpec((count, mine, width), dtype),
            "slots": TensorSpec((count,), "int32", fill=_slots(count)),
        }  # fmt: skip

    def space(instance: Problem) -> ConfigSpace:
        tile, warps = module._get_default_ssm_launch_config(depth, _is_blackwell(module))
        batch = math.prod(instance["x"].shape[:2])
        return kernels.space_of(values, served.row(batch) or {"BLOCK_SIZE_M": tile, "num_warps": warps})

    kernel = kernels.EngineKernel(_launcher(module.selective_state_update), label=problem.form)
    return Operation(problem.form, kernel, space, arguments, reference=reference, work=work_of)


def _is_blackwell(module: Any) -> bool:
    """As the engine's layer asks it."""
    return bool(module.current_platform.is_cuda() and module.current_platform.is_device_capability_family(100))
