"""Objects as bytes that another process makes them from again: kernels, functions, arguments and what holds them.

Two kinds of processes read them. A process that launches imports what a module holds by its name. An object that
cannot be imported, such as a lambda, a function made inside a function, or anything of a script or a notebook, goes as
its code with the globals that it uses; so does what belongs to a module that another process would not find, or in
whose place it would find another one of the same name. Tensors keep their values, strides, offsets, alignment and
shared storages.

A process that compiles gets the code of everything that is the user's, and imports no module of the user's, so that an
import has no effect there and costs no time; of a tensor it gets what a compiler sees (`by_value.py`).
"""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import cloudpickle

from triton_ops._optional import require
from triton_ops.backend.addresses import holds_addresses, not_for_another_process
from triton_ops.backend.base import is_tensor
from triton_ops.backend.by_value import ValuePickler, module_of
from triton_ops.backend.errors import one_line
from triton_ops.backend.jit_function import is_jit_or_constexpr_function, reduced_by_name, reduced_by_value
from triton_ops.backend.users_code import is_found_again
from triton_ops.exceptions import KernelTypeError, TargetError

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
        TargetError: A tensor holds addresses of memory, and its values would be sent.

    Cost: a copy of the tensors through the host's memory; by value none.
    """
    target = io.BytesIO()
    pickler = ValuePickler(target) if by_value else _ReferencePickler(target, most_bytes)
    try:
        with pickler.sending():
            pickler.dump(value)
    except TargetError:
        raise
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


class _ReferencePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes an object for a process that is going to launch it."""

    def __init__(self, target: io.BytesIO, most_bytes: int) -> None:
        super().__init__(target, protocol=5)
        self.drawn: list[str] = []  # tensors whose values are not sent, described
        self.imports: frozenset[str] = frozenset()  # not known: objects that go by name import their modules
        self._left = most_bytes
        self._storages: dict[tuple[str, int, int], _Storage] = {}
        self._homes: dict[str, bool] = {}  # by the name of a module: whether another process finds it

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Inside, cloudpickle may be told to send modules by value; at the end it forgets that."""
        try:
            yield
        finally:
            for name in [name for name, found in self._homes.items() if not found]:
                cloudpickle.unregister_pickle_by_value(sys.modules[name])

    def reducer_override(self, obj: Any) -> Any:
        """JIT functions, tensors, and modules that are not found again differ from what cloudpickle does."""
        home = module_of(obj)
        if home not in self._homes:
            self._homes[home] = is_found_again(home)
            if not self._homes[home]:
                cloudpickle.register_pickle_by_value(sys.modules[home])
        if is_jit_or_constexpr_function(obj):
            named = reduced_by_name(obj) if self._homes[home] else None
            return named or reduced_by_value(obj)
        if is_tensor(obj) and type(obj).__name__ == "Tensor" and str(obj.layout) == "torch.strided":
            if holds_addresses(obj):
                raise not_for_another_process(f"a tensor of shape {tuple(obj.shape)}")
            layout = (str(obj.dtype).removeprefix("torch."), obj.storage_offset(), tuple(obj.shape), obj.stride())
            return _tensor, (self._storage(obj), *layout, obj.requires_grad)
        return super().reducer_override(obj)

    def _storage(self, tensor: Any) -> _Storage:
        """The storage behind a tensor; there is one object per storage, so that it is sent once and stays shared."""
        storage = tensor.untyped_storage()
        place = (str(tensor.device), storage.data_ptr(), storage.nbytes())
        if place not in self._storages:
            drawable = tensor.dtype.is_floating_point  # an index must stay in range
            fits = not drawable or storage.nbytes() <= self._left
            self._left -= storage.nbytes() if fits and drawable else 0
            if not fits:
                self.drawn.append(f"{tuple(tensor.shape)} {tensor.dtype} of {storage.nbytes() / 1e9:.1f} GB")
            dtype = str(tensor.dtype).removeprefix("torch.")
            self._storages[place] = _Storage(place[0], place[2], dtype, _bytes_of(storage) if fits else None)
        return self._storages[place]


@dataclass(frozen=True)
class _Storage:
    """The memory behind tensors: its bytes, or None if the other process draws values."""

    device: str
    size: int
    dtype: str
    content: bytes | None
    _: KW_ONLY
    made: dict[str, Any] = field(default_factory=dict, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Storage, (self.device, self.size, self.dtype, self.content)

    def get(self) -> Any:
        """The storage; it is made once in this process."""
        if "storage" not in self.made:
            self.made["storage"] = self._make()
        return self.made["storage"]

    def _make(self) -> Any:
        torch = require("torch", "making tensors")
        if self.size == 0:
            return torch.empty(0, dtype=torch.uint8, device=self.device).untyped_storage()
        if self.content is not None:
            found = torch.frombuffer(bytearray(self.content), dtype=torch.uint8)
            return found.to(self.device).clone().untyped_storage()
        room = torch.empty(self.size, dtype=torch.uint8, device=self.device)
        values = room[: self.size // 8 * 8].view(getattr(torch, self.dtype))
        generator = torch.Generator(device=self.device).manual_seed(0)
        for part in values.split(1 << 24):  # float8 has no random numbers of its own: drawn wider, in pieces
            part.copy_(torch.rand(part.shape, generator=generator, device=self.device).mul_(2).sub_(1))
        return room.untyped_storage()


def _bytes_of(storage: Any) -> bytes:
    torch = require("torch", "sending tensors")
    view = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return bytes(view.cpu().numpy().tobytes())


def _tensor(
    storage: _Storage, dtype: str, offset: int, shape: Sequence[int], stride: Sequence[int], requires_grad: bool
) -> Any:
    torch = require("torch", "making tensors")
    made = torch.empty(0, dtype=getattr(torch, dtype), device=storage.device)
    made.set_(storage.get(), offset, tuple(shape), tuple(stride))
    return made.requires_grad_(requires_grad)
