"""Tensors among the arguments of a kernel, also those inside tuples, lists, dicts and Triton's tensor descriptors.

Fact used, from Triton 3.6 to 3.9: the host's tensor descriptors, Triton's and Gluon's, are plain objects with the
attributes `base`, `shape`, `strides` and `block_shape`, and a kernel's launch reads them each time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_DESCRIPTOR_PARTS = ("base", "shape", "strides", "block_shape")


def is_tensor(value: Any) -> bool:
    """Tell whether `value` is a torch tensor, and not the class of one, told without importing torch."""
    return all(hasattr(value, name) for name in ("data_ptr", "untyped_storage", "stride")) and not isinstance(
        value, type
    )


def is_descriptor(value: Any) -> bool:
    """Tell whether `value` is a tensor descriptor made on the host, told without importing Triton."""
    return all(hasattr(value, name) for name in _DESCRIPTOR_PARTS) and not isinstance(value, type)


def tensors_in(values: Iterable[Any], leaf: Callable[[Any], bool] = is_tensor) -> Iterator[Any]:
    """The torch tensors in `values`, to any depth; `leaf` says which other values are meant instead."""
    for value in values:
        if leaf(value):
            yield value
        elif isinstance(value, Mapping):
            yield from tensors_in(value.values(), leaf)
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value, leaf)
        elif is_descriptor(value):
            yield from tensors_in((value.base,), leaf)


def mapped(value: Any, change: Callable[[Any], Any], leaf: Callable[[Any], bool] = is_tensor) -> Any:
    """`value` with `change` applied to every leaf in it; containers and descriptors are made anew around the results.

    Args:
        value: An argument.
        change: From a leaf to what replaces it.
        leaf: Says which values are replaced; by default the torch tensors.
    """
    if leaf(value):
        return change(value)
    if isinstance(value, Mapping):
        return {name: mapped(item, change, leaf) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):  # a named tuple
        return value._make(mapped(item, change, leaf) for item in value)
    if type(value) in (tuple, list):
        return type(value)(mapped(item, change, leaf) for item in value)
    if is_descriptor(value):
        return _with_base(value, mapped(value.base, change, leaf))
    return value


def _with_base(descriptor: Any, base: Any) -> Any:
    """A descriptor of its own over `base`: hooks change descriptors, and one must not see what another has changed."""
    duplicate = copy.copy(descriptor)
    duplicate.base = base
    for name in _DESCRIPTOR_PARTS[1:]:
        setattr(duplicate, name, list(getattr(descriptor, name)))
    return duplicate
