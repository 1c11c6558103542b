"""A run of a reference beside which everything is computed once more in higher precision, closed-over tensors included.

The reference runs as it is, on tensors of their own dtypes. Each tensor that it touches has a wide one beside it, with
the same numbers in float64, and every function of torch that is called on the tensors is called on the wide ones too.
A cast among float16, bfloat16 and float32 leaves the wide tensor as it is. Casts to other dtypes and functions that
round are functions like any other: they round the wide numbers, since that is what the reference computes. Reading the
bits of a float (`view` with a dtype) takes the bits of the wide number, rounded to the tensor's dtype.

What a function without a float64 form computes from the wide numbers, rounded, becomes wide again. So does what is
written by an address, as by a kernel. `rounded` names such functions: the results are then in part in the tensors' own
precision.

Numbers that leave a tensor, as by `item()`, are the wide ones. Tensors that were there before are as they were at the
end, whatever the reference writes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import Arguments, CandidateError
from triton_ops.base import require
from triton_ops.device import TorchDevice
from triton_ops.evaluation.expected import rebuilt
from triton_ops.evaluation.judges import UNITS

_MEMORY_SHARE = 0.5  # of the free memory: what wide copies of tensors that are there before may take
_CASTS = ("float", "half", "bfloat16", "cfloat", "chalf")
_VALUES = (
    "item", "tolist", "numpy", "__array__", "__float__", "__bool__", "__int__", "__index__", "__complex__",
    "is_nonzero", "equal", "allclose", "__contains__", "__format__",
)  # fmt: skip
_UNCOUNTED = ("batch_norm", "instance_norm")  # write running statistics, and do not count it
_ADDRESSES = ("data_ptr", "untyped_storage", "storage", "_typed_storage", "__dlpack__", "__cuda_array_interface__")


@dataclass(eq=False)
class _Given:
    """The memory of tensors that were there before: as it is, in higher precision, and as it was before a write."""

    memory: Any
    wide: Any
    before: Any = None


class Lifted:
    """One run of a reference in higher precision, of the dtype `name`, `float64` or `float32`.

    `change` is applied to the memory of tensors that are there before, such as a cut to the bits of TF32. `seed` is
    that of errors of up to one rounding unit that are added wherever a number must be rounded; None adds none. How far
    the results of two runs differ says what those roundings cost. `rounded` names the functions whose results were
    computed in the tensors' own precision.
    """

    def __init__(self, name: str, *, change: Callable[[Any], Any] = lambda t: t, seed: int | None = None) -> None:
        torch = self._torch = require("torch", "checking results")
        real, complex_ = getattr(torch, name), torch.complex128 if name == "float64" else torch.complex64
        narrow = [torch.float16, torch.bfloat16, *([torch.float32] if name == "float64" else [])]
        self._wider = dict.fromkeys(narrow, real) | {torch.complex32: complex_, torch.complex64: complex_}
        self._change, self._seed, self._generators = change, seed, dict[Any, Any]()
        self._beside: Any = require("torch.utils.weak", "checking results").WeakTensorKeyDictionary()
        self._blocks: dict[tuple[Any, ...], _Given] = {}
        self._open: dict[Any, Any] = {}
        self._read_as_bits: dict[Any, Any] = {}
        self._free_bytes: dict[str, int] = {}
        self._failure = ""
        self.rounded: dict[str, None] = {}

    def run(self, reference: Callable[..., Any], arguments: Arguments) -> Any:
        """The reference's answer for arguments that it may write; `MemoryError` or `RuntimeError` without room."""
        try:
            for tensor in arguments.tensors():
                self._of(tensor)
            with ExitStack() as stack:
                if "torch._dynamo" in sys.modules:  # compiled code would be compiled again, for tensors of two kinds
                    stack.enter_context(self._torch.compiler.set_stance("force_eager"))
                stack.enter_context(_mode_class()(self._call))
                answer = reference(*arguments.positional, **arguments.keyword)
        finally:
            with self._torch.no_grad():
                for memory in self._blocks.values():
                    if memory.before is not None:
                        memory.memory.copy_(memory.before)
        if self._failure:  # the reference has caught it
            raise MemoryError(self._failure)
        return answer

    def wide(self, value: Any) -> Any:
        """A result of the run with wide tensors; `TypeError` for one that no function made, as if closed over."""
        return rebuilt(value, lambda part: Arguments.mapped(part, self._result))

    def _result(self, tensor: Any) -> Any:
        if tensor not in self._beside and tensor.dtype in self._wider:
            raise TypeError("it returns a tensor that no function of torch has made of its arguments")
        return self._of(tensor)

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name, tensors = _name_of(func), list(Arguments.tensors_in((args, kwargs)))
        if self._torch._C._functorch.peek_interpreter_stack() is not None:
            self.rounded["a transform of functions"] = None  # as `torch.vmap`, which has tensors of its own
            return func(*args, **kwargs)
        if getattr(func, "__name__", "") == "__get__" and not Arguments.is_tensor(answer := func(*args, **kwargs)):
            return answer
        if name in _ADDRESSES:
            for tensor in tensors:
                self._read_from_memory(tensor)
            return func(*args, **kwargs)
        if not tensors:
            answer = func(*args, **kwargs)
            for tensor in Arguments.tensors_in((answer,)):
                self._of(tensor, made_here=True)
            return answer
        if name == "view" and any(isinstance(each, self._torch.dtype) for each in (*args, *kwargs.values())):
            self._read_as_bits[_place(tensors[0])] = tensors[0]
            return self._in_own_precision(func, args, kwargs, tensors, "")
        return self._on_both(func, name, args, kwargs, tensors)

    def _on_both(self, func: Any, name: str, args: Any, kwargs: Any, tensors: Sequence[Any]) -> Any:
        try:
            with self._recording():
                beside = [self._of(tensor) for tensor in tensors]
                before = [_version(each) for each in beside]
                wide = self._call_wide(func, name, args, kwargs)
        except (MemoryError, self._torch.OutOfMemoryError) as error:
            self._failure = CandidateError.one_line(error)
            raise
        except Exception:  # noqa: BLE001 - a function may refuse float64 by any error
            return self._in_own_precision(func, args, kwargs, tensors, name)
        changes = zip(tensors, beside, before, strict=True)
        targets = [t for t, each, version in changes if _version(each) != version or name in _UNCOUNTED]
        for tensor in targets:
            self._save(tensor)
        answer = func(*args, **kwargs)
        for tensor in targets:
            if _place(tensor) in self._read_as_bits:  # other tensors see the same bits as another dtype
                self._round(tensor)
                self._open[_place(tensor)] = tensor
        return wide if name in _VALUES else self._pair(answer, wide, name, tensors, beside)

    def _call_wide(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        torch, wider = self._torch, self._wider
        if name in _CASTS and len(args) == 1:
            dtype = getattr(torch, {"half": "float16", "float": "float32", "cfloat": "complex64", "chalf": "complex32"}
                            .get(name, name))  # fmt: skip
            return self._of(args[0]).to(wider.get(dtype, dtype), **kwargs)
        if kwargs.get("out_dtype") in wider:  # products of wide numbers are wide without it
            kwargs = {key: value for key, value in kwargs.items() if key != "out_dtype"}

        def change(leaf: Any) -> Any:
            return self._of(leaf) if Arguments.is_tensor(leaf) else wider.get(leaf, leaf)

        def is_leaf(value: Any) -> bool:
            return Arguments.is_tensor(value) or isinstance(value, torch.dtype)

        return func(*Arguments.mapped(args, change, is_leaf), **Arguments.mapped(kwargs, change, is_leaf))

    def _in_own_precision(self, func: Any, args: Any, kwargs: Any, tensors: Sequence[Any], name: str) -> Any:
        """Call a function on the tensors alone, which hold the wide numbers, rounded; its results become wide."""
        for tensor in tensors:
            self._round(tensor)
        copies = [(each, each.memory.clone()) for each in self._unsaved(tensors)]
        before = [_version(tensor) for tensor in tensors]
        answer = func(*args, **kwargs)
        versions = zip(tensors, before, strict=True)
        targets = [tensor for tensor, version in versions if _version(tensor) != version]
        for block, copy in copies if targets else ():
            block.before = copy
        results = [*Arguments.tensors_in((answer,)), *targets]
        for tensor in targets:
            if (beside := self._beside.get(tensor)) is not None:
                beside.data.copy_(tensor)
        for tensor in Arguments.tensors_in((answer,)):
            if all(tensor is not each for each in targets):
                self._beside[tensor] = self._widen(tensor)
        if name and any(tensor.is_floating_point() or tensor.is_complex() for tensor in results):
            self.rounded[name] = None
        return answer

    def _pair(self, answer: Any, wide: Any, name: str, tensors: Sequence[Any], beside: Sequence[Any]) -> Any:
        results, others = list(Arguments.tensors_in((answer,))), list(Arguments.tensors_in((wide,)))
        if [t.shape for t in results] != [t.shape for t in others]:
            if len(results) != len(others) or (
                Arguments.is_tensor(answer) and any(answer is tensor for tensor in tensors)
            ):
                raise TypeError(f"{name} gives other results for other dtypes")
            dtypes = iter([result.dtype for result in results])  # the wide numbers decide which elements there are
            return Arguments.mapped(wide, lambda each: self._narrow_copy(each, next(dtypes)))
        places, wide_places = {_place(t) for t in tensors}, {_place(t) for t in beside}
        floats = any(each.is_floating_point() or each.is_complex() for each in beside)
        for result, other in zip(results, others, strict=True):
            dtype = self._wider.get(result.dtype, result.dtype)
            if other.dtype != dtype:
                if floats:
                    self.rounded[name] = None
                other = other.to(dtype)
            if _place(other) in wide_places and _place(result) not in places:
                other = other.clone()  # a cast that has made a copy
            self._beside[result] = _as_laid_out(self._torch, other, result)
        return answer

    def _narrow_copy(self, wide: Any, dtype: Any) -> Any:
        narrow = wide.detach().to(dtype, copy=True)
        self._beside[narrow] = wide
        return narrow

    def _of(self, tensor: Any, *, made_here: bool = False) -> Any:
        if self._open and _place(tensor) in self._open:
            return self._widen(tensor)
        wide = self._beside.get(tensor)
        if wide is None:
            with self._recording():
                wide = self._widen(tensor, noisy=False) if made_here else self._of_given(tensor)
            self._beside[tensor] = wide
        return wide

    def _of_given(self, tensor: Any) -> Any:
        """The wide tensor beside one that was there before; tensors that share memory share the wide one's."""
        torch = self._torch
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(f"{type(tensor).__name__} has tensors of its own")
        key = (_place(tensor), tensor.dtype)
        if not tensor.numel() or tensor.is_conj() or tensor.is_neg():
            return self._widen(tensor, noisy=False)
        if (block := self._blocks.get(key)) is None:
            storage = tensor.untyped_storage()
            count = storage.nbytes() // tensor.itemsize
            dtype = self._wider.get(tensor.dtype, tensor.dtype)
            self._reserve(str(tensor.device), count * dtype.itemsize)
            memory = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, (count,), (1,))
            with torch.no_grad():
                block = self._blocks[key] = _Given(memory, self._change(memory).to(dtype, copy=True))
        wide = block.wide.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return wide.requires_grad_() if tensor.requires_grad else wide

    def _reserve(self, device: str, count: int) -> None:
        """Take bytes of the share of the memory that was free at first; a `MemoryError` if that is not left."""
        free = self._free_bytes.setdefault(device, int(_MEMORY_SHARE * TorchDevice(device).free_bytes))
        if count > free:
            raise MemoryError(f"what it closes over would take {count >> 20} MiB, and {free >> 20} MiB may be taken")
        self._free_bytes[device] = free - count

    def _read_from_memory(self, tensor: Any) -> None:
        """Take the numbers of a tensor from its memory from now on, since they may be written there unseen."""
        self._round(tensor)
        self._save(tensor)
        self._open[_place(tensor)] = tensor
        self.rounded["a kernel that takes addresses"] = None

    def _round(self, tensor: Any) -> None:
        """Let a tensor hold the wide numbers, rounded once; one that was there before and is not written holds them."""
        wide = self._beside.get(tensor)
        if wide is None or tensor.layout is not self._torch.strided:
            return
        if _place(tensor) in self._open or list(self._unsaved([tensor])):
            return
        if wide.dtype != tensor.dtype and self._seed is not None:
            exact = wide == wide.to(tensor.dtype)
            wide = self._torch.where(exact, wide, self._disturb(wide, tensor.dtype))
        if all(stride or extent < 2 for stride, extent in zip(tensor.stride(), tensor.shape, strict=True)):
            tensor.data.copy_(wide.detach())

    def _unsaved(self, tensors: Sequence[Any]) -> Iterator[_Given]:
        """The memory of some tensors that was there before, and of which no copy is kept yet."""
        places = {_place(tensor) for tensor in tensors}
        yield from (block for key, block in self._blocks.items() if key[0] in places and block.before is None)

    def _save(self, tensor: Any) -> None:
        for block in self._unsaved([tensor]):
            block.before = block.memory.clone()

    def _widen(self, tensor: Any, *, noisy: bool = True) -> Any:
        dtype = self._wider.get(tensor.dtype, tensor.dtype)
        wide = tensor.detach().to(dtype, copy=True)
        if noisy and dtype != tensor.dtype and self._seed is not None:
            wide = self._disturb(wide, tensor.dtype)
        return wide.requires_grad_() if tensor.requires_grad else wide

    def _disturb(self, wide: Any, dtype: Any) -> Any:
        if wide.is_complex():
            return wide
        generator = self._generators.get(wide.device)
        if generator is None:
            generator = self._torch.Generator(wide.device).manual_seed(self._seed)
            self._generators[wide.device] = generator
        error = self._torch.empty_like(wide, requires_grad=False).uniform_(-1, 1, generator=generator)
        return wide + wide.detach() * error * UNITS[str(dtype).removeprefix("torch.")]

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Inside, tensors count how often they are written, also where the reference runs in inference mode."""
        torch = self._torch
        inside = torch.is_inference_mode_enabled()
        with torch.inference_mode(False) if inside else nullcontext(), torch.no_grad() if inside else nullcontext():
            yield


@functools.cache  # a class lives on until garbage is collected, and with it what its methods close over
def _mode_class() -> Any:
    """The class of contexts inside which a function gets each function of torch that is called, with its arguments."""
    base: Any = require("torch.overrides", "checking results").TorchFunctionMode

    class Mode(base):  # type: ignore[misc]
        def __init__(self, call: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> None:
            super().__init__()
            self._call = call

        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self._call(func, args, kwargs or {})

    return Mode


def _name_of(func: Any) -> str:
    """The name of a function of torch without that of an overload; of what reads an attribute the attribute's name."""
    name = str(getattr(func, "__name__", func))
    if name != "__get__":
        return name.partition(".")[0]
    descriptor = func.__self__
    return str(getattr(descriptor, "__name__", getattr(getattr(descriptor, "fget", None), "__name__", name)))


def _place(tensor: Any) -> Any:
    """The identity of a tensor's memory; None for a tensor that has none of its own."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None


def _version(tensor: Any) -> int:
    """The number of times a tensor was written; 0 for one that does not count it."""
    return 0 if tensor.is_inference() else int(tensor._version)


def _as_laid_out(torch: Any, wide: Any, like: Any) -> Any:
    """A wide tensor with the strides of another, so that the same views of both can be made."""
    if wide.layout is not torch.strided or like.layout is not torch.strided or wide.stride() == like.stride():
        return wide
    if not torch.ops.aten.is_non_overlapping_and_dense(like):
        return wide
    return torch.empty_strided(like.shape, like.stride(), dtype=wide.dtype, device=wide.device).copy_(wide)
