"""Tensor descriptors: made on the host after a rule, and checked before anything is launched.

The hardware takes a descriptor only if its base and every stride but the last are multiples of 16 bytes, and the last
stride is 1. A descriptor that is made in a kernel of other strides reads the wrong memory without a word, so that both
kinds are checked where the strides can be known.

Facts used, from Triton 3.6 to 3.9: `triton.tools.tensor_descriptor.TensorDescriptor` and Gluon's class of that name in
`triton.experimental.gluon.nvidia.hopper`, which takes a layout too; `NVMMASharedLayout.get_default_for`.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

from triton_ops.backend.kernel_source import KernelSource, last_name
from triton_ops.backend.roles import Arguments
from triton_ops.exceptions import KernelTypeError, ShapeMismatchError
from triton_ops.values import ALIGNMENT_BYTES, ITEM_BYTES, TensorSpec, dtype_name

BlockRule: TypeAlias = Sequence["str | int"] | Callable[[Mapping[str, Any]], Sequence[int]]
"""The block shape of a descriptor: extents and names of parameters, or a function of what grid functions are given."""

# Source: CUDA driver API, `cuTensorMapEncodeTiled`, whose rank is 5 at most.
_MOST_AXES = 5
_GLUON_LAYOUTS = "triton.experimental.gluon.language._layouts"
_MAKERS = {False: "triton.tools.tensor_descriptor", True: "triton.experimental.gluon.nvidia.hopper"}


def descriptor(tensor: Any, rule: BlockRule, meta: Mapping[str, Any], *, gluon: bool) -> Any:
    """A descriptor of a tensor, or of a stand-in for one, as a kernel takes it; Gluon's have a layout."""
    own = rule(meta) if callable(rule) else [meta[each] if isinstance(each, str) else each for each in rule]
    return matrix_descriptor(tensor, own, gluon=gluon)


def matrix_descriptor(tensor: Any, block: Sequence[int], *, turned: bool = False, gluon: bool = False) -> Any:
    """A descriptor of a matrix, or of the transposed one, whose neighbours in memory are along its last axis.

    Args:
        tensor: A torch tensor of two axes, or a stand-in for one.
        block: The extents of a block along the tensor's axes.
        turned: Whether the tensor is column-major: the descriptor then shows it transposed, blocks included.
        gluon: Whether the kernel is one of Gluon, whose descriptors have a layout.
    """
    made = object.__new__(importlib.import_module(_MAKERS[gluon]).TensorDescriptor)  # a stand-in fails its checks
    made.base, made.shape, made.strides = tensor, list(tensor.shape), list(tensor.stride())
    made.block_shape = [int(extent) for extent in block]
    if turned:
        made.shape, made.strides, made.block_shape = (
            each[::-1] for each in (made.shape, made.strides, made.block_shape)
        )
    if gluon:
        bits = 8 * ITEM_BYTES[dtype_name(tensor.dtype)]
        layouts = importlib.import_module(_GLUON_LAYOUTS).NVMMASharedLayout
        made.layout = layouts.get_default_for(made.block_shape, SimpleNamespace(primitive_bitwidth=bits))
    return made


def check_declared(kernel: str, rules: Mapping[str, BlockRule], values: Mapping[str, Any]) -> None:
    """Raise unless each argument that a rule describes can be described, and so can descriptors among the arguments.

    The values may be tensors, specs, or anything else. `KernelTypeError` if an argument with a rule is no tensor;
    `ShapeMismatchError` if base or strides are no multiples of 16 bytes, the last stride is not 1, the tensor has more
    than 5 axes or none, or the rule has another number of extents.
    """
    for name, rule in rules.items():
        if name not in values:
            continue
        value = values[name]
        if not (Arguments.is_tensor(value) or isinstance(value, TensorSpec)):
            message = f"{name} of {kernel} is described by a rule, and was given {type(value).__name__}"
            raise KernelTypeError(message, hint="pass the tensor itself; its descriptor is made for each config")
        spec = value if isinstance(value, TensorSpec) else TensorSpec.of(value)
        if not callable(rule) and len(rule) != len(spec.shape):
            raise ShapeMismatchError(
                f"{name} of {kernel} has {len(spec.shape)} axes, and its block shape {tuple(rule)} has {len(rule)}",
                len(rule),
                spec.shape,
                hint="give one extent for each axis",
            )
        _check(name, kernel, spec.strides, spec)
    for name, value in values.items():
        if Arguments.is_descriptor(value) and Arguments.is_tensor(value.base):
            _check(name, kernel, value.strides, TensorSpec.of(value.base))


def check_in_kernel(kernel: str, function: object, values: Mapping[str, object]) -> None:
    """Raise as `check_declared` if the kernel itself describes a tensor with strides that no descriptor can have.

    Only strides are seen that stand in the source as numbers, or as parameters whose arguments are known.
    """
    source = KernelSource.of(function) if hasattr(function, "src") else None
    for base, strides in _described_in(source) if source is not None else ():
        value = values.get(base)
        if Arguments.is_tensor(value) or isinstance(value, TensorSpec):
            spec = value if isinstance(value, TensorSpec) else TensorSpec.of(value)
            numbers = [values.get(stride) if isinstance(stride, str) else stride for stride in strides]
            _check(base, kernel, [step if type(step) is int else None for step in numbers], spec)


def _described_in(source: KernelSource) -> Iterator[tuple[str, list[str | int | None]]]:
    """The parameter and the strides of each `make_tensor_descriptor(parameter, …)`; None for computed strides."""
    for call in (one for one in source.calls if last_name(one) == "make_tensor_descriptor"):
        base, strides = source.argument(call, 0, "base"), source.argument(call, 2, "strides")
        if isinstance(base, ast.Name) and base.id not in source.stores and isinstance(strides, (ast.List, ast.Tuple)):
            yield base.id, [_stride(source, each) for each in strides.elts]


def _stride(source: KernelSource, node: ast.expr) -> str | int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return node.id if isinstance(node, ast.Name) and node.id not in source.stores else None


def _check(name: str, kernel: str, strides: Sequence[int | None], spec: TensorSpec) -> None:
    item = ITEM_BYTES[spec.dtype]
    shown_strides = "x".join("?" if step is None else str(step) for step in strides)
    wrong = ""
    if not 1 <= len(strides) <= _MOST_AXES:
        wrong = f"has {len(strides)} axes; a descriptor has 1 to {_MOST_AXES}"
    elif not spec.aligned:
        wrong = f"does not start at a multiple of {ALIGNMENT_BYTES} bytes"
    elif strides[-1] not in (1, None):
        wrong = f"has strides {shown_strides}; the last one must be 1"
    elif odd := next((step for step in strides[:-1] if step is not None and step * item % ALIGNMENT_BYTES), 0):
        wrong = f"has strides {shown_strides}: {odd} elements are {odd * item} bytes, no multiple of {ALIGNMENT_BYTES}"
    if wrong:
        raise ShapeMismatchError(
            f"{name} of {kernel} is read through a tensor descriptor, and {wrong}",
            f"strides of multiples of {ALIGNMENT_BYTES} bytes, the last 1",
            tuple(strides),
            hint="pad its rows, or make it contiguous",
        )
