"""Objects as bytes that another process makes them from again: kernels, functions, arguments and what holds them.

Two kinds of processes read them. A process that launches imports what a module holds by its name. An object that
cannot be imported, such as a lambda, a function made inside a function, or anything of a script or a notebook, goes as
its code with the globals that it uses; so does what belongs to a module that another process would not find, or in
whose place it would find another one of the same name. Tensors keep their values, strides, offsets, alignment and
shared storages.

A process that compiles gets JIT functions, their helpers, other functions and classes of the user's by value: code,
source, and the globals that they use. A module of the user's goes as the attributes that the code names, and is not
imported, so that an import has no effect there and costs no time. Whatever belongs to Python, Triton, this package or
an installed package goes by its name, and a tensor as what a compiler sees of it.

Facts used, from Triton 3.6 to 3.9: the key of a compiled kernel is made of the sources of the JIT function and of those
it calls, of their starting lines, and of the constants among their globals; a JIT function has its text from `def` on
in `src`.

Facts used, from Triton 3.6 to 3.9: a `JITFunction` and a `ConstexprFunction` keep their function in `fn`, and their
other parameters of creation under their own names, `repr` under `_repr`; Gluon's class is a subclass of `JITFunction`.
They read their source with `inspect`, which asks `linecache`. A JIT function has the source that it read in `raw_src`,
from `starting_line_number` on. `cache_key` names it in the disk cache and is kept in `hash`, which is None before; the
name holds the constants of the module of a function that it calls only if that function had been named before, and
while an error leaves `cache_key`, `hash` is no name.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import linecache
import pickle
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from triton_ops.backend.origins import Home, Layers, Origin
from triton_ops.backend.private import bytes_of, holds_addresses
from triton_ops.backend.reader import names_in, used_values
from triton_ops.backend.roles import Arguments, CandidateError, StandIn
from triton_ops.base import BoundedDict, cached_property, require
from triton_ops.device import TorchDevice
from triton_ops.exceptions import KernelTypeError, TargetError
from triton_ops.values import as_stored

_settled_keys = BoundedDict[int, str](4096)  # by identity: the name that a function got after those that it calls


def is_jit_or_constexpr_function(value: object) -> bool:
    """Tell whether Triton made `value` of a Python function, to be called in kernels."""
    return Layers.is_jit(value) or (type(value).__name__ == "ConstexprFunction" and hasattr(value, "fn"))


def settled(kernel: object) -> Any:
    """`kernel`, which Triton now names as it does in every other process that has called this.

    Left to itself, Triton's name for a JIT function depends on what was compiled before in the process, so that a
    binary that one process has compiled is not found by another.
    """
    _settle(kernel, set())
    return kernel


def _settle(kernel: Any, ids: set[int]) -> None:
    # Upstream: triton-lang/triton#10494 (June 2026), which makes such names the same in every process.
    before = getattr(kernel, "hash", None)
    if id(kernel) in ids or not hasattr(kernel, "hash") or (before and _settled_keys.get(id(kernel)) == before):
        return
    ids.add(id(kernel))
    for use in used_values(kernel.fn, Home("")):
        if is_jit_or_constexpr_function(use.value):
            _settle(use.value, ids)
    # With a name in `hash`, `cache_key` gives that back; without one, it makes a name from those of the callees.
    kernel.hash = None
    try:
        key = str(kernel.cache_key)
    except BaseException:
        kernel.hash = before
        raise
    _settled_keys[id(kernel)] = key


def reduced_by_name(kernel: Any) -> tuple[object, ...] | None:
    """The reduction by which `pickle` finds a JIT function under its name; None if something else has the name."""
    module, name = kernel.fn.__module__, kernel.fn.__name__
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not kernel:
        return None
    # `pickle` finds functions and classes by name; a JIT function is an instance, which it would take apart.
    return pkgutil.resolve_name, (f"{module}:{name}",)


def reduced_by_value(kernel: Any) -> tuple[object, ...]:
    """The reduction by which `pickle` makes a JIT function of its Python function, its options and its source."""
    kind, file = type(kernel), kernel.fn.__code__.co_filename
    return _make_function, (kind.__module__, kind.__name__, kernel.fn, _options(kernel), file, _lines(file, kernel))


def _options(kernel: object) -> dict[str, Any]:
    parameters = [p for p in inspect.signature(type(kernel).__init__).parameters if p not in ("self", "fn")]
    values = {p: getattr(kernel, "_repr" if p == "repr" else p, None) for p in parameters}
    return {name: value for name, value in values.items() if value is not None}


def _lines(file: str, kernel: Any) -> list[str]:
    """The lines of the kernel's file as they were when the kernel was made; the file may have changed since."""
    lines = linecache.getlines(file)
    if not hasattr(kernel, "raw_src"):  # an interpreted function does not keep its source
        return lines
    first, own = max(kernel.starting_line_number - 1, 0), list(kernel.raw_src)
    if lines[first : first + len(own)] == own:
        return lines
    padded = [*lines, *["\n"] * (first + len(own) - len(lines))]
    return [*padded[:first], *own, *padded[first + len(own) :]]


def _reduced_code(pickler: Any, code: CodeType) -> tuple[object, ...]:
    """The code of a function with the file that it is of, by which `inspect` finds its source.

    Cloudpickle leaves the file out from 3.1.3 on.
    """
    # A file of a notebook's cell has another name in each session, which made bytes differ: cloudpipe/cloudpickle#538.
    make, arguments = pickler.dispatch_table[CodeType](code)
    return _code_of_file, (make, arguments, code.co_filename)


def _code_of_file(make: Any, arguments: tuple[Any, ...], file: str) -> Any:
    return make(*arguments).replace(co_filename=file)


def _make_function(module: str, kind: str, function: Any, options: dict[str, Any], file: str, lines: list[str]) -> Any:
    linecache.cache[file] = (sum(map(len, lines)), None, lines, file)  # the source need not be a file that exists here
    return getattr(importlib.import_module(module), kind)(function, **options)


class ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes an object for a process that compiles it."""

    def __init__(self, target: io.BytesIO) -> None:
        super().__init__(target, protocol=5)
        self.drawn: list[str] = []  # stays empty: no tensor's values are sent
        self.holds_handles = False
        self.imports: set[str] = set()  # top-level packages that the other process imports
        self._kernels: dict[int, Any] = {}  # JIT functions by the identity of their Python functions
        self._modules: dict[str, _EmptyModule] = {}
        self._importable: dict[str, bool] = {}  # by the name of a module: whether it is installed, and found there

    def reducer_override(self, obj: Any) -> object:
        """Code, JIT functions, tensors, and what belongs to modules of the user's differ from what cloudpickle does."""
        if isinstance(obj, CodeType):
            return _reduced_code(self, obj)
        module = module_of(obj)
        if is_jit_or_constexpr_function(obj):
            home, reduction = obj.fn.__module__, reduced_by_name(obj)
            if reduction is None or not self._goes_by_name(home):
                self._kernels[id(obj.fn)] = obj
                return reduced_by_value(obj)
            self.imports.add(home.partition(".")[0])
            return reduction
        if Arguments.is_tensor(obj):
            return partial(StandIn, **asdict(StandIn.of(obj))), ()
        if isinstance(obj, FunctionType) and not self._goes_by_name(module):
            return self._dynamic_function_reduce(obj)
        if isinstance(obj, type) and not self._goes_by_name(module):
            # Private: `register_pickle_by_value` is for whole modules, and must be undone.
            return cloudpickle.cloudpickle._dynamic_class_reduce(obj)
        self.imports.add(module.partition(".")[0])
        return super().reducer_override(obj)

    def _goes_by_name(self, module: str) -> bool:
        if module not in self._importable:
            self._importable[module] = Origin.is_installed(module) and Origin.is_found_again(module)
        return self._importable[module]

    def _dynamic_function_reduce(self, func: FunctionType) -> object:
        """Cloudpickle's reduction, with parts of the user's modules and the names that Triton's compiler looks up."""
        maker, arguments, (plain, slots), *others = super()._dynamic_function_reduce(func)
        scope = dict(slots["__globals__"])
        names = set(names_in(func.__code__))
        if (kernel := self._kernels.get(id(func))) is not None:
            nodes = list(ast.walk(ast.parse(kernel.src)))  # with annotations and defaults, which Triton looks up too
            variables = {node.id for node in nodes if isinstance(node, ast.Name)}
            names |= variables | {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            # No attributes: the `sigmoid` of `tl.sigmoid` may be the name of a global that the function does not use.
            scope |= {name: func.__globals__[name] for name in variables if name in func.__globals__}
        modules = {name: self._part(each, names) for name, each in scope.items() if isinstance(each, ModuleType)}
        slots["__globals__"] = {**scope, **modules}
        # cloudpickle would send submodules along that the code may use, and so have the other process import them.
        slots["_cloudpickle_submodules"] = []
        return (maker, arguments, (plain, slots), *others)

    def _part(self, module: ModuleType, names: set[str]) -> object:
        """A module; if it is the user's, its attributes of these names, with those that its `__getattr__` makes."""
        if self._goes_by_name(module.__name__):
            return module
        attributes = {name: value for name, value in vars(module).items() if name in names and value is not module}
        for name in names - attributes.keys() if "__getattr__" in vars(module) else ():
            with contextlib.suppress(AttributeError):
                attributes[name] = getattr(module, name)
        return _Part(self._modules.setdefault(module.__name__, _EmptyModule(module.__name__)), {
            name: self._part(value, names - {name}) if isinstance(value, ModuleType) else value
            for name, value in attributes.items()
        })  # fmt: skip


class _EmptyModule:
    """A module of the user's without its attributes; one object per module, so that it is made once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[object, ...]:
        return ModuleType, (self._name,)


class _Part:
    def __init__(self, module: _EmptyModule, attributes: dict[str, Any]) -> None:
        self._module, self._attributes = module, attributes

    def __reduce__(self) -> tuple[object, ...]:
        return _with_attributes, (self._module, self._attributes)


def _with_attributes(module: ModuleType, attributes: dict[str, Any]) -> ModuleType:
    vars(module).update(attributes)
    return module


def module_of(value: object) -> str:
    """The name of the module that an object belongs to: of a module its own, of another object that of its type."""
    if isinstance(value, ModuleType):
        return value.__name__
    owner = value if isinstance(value, (FunctionType, type)) else type(value)
    return str(getattr(value, "__module__", None) or owner.__module__)


_LARGE_BYTES = 1 << 20  # below it a copy through the host takes no longer than a mapping
MOST_TENSOR_BYTES = 1 << 30  # that are sent; past it, floating-point tensors are drawn anew on the other side


@dataclass(frozen=True)
class Packed:
    """An object as bytes.

    `drawn` describes the tensors that hold other values on the other side. `imports` are top-level packages that are
    imported when the object is made again; known of objects that go by value. `mapped` tells that it holds handles of
    this process's memory.
    """

    content: bytes
    drawn: tuple[str, ...] = ()
    imports: frozenset[str] = frozenset()
    mapped: bool = False

    @classmethod
    def of(
        cls, value: Any, most_bytes: int = MOST_TENSOR_BYTES, *, by_value: bool = False, mapped: bool = False
    ) -> Packed:
        """`value` as bytes: functions, kernels, tensors and what holds them.

        So many bytes of floating-point tensors are copied; those beyond it become uniform in [-1, 1]. By value an
        object is for a process that compiles and does not launch: code of the user's is sent whole, and a tensor
        becomes a `StandIn`. Without this the process that launches imports what a module holds, and gets the tensors'
        values. With `mapped` large tensors of a GPU go as handles, and are copied where the object is made again: on
        this machine, while they are here.

        Raises:
            KernelTypeError: Something in it exists in this process only, such as an open file or a lock.
            TargetError: A tensor holds addresses of memory, and its values would be sent.
        """
        target = io.BytesIO()
        pickler = ValuePickler(target) if by_value else _ReferencePickler(target, most_bytes, mapped)
        try:
            pickler.dump(value)
        except TargetError:
            raise
        except (Exception, RecursionError) as error:  # whatever an object's own reduction raises
            hint = "let the kernel use no object that only exists in this process" if by_value else (
                "define it in a module, or run it inline")  # fmt: skip
            message = f"it cannot be sent to another process: {CandidateError.one_line(error)}"
            raise KernelTypeError(message, hint=hint) from error
        return cls(target.getvalue(), tuple(pickler.drawn), frozenset(pickler.imports), pickler.holds_handles)

    @staticmethod
    def loaded(content: bytes) -> Any:
        """The object that `of` was given; `KernelTypeError` if a module is not found here, or has changed."""
        try:
            return pickle.loads(content)
        except Exception as error:
            message = f"it cannot be loaded in another process: {CandidateError.one_line(error)}"
            raise KernelTypeError(message) from error

    @staticmethod
    def not_for_another_process(holder: str) -> TargetError:
        """The error where another process would be given addresses; `holder` says in words what holds them."""
        message = f"the addresses in {holder} are of this process's memory, and configs are tried in another one"
        hint = "isolate=False (--inline) tries them in this process, where they write what the addresses name"
        return TargetError(message, hint=hint)


class _ReferencePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes an object for a process that is going to launch it."""

    def __init__(self, target: io.BytesIO, most_bytes: int, mapped: bool) -> None:
        super().__init__(target, protocol=5)
        self._mapped, self.holds_handles = mapped, False
        self.drawn: list[str] = []  # tensors whose values are not sent, described
        self.imports: frozenset[str] = frozenset()  # not known: objects that go by name import their modules
        self._bytes_left = most_bytes
        self._storages: dict[tuple[str, int, int], _Storage] = {}
        self._homes: dict[str, bool] = {}  # by the name of a module: whether another process finds it

    def dump(self, obj: object) -> None:
        """Write an object; cloudpickle sends modules by value only until this ends."""
        try:
            super().dump(obj)
        finally:
            for name in [name for name, importable in self._homes.items() if not importable]:
                cloudpickle.unregister_pickle_by_value(sys.modules[name])

    def reducer_override(self, obj: Any) -> object:
        """Code, JIT functions, tensors, and modules that are not found again differ from what cloudpickle does."""
        if isinstance(obj, CodeType):
            return _reduced_code(self, obj)
        if (home := module_of(obj)) not in self._homes:
            self._homes[home] = Origin.is_found_again(home)
            if not self._homes[home]:
                cloudpickle.register_pickle_by_value(sys.modules[home])
        if is_jit_or_constexpr_function(obj):
            return (reduced_by_name(obj) if self._homes[home] else None) or reduced_by_value(obj)
        if Arguments.is_tensor(obj) and type(obj).__name__ == "Tensor" and str(obj.layout) == "torch.strided":
            if holds_addresses(obj):
                raise Packed.not_for_another_process(f"a tensor of shape {tuple(obj.shape)}")
            layout = (str(obj.dtype).removeprefix("torch."), obj.storage_offset(), tuple(obj.shape), obj.stride())
            return _tensor, (self._storage(obj), *layout, obj.requires_grad)
        return super().reducer_override(obj)

    def _storage(self, tensor: Any) -> _Storage:
        """The storage behind a tensor; there is one object per storage, so that it is sent once and stays shared."""
        storage = tensor.untyped_storage()
        place = (str(tensor.device), storage.data_ptr(), storage.nbytes())
        if place not in self._storages:
            dtype = str(tensor.dtype).removeprefix("torch.")
            handle = _handle_of(storage) if self._mapped and storage.nbytes() >= _LARGE_BYTES else None
            drawable = as_stored(tensor).dtype.is_floating_point  # an index must stay in range
            content: Any = handle
            if handle is not None:
                self.holds_handles = True
            elif drawable and storage.nbytes() > self._bytes_left:
                self.drawn.append(f"{tuple(tensor.shape)} {tensor.dtype} of {storage.nbytes() / 1e9:.1f} GB")
            else:
                self._bytes_left -= storage.nbytes() if drawable else 0
                content = bytes_of(storage).cpu().numpy().tobytes()
            self._storages[place] = _Storage(place[0], place[2], dtype, content)
        return self._storages[place]


@dataclass(frozen=True)
class _Storage:
    """The memory behind tensors: its bytes, a handle of them, or None if the other process draws values."""

    device: str
    size: int
    dtype: str
    content: bytes | tuple[bytes, int] | None

    @cached_property
    def memory(self) -> Any:
        torch = require("torch", "making tensors")
        if self.size == 0:
            return torch.empty(0, dtype=torch.uint8, device=self.device).untyped_storage()
        if isinstance(self.content, bytes):
            # Such a tensor lies where Python has put the bytes; its clone is aligned as torch's memory is.
            content = torch.frombuffer(bytearray(self.content), dtype=torch.uint8)
            return content.to(self.device).clone().untyped_storage()
        room = torch.empty(self.size, dtype=torch.uint8, device=self.device)
        if self.content is not None:
            TorchDevice(self.device).copy_mapped(torch, self.content, room.data_ptr(), self.size)
            return room.untyped_storage()
        values = room[: self.size // 8 * 8].view(getattr(torch, self.dtype))
        generator = torch.Generator(device=self.device).manual_seed(0)
        for part in values.split(1 << 24):  # float8 has no random numbers of its own: drawn wider, in pieces
            part.copy_(torch.rand(part.shape, generator=generator, device=self.device).mul_(2).sub_(1))
        return room.untyped_storage()


def _handle_of(storage: Any) -> tuple[bytes, int] | None:
    if storage.device.type != "cuda":
        return None
    return TorchDevice(str(storage.device)).handle(require("torch", "sending tensors"), storage.data_ptr())


def _tensor(
    storage: _Storage, dtype: str, offset: int, shape: Sequence[int], stride: Sequence[int], requires_grad: bool
) -> Any:
    torch = require("torch", "making tensors")
    tensor = torch.empty(0, dtype=getattr(torch, dtype), device=storage.device)
    tensor.set_(storage.memory, offset, tuple(shape), tuple(stride))
    return tensor.requires_grad_(requires_grad)
