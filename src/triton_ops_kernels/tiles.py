"""Host code of kernels that cut a matrix into tiles."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from triton_ops.backend import TritonKernel
from triton_ops.exceptions import ConfigValueError, ShapeMismatchError
from triton_ops.space import Constraint
from triton_ops.values import ALIGNMENT_BYTES, ITEM_BYTES, TensorSpec
from triton_ops_kernels.call import multiprocessors

_log = logging.getLogger("triton_ops")

LOADS = ("pointers", "device", "host")
"""How tiles come: from pointers, or by tensor descriptors, which each program or the host makes."""
DESCRIBABLE = "rows whose elements are neighbours and that start at multiples of 16 bytes"
HALVED_SIDE = 64  # of half a tile: columns fill a row of 128 bytes in shared memory, and few rows need little
K_STEP_BYTES = 128  # one row of a shared-memory tile in wgmma's widest swizzle
_FULL_SIDE = 64  # rows of Hopper's matrix instructions
_LARGEST_TILE = 256  # largest side of a tile along any axis
_TILE_REACH = 2**31  # offsets inside a tile have 32 bits in the kernels


def programs_for(tiles: int, meta: Mapping[str, Any], tensor: str) -> tuple[int]:
    """The grid: one program for each tile, or PROGRAMS for each multiprocessor, which walk over the tiles.

    PROGRAMS is 0 for one program for each tile; `tensor` names an argument on the device that is asked.
    """
    each = meta.get("PROGRAMS", 0)
    return (min(tiles, each * multiprocessors(meta[tensor].device)) if each else tiles,)


def forms_in_gluon(kernel: str, *outputs: str) -> dict[str, TritonKernel]:
    """The forms of a kernel in Gluon; empty, with a line in the log, where Triton has no Gluon for Hopper."""
    try:
        own = importlib.import_module(f"triton_ops_kernels.{kernel}.gluon_kernel")
    except (ImportError, AttributeError) as error:  # a Triton of another vendor's may lack a module, or a name in it
        _log.info("%s has no form in Gluon here: %s", kernel, error)
        return {}
    return {
        name: TritonKernel(each, grid, outputs=outputs, made=made) for name, (each, grid, made) in own.FORMS.items()
    }


def fixed_in(form: str, values: Mapping[str, object]) -> Iterator[Constraint]:
    """The constraints of tunables of which a form has one value each."""
    for name, value in values.items():
        yield Constraint(
            f"{form}_{name.lower()}",
            lambda FORM, name=name, value=value, **own: form != FORM or own[name] == value,
            f"the form {form} has {name}={value}, not {{{name}}}",
            names=("FORM", name),
        )


def descriptor_rules(possible: Collection[str], step: str, least: int, need: str = DESCRIBABLE) -> Iterator[Constraint]:
    """The constraints of LOADS: those that are `possible`, by descriptors with steps from `least` elements on."""
    yield Constraint("descriptors", lambda LOADS: LOADS in possible, f"a tensor descriptor needs {need}")
    yield Constraint(
        "box",
        lambda LOADS, **own: LOADS == "pointers" or own[step] >= least,
        f"a step of {{{step}}} fills no row of {K_STEP_BYTES} bytes of shared memory",
        names=("LOADS", step),
    )


def padded(extent: int, smallest: int) -> int:
    """The next power of two from `extent` upwards, at least `smallest`."""
    return max(smallest, 1 << max(extent - 1, 0).bit_length())


def widest(extent: int, smallest: int) -> int:
    """The widest tile that is tried over `extent`: up to half of it may be masked."""
    return max(smallest, 2 * padded(extent, 1))


def suits(extent: int, side: int) -> bool:
    """Tell whether a tile's side suits an extent: no half of it is masked, and it fills rows of matrix instructions.

    Narrower tiles of a large product read its operands too often.
    """
    return min(_FULL_SIDE, padded(extent, 16)) <= side <= widest(extent, 32)


def describable(*specs: TensorSpec) -> bool:
    """Tell whether tensor descriptors can be made of matrices, or of each matrix along further axes before them.

    That is where elements along the last axis are neighbours, and all else is multiples of 16 bytes apart.
    """
    return all(
        spec.aligned
        and spec.strides[-1] == 1
        and all(step * ITEM_BYTES[spec.dtype] % ALIGNMENT_BYTES == 0 for step in spec.strides[:-1])
        for spec in specs
    )


def item_bytes_of(tensor: Any) -> int:
    """Bytes of an element of a tensor, or of what describes one."""
    return ITEM_BYTES[tensor.dtype] if isinstance(tensor, TensorSpec) else int(tensor.element_size())


def unit(extent: int, strides: Sequence[Sequence[int]], item_bytes: int) -> int:
    """Neighbours in a row that may be copied at once: in 16 bytes at most, and 1 where a row has no neighbours.

    Triton itself sees it only of extents and strides that are multiples of 16. Rows of 516 elements of 16 bits, for
    example, begin at multiples of 8 bytes, which the hardware copies past the registers; 2 bytes it does not. `strides`
    are those of matrices whose rows have `extent` elements, in elements: of their rows, and in a row. A kernel that
    maps elements has none: 777,000 elements of 16 bits, a multiple of 8, would be read two bytes at a time, since the
    last block's mask could end anywhere.
    """
    if any(stride[1] != 1 for stride in strides):
        return 1
    most = ALIGNMENT_BYTES // item_bytes
    for size in (extent, *(stride[0] for stride in strides)):
        while size % most:  # a size that is traced asks no C code
            most //= 2
    return most


def check_loads(config: Mapping[str, object], possible: Callable[[], bool], need: str = DESCRIBABLE) -> None:
    """Check that a config asks, by LOADS or DESCRIPTORS, for tensor descriptors only where they can be made.

    Others read the wrong memory. A config that asks for halves of a transposed result, which is stored as a whole, is
    refused too. `need` is what descriptors need, for the error.
    """
    name = "DESCRIPTORS" if "DESCRIPTORS" in config else "LOADS"
    loads = config.get(name, "pointers")
    if config.get("HALVES", False) and config.get("SWAPPED", False):
        raise ConfigValueError("HALVES is for results that are not transposed, and SWAPPED transposes them")
    if loads and loads != "pointers" and not possible():
        raise ConfigValueError(
            f"{name} is {loads!r}, and a tensor of the call cannot have tensor descriptors: they need {need}",
            hint=f"leave {name} out, or pass tensors with padded rows",
        )


def strides_of(tensor: Any) -> tuple[int, ...]:
    """The strides of a tensor, or of what describes one, in elements."""
    return tensor.strides if isinstance(tensor, TensorSpec) else tensor.stride()


def reached_strides(**tensors: Any) -> list[tuple[int, ...]]:
    """The strides of tensors, or of what describes them; raises as `check_reach`."""
    strides = {name: strides_of(tensor) for name, tensor in tensors.items()}
    for name, stride in strides.items():
        check_reach(name, tuple(tensors[name].shape), stride)
    return list(strides.values())


def check_reach(name: str, shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    """Check that no two elements of one tile lie 2^31 or more elements apart."""
    reach = sum((min(n, _LARGEST_TILE) - 1) * step for n, step in zip(shape, stride, strict=True))
    if reach >= _TILE_REACH:
        raise ShapeMismatchError(
            f"{name} has the strides {tuple(stride)}: a tile would span {reach:,} elements, over 2^31",
            "strides below 2^23",
            tuple(stride),
            name,
            hint=f"pass {name}.contiguous(), or split the product",
        )
