"""Objects as bytes that another process makes them from again: kernels, functions, arguments and what holds them.

There are two readers. A process that launches may import the user's modules, and needs the values of the tensors
(`by_reference`). A process that compiles gets the user's code itself and imports no module of the user's, so that an
import has no effect there and costs no time; of a tensor it needs what a compiler sees (`by_value`).
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import Any

from triton_ops.backend.by_reference import ReferencePickler
from triton_ops.backend.by_value import ValuePickler
from triton_ops.backend.errors import one_line
from triton_ops.exceptions import KernelTypeError

MOST_TENSOR_BYTES = 1 << 30  # that are sent; past it, floating-point tensors are drawn anew on the other side


@dataclass(frozen=True)
class Packed:
    """An object as bytes.

    Attributes:
        content: The bytes.
        drawn: Tensors that hold other values on the other side, described; empty if everything is as here.
        imports: Top-level packages that are imported when the object is made again; known of objects that go by value.
    """

    content: bytes
    drawn: tuple[str, ...] = ()
    imports: frozenset[str] = frozenset()


def pack(value: Any, most_bytes: int = MOST_TENSOR_BYTES, *, by_value: bool = False) -> Packed:
    """`value` as bytes.

    Args:
        value: What to send; functions, kernels, tensors and what holds them.
        most_bytes: So many bytes of floating-point tensors are copied; those beyond it become uniform in [-1, 1].
        by_value: For a process that compiles and does not launch. Code of the user's is sent whole, so that no module
            of the user's is imported there; what belongs to Python, Triton, this package and installed packages goes
            by name. A tensor becomes a `StandIn`. Without this the process that launches imports what a module holds,
            and gets the tensors' values.

    Raises:
        KernelTypeError: Something in it exists in this process only, such as an open file or a lock.

    Cost: a copy of the tensors through the host's memory; by value none.
    """
    target = io.BytesIO()
    pickler = ValuePickler(target) if by_value else ReferencePickler(target, most_bytes)
    try:
        pickler.dump(value)
    except (Exception, RecursionError) as error:  # whatever an object's own reduction raises
        hint = "let the kernel use no object that only exists in this process" if by_value else (
            "define it in a module, or run it inline")  # fmt: skip
        raise KernelTypeError(f"it cannot be sent to another process: {one_line(error)}", hint=hint) from error
    return Packed(target.getvalue(), tuple(pickler.drawn), frozenset(pickler.imports))


def unpack(content: bytes) -> Any:
    """What `pack` was given, made again in this process.

    Raises:
        KernelTypeError: It cannot be: a module is not found here, or has changed.
    """
    try:
        return pickle.loads(content)
    except Exception as error:
        raise KernelTypeError(f"it cannot be loaded in another process: {one_line(error)}") from error
