"""The golden result: the reference's on inputs of higher precision, beside its result in the precision asked for.

The inputs are those of the case, already rounded to their dtype, so that both results answer the same question. float64
is tried first, then float32 without TF32, each in two ways. First the reference runs as it is, and everything that it
computes is computed in higher precision beside it (`Lifted`), closed-over tensors included. Where parts of it have no
such form, it is called with raised inputs. Where that is no better, the golden result is in part in the tensors' own
precision; what that costs is measured by a second run with other rounding errors. A reference that gives something else
in each way is its own judge; the reason is kept for the caller.

In a lifted run each tensor that the reference touches has a wide one beside it, with the same numbers in float64, and
every function of torch that is called on the tensors is called on the wide ones too. A cast among float16, bfloat16 and
float32 leaves the wide tensor as it is. Casts to other dtypes and functions that round are functions like any other:
they round the wide numbers, since that is what the reference computes. Reading the bits of a float (`view` with a
dtype) takes the bits of the wide number, rounded to the tensor's dtype. What a function without a float64 form
computes from the wide numbers, rounded, becomes wide again. So does what is written by an address, as by a kernel.
Numbers that leave a tensor, as by `item()`, are the wide ones.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from triton_ops.backend import Arguments, ArgumentSet, CandidateError, functions_taken
from triton_ops.base import require
from triton_ops.device import TorchDevice
from triton_ops.evaluation.expected import (
    Answers,
    Check,
    Standard,
    as_list,
    check_fit,
    difference,
    expected,
    kept,
    leaf_pairs,
    rebuilt,
    refusal,
)
from triton_ops.evaluation.judges import UNITS, Precision, Rounded
from triton_ops.evaluation.numbers import dense, device_of, dtype_name, is_floating, is_numbers, quietly
from triton_ops.evaluation.raised_precision import RaisedPrecision
from triton_ops.exceptions import DeviceError, TargetError

if TYPE_CHECKING:
    import torch

_MEMORY_SHARE = 0.5  # of the free memory: what a golden result may take at least, and wide copies of what was there
_CASTS = ("float", "half", "bfloat16", "cfloat", "chalf")
_VALUES = (
    "item", "tolist", "numpy", "__array__", "__float__", "__bool__", "__int__", "__index__", "__complex__",
    "is_nonzero", "equal", "allclose", "__contains__", "__format__",
)  # fmt: skip
_UNCOUNTED = ("batch_norm", "instance_norm")  # write running statistics, and do not count it
_ADDRESSES = ("data_ptr", "untyped_storage", "storage", "_typed_storage", "__dlpack__", "__cuda_array_interface__")


_SIXTEEN = ("float16", "bfloat16")


class _Noise:
    """Adds errors of up to one rounding unit of a dtype to wide numbers, other ones each time, by a seed."""

    def __init__(self, seed: int) -> None:
        self._seed, self._generators = seed, dict[Any, Any]()

    def __call__(self, wide: Any, dtype: Any) -> Any:
        if wide.is_complex():
            return wide
        torch = require("torch", "checking results")
        if (generator := self._generators.get(wide.device)) is None:
            generator = self._generators[wide.device] = torch.Generator(wide.device).manual_seed(self._seed)
        error = torch.empty_like(wide, requires_grad=False).uniform_(-1, 1, generator=generator)
        return wide * (1 + error * UNITS[dtype_name(dtype)])


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
    computed in the tensors' own precision; `convolves` says whether one was a convolution.
    """

    def __init__(self, name: str, *, change: Callable[[Any], Any] = lambda t: t, seed: int | None = None) -> None:
        torch = self._torch = require("torch", "checking results")
        real, complex_ = getattr(torch, name), torch.complex128 if name == "float64" else torch.complex64
        narrow = [torch.float16, torch.bfloat16, *([torch.float32] if name == "float64" else [])]
        self._wider = dict.fromkeys(narrow, real) | {torch.complex32: complex_, torch.complex64: complex_}
        self._change, self._noise = change, None if seed is None else _Noise(seed)
        # An ordinary dictionary compares keys by `==`, which between tensors gives a tensor.
        self._beside: Any = require("torch.utils.weak", "checking results").WeakTensorKeyDictionary()
        self._blocks: dict[tuple[Any, ...], _Given] = {}
        self._open: dict[Any, Any] = {}
        self._read_as_bits: dict[Any, Any] = {}
        self._free_bytes: dict[str, int] = {}
        self._failure = ""
        self.rounded: dict[str, None] = {}
        self.convolves = False

    def run(self, reference: Callable[..., object], arguments: Arguments) -> Any:
        """The reference's answer for arguments that it may write; `MemoryError` or `RuntimeError` without room."""
        try:
            for tensor in arguments.tensors():
                self._of(tensor)
            with ExitStack() as stack:
                if "torch._dynamo" in sys.modules:  # compiled code would be compiled again, for tensors of two kinds
                    stack.enter_context(self._torch.compiler.set_stance("force_eager"))
                stack.enter_context(functions_taken(self._call))
                answer = reference(*arguments.positional, **arguments.keyword)
        finally:
            with self._torch.no_grad():
                for memory in self._blocks.values():
                    if memory.before is not None:
                        memory.memory.copy_(memory.before)
        if self._failure:  # the reference has caught it
            raise MemoryError(self._failure)
        return answer

    def wide(self, value: object) -> Any:
        """A result of the run with wide tensors; `TypeError` for one that no function made, as if closed over."""
        return rebuilt(value, lambda part: Arguments.mapped(part, self._result))

    def _result(self, tensor: Any) -> Any:
        if tensor not in self._beside and tensor.dtype in self._wider:
            raise TypeError("it returns a tensor that no function of torch has made of its arguments")
        return self._of(tensor)

    def _call(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name, tensors = _name_of(func), list(Arguments.tensors_in((args, kwargs)))
        self.convolves = self.convolves or name.startswith("conv")
        # Private (torch 2.11 to 2.13): nothing public tells that a transform of functions is at work.
        if self._torch._C._functorch.peek_interpreter_stack() is not None:
            self.rounded["a transform of functions"] = None  # as `torch.vmap`, which has tensors of its own
            return func(*args, **kwargs)
        if getattr(func, "__name__", "") == "__get__" and not Arguments.is_tensor(answer := func(*args, **kwargs)):
            return answer
        if name in _ADDRESSES:
            for tensor in tensors:  # its numbers are those of its memory from now on, which may be written unseen
                self._round(tensor)
                self._save(tensor)
                self._open[_place(tensor)] = tensor
                self.rounded["a kernel that takes addresses"] = None
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

        def is_leaf(value: object) -> bool:
            return Arguments.is_tensor(value) or isinstance(value, torch.dtype)

        return func(*Arguments.mapped(args, change, is_leaf), **Arguments.mapped(kwargs, change, is_leaf))

    def _in_own_precision(self, func: Any, args: Any, kwargs: Any, tensors: Sequence[Any], name: str) -> Any:
        """Call a function on the tensors alone, which hold the wide numbers, rounded; its results become wide."""
        for tensor in tensors:
            self._round(tensor)
        copies = [(each, each.memory.clone()) for each in self._unsaved(tensors)]
        before = [_version(tensor) for tensor in tensors]
        answer = func(*args, **kwargs)
        targets = [tensor for tensor, version in zip(tensors, before, strict=True) if _version(tensor) != version]
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

    def _pair(
        self, answer: object, wide: object, name: str, tensors: Sequence[torch.Tensor], beside: Sequence[torch.Tensor]
    ) -> Any:
        results, others = list(Arguments.tensors_in((answer,))), list(Arguments.tensors_in((wide,)))
        if [t.shape for t in results] != [t.shape for t in others]:
            if len(results) != len(others) or any(answer is tensor for tensor in tensors):
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
        if (wide := self._beside.get(tensor)) is None:
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
        if device not in self._free_bytes:
            self._free_bytes[device] = int(_MEMORY_SHARE * TorchDevice(device).free_bytes)
        free = self._free_bytes[device]
        if count > free:
            raise MemoryError(f"what it closes over would take {count >> 20} MiB, and {free >> 20} MiB may be taken")
        self._free_bytes[device] = free - count

    def _round(self, tensor: torch.Tensor) -> None:
        """Let a tensor hold the wide numbers, rounded once; one that was there before and is not written holds them."""
        if (wide := self._beside.get(tensor)) is None or tensor.layout is not self._torch.strided:
            return
        if _place(tensor) in self._open or list(self._unsaved([tensor])):
            return
        if wide.dtype != tensor.dtype and self._noise is not None:
            wide = self._torch.where(wide == wide.to(tensor.dtype), wide, self._noise(wide, tensor.dtype))
        # Elements of an expanded tensor share a place, and torch refuses to write there.
        if all(stride or extent < 2 for stride, extent in zip(tensor.stride(), tensor.shape, strict=True)):
            tensor.data.copy_(wide.detach())

    def _unsaved(self, tensors: Sequence[torch.Tensor]) -> Iterator[_Given]:
        """The memory of some tensors that was there before, and of which no copy is kept yet."""
        places = {_place(tensor) for tensor in tensors}
        yield from (block for key, block in self._blocks.items() if key[0] in places and block.before is None)

    def _save(self, tensor: torch.Tensor) -> None:
        for block in self._unsaved([tensor]):
            block.before = block.memory.clone()

    def _widen(self, tensor: torch.Tensor, *, noisy: bool = True) -> torch.Tensor:
        dtype = self._wider.get(tensor.dtype, tensor.dtype)
        wide = tensor.detach().to(dtype, copy=True)
        if noisy and dtype != tensor.dtype and self._noise is not None:
            wide = self._noise(wide, tensor.dtype)
        return wide.requires_grad_() if tensor.requires_grad else wide

    def _recording(self) -> ExitStack:
        """Inside, tensors count how often they are written, also where the reference runs in inference mode."""
        torch, stack = self._torch, ExitStack()
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
        return stack


def _name_of(func: Any) -> str:
    """The name of a function of torch without that of an overload; of what reads an attribute the attribute's name."""
    if (name := str(getattr(func, "__name__", func))) != "__get__":
        return name.partition(".")[0]
    descriptor = func.__self__
    return str(getattr(descriptor, "__name__", getattr(getattr(descriptor, "fget", None), "__name__", name)))


def _place(tensor: torch.Tensor) -> Any:
    """The identity of a tensor's memory; None for a tensor that has none of its own."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None


def _version(tensor: torch.Tensor) -> int:
    """The number of times a tensor was written; 0 for one that does not count it."""
    return 0 if tensor.is_inference() else int(tensor._version)


def _as_laid_out(torch: Any, wide: Any, like: Any) -> Any:
    """A wide tensor with the strides of another, so that the same views of both can be made."""
    if wide.layout is not torch.strided or like.layout is not torch.strided or wide.stride() == like.stride():
        return wide
    if not torch.ops.aten.is_non_overlapping_and_dense(like):
        return wide
    return torch.empty_strided(like.shape, like.stride(), dtype=wide.dtype, device=wide.device).copy_(wide)


_TRIED = ("float64", "float32")
_SEED = 0  # of the rounding errors of a second run
_COPIES = 3  # of the inputs and of the results: each as the reference has it, a copy, and what lies between
_UNLIKE = 4.0  # times what rounding costs: a reference that errs more is asked a second time
_USELESS = 0.05  # a reference whose own error is larger than this share of its result is no yardstick
_ROUNDED_BLUR, _OWN_BLUR = 1.5, 2.0


class _Truth(NamedTuple):
    """A golden result; `rounded` is what of it is in the tensors' own precision, `own` the reference's own error."""

    golden: list[Any]
    way: RaisedPrecision
    rounded: tuple[str, ...]
    own: float


class Referee:
    """Asks a reference for its results; `outputs` names the arguments that a kernel writes.

    Of the last golden result, `used` is the precision in words, `rounded` what of it was computed in the tensors' own
    precision and what that costs, and `why_own` why there is none; each may be empty. It is `unstable` where rounding
    alone makes its result another one: the same steps give it in higher precision. It `convolves` if it has been seen
    to call a convolution.
    """

    def __init__(self, reference: Callable[..., object], outputs: Sequence[str] = ()) -> None:
        self._reference, self._outputs = reference, tuple(outputs)
        self._ways = [RaisedPrecision(name, lifts) for name in _TRIED for lifts in (True, False)]
        self._way: RaisedPrecision | None = None
        self._written: tuple[str, ...] = ()
        self.used = self.rounded = self.why_own = ""
        self.unstable = self.convolves = False

    def answers(self, argument_set: ArgumentSet, precision: Precision, check: Check | None = None) -> Answers:
        """The reference's results for the arguments of a case, which are restored if the reference writes them.

        For a `check`, the caller's own comparison, there is no golden result. A `TritonKernelError` says that they do
        not fit the outputs, or are others each time; what the reference raises is raised.
        """
        low = self._ask(argument_set)
        if check is None:
            hint = "return tensors with strides, arrays or numbers, or give a check, which compares them itself"
            with CandidateError.as_error(TargetError, "the reference's results cannot be compared:", hint, Exception):
                return self._answers(low, argument_set, precision)
        check_fit(low, self._outputs, argument_set.arguments)
        if refusal(check, low, low) is None and (reason := refusal(check, self._ask(argument_set), low)) is not None:
            raise _random(reason.text)
        return Answers(low=low, golden=[None] * len(low), precision=precision)

    def _answers(self, low: list[Any], argument_set: ArgumentSet, precision: Precision) -> Answers:
        check_fit(low, self._outputs, argument_set.arguments)
        truth = self._truth(argument_set, low, precision)
        _give_back(argument_set.arguments)
        most = min(_USELESS, _UNLIKE * _f(low, precision))
        if truth is None or truth.own > most or _others_differ(low, truth.golden, precision):
            standard = Standard(precision=replace(precision, blur=_OWN_BLUR))
            expectations = [expected(each, None, None, standard) for each in low]
            if (change := difference(self._ask(argument_set), expectations)) is not None:
                raise _random(change.text)
        self._way, self.used, self.rounded = None if truth is None else truth.way, "", ""
        if truth is None:
            return Answers(low=low, golden=[None] * len(low), precision=replace(precision, blur=_OWN_BLUR))
        self.used, self.why_own = truth.way.name, ""
        disturbed = self._disturbed(truth, argument_set, precision) if truth.rounded else []
        blur = _ROUNDED_BLUR if disturbed or any(map(_not_wider, truth.golden, low)) else 1.0
        blur = _OWN_BLUR if truth.rounded and not disturbed else blur
        return Answers(low=low, golden=truth.golden, precision=replace(precision, blur=blur), disturbed=disturbed)

    def cut(self, argument_set: ArgumentSet, tf32: bool, steps: bool, seed: int) -> list[Any] | None:
        """The golden results for inputs that are as coarse code has them; None if there are none.

        With `tf32` those of float32 are cut to the bits that TF32 keeps; with `steps` those of 16 bits err by up to one
        rounding unit, as a product of them does that is rounded before it is used, other ones for each seed.
        """
        noise = _Noise(seed)

        def change(tensor: torch.Tensor) -> Any:
            tensor = RaisedPrecision.cut_to_tf32(tensor) if tf32 else tensor
            return noise(tensor.double(), tensor.dtype) if steps and dtype_name(tensor.dtype) in _SIXTEEN else tensor

        return None if self._way is None else self._again(self._way, argument_set, (), change)

    def _again(
        self, way: RaisedPrecision, argument_set: ArgumentSet, low: Sequence[object],
        change: Callable[[Any], Any] = lambda t: t, seed: int | None = None,
    ) -> list[Any] | None:  # fmt: skip
        """The results in a way that has worked before; None where memory is short now."""
        try:
            return self._results(way, argument_set, low, change, seed)[0]
        except Exception:  # noqa: BLE001 - it worked before, so that only memory can be short: the rule does without
            return None
        finally:
            _give_back(argument_set.arguments)

    def _disturbed(self, truth: _Truth, argument_set: ArgumentSet, precision: Precision) -> list[Any]:
        """The golden results of a second run whose roundings err otherwise; none where it fails."""
        self.used = f"{truth.way.name} but for {_listed(truth.rounded)}"
        results = self._again(truth.way, argument_set, truth.golden, seed=_SEED) or []
        results = results if _alike(results, truth.golden) else []
        cost = f"costs {_own_error(results, truth.golden, precision):.2g} of the result" if results else "is not known"
        self.rounded = f"{_listed(truth.rounded)} ran in the precision of the tensors, which {cost} and is allowed for"
        return results

    def _ask(self, argument_set: ArgumentSet) -> list[Any]:
        answer = self._reference(*argument_set.arguments.positional, **argument_set.arguments.keyword)
        if isinstance(answer, (Iterator, Awaitable)):
            message = f"the reference returns a {type(answer).__name__}, which has computed nothing yet"
            raise TargetError(message, hint="let it return its results: tensors, arrays or numbers")
        if (changes := argument_set.changed()) and answer is None:  # what it writes is its result
            self._written, answer = tuple(changes), tuple(changes.values())
        results = [kept(item) for item in as_list(answer)]
        if changes:
            argument_set.restore()
        if any(tensor.device.type == "meta" for tensor in Arguments(tuple(results)).tensors()):
            message = "the reference returns a tensor on the device meta, which has no values"
            hint = "let it compute its results on the device of its arguments"
            raise DeviceError(message, "a device with memory", "meta", "reference", hint=hint)
        return results

    def _truth(self, argument_set: ArgumentSet, low: Sequence[object], precision: Precision) -> _Truth | None:
        """The results in the first way that has no part in the tensors' own precision, else in the first way."""
        partial: _Truth | None = None
        for way in [way for way in self._ways if way.applies(argument_set.arguments, low)]:
            if partial is not None and partial.way.name != way.name:
                break
            try:
                results, rounded = self._results(way, argument_set, low)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - it may refuse a precision by any error
                self.why_own = f"in {way.name} it fails with {CandidateError.one_line(error)}"
                self._ways.remove(way)
                continue
            if not _alike(results, low):
                self.why_own = f"in {way.name} it returns another shape or number of results"
            elif (own := _own_error(low, results, precision)) > max(_USELESS, _UNLIKE * _f(low, precision)):
                self.why_own = f"in {way.name} it gives another result, {own:.2g} apart"
                self.unstable = self.unstable or way.lifts
            elif own == 0 and not way.lifts and any(map(_not_wider, results, low)):
                self.why_own = f"in {way.name} it gives the same bits, as of results that were computed before"
            elif rounded or (partial is not None and any(map(_not_wider, results, low))):
                partial = partial or _Truth(results, way, rounded, own)
            else:
                return _Truth(results, way, rounded, own)
        return partial

    def _results(
        self, way: RaisedPrecision, argument_set: ArgumentSet, low: Sequence[object],
        change: Callable[[Any], Any] = lambda t: t, seed: int | None = None,
    ) -> tuple[list[Any], tuple[str, ...]]:  # fmt: skip
        """The results in one way, and what was computed in the tensors' own precision; `MemoryError` without room."""
        arguments = argument_set.arguments
        raised = list(Arguments.tensors_in([*arguments.positional, *arguments.keyword.values(), *low], is_numbers))
        need = _COPIES * sum(math.prod(t.shape) * way.float_bytes for t in raised)
        free = min((TorchDevice(name).free_bytes for name in {str(device_of(t)) for t in raised}), default=0)
        if need > _MEMORY_SHARE * free:
            raise MemoryError(f"its inputs and results would take {need >> 20} MiB of {free >> 20} MiB")
        with way.without_tf32():
            wide = way.copy(arguments, change)
            run = Lifted(way.name, change=change, seed=seed) if way.lifts else None
            answer = run.run(self._reference, wide) if run else self._reference(*wide.positional, **wide.keyword)
            arguments.synchronize()
            if answer is None and self._written:
                answer = tuple(ArgumentSet(wide, self._outputs, protected=False).inputs(self._written).values())
            del wide  # they may be large
            results = [kept(run.wide(item) if run else item) for item in as_list(answer)]
        self.convolves = self.convolves or (run is not None and run.convolves)
        return results, tuple(run.rounded) if run else ()


def _random(how: str) -> TargetError:
    message = f"the reference gives another result each time it is called with the same arguments: {how}"
    return TargetError(message, hint="give it a seed of its own, or take its random part out")


def _own_error(low: Sequence[object], golden: Sequence[object], precision: Precision) -> float:
    pairs = [(dense(a), dense(b)) for a, b in leaf_pairs(low, golden) if _is_float(a) and _is_float(b)]
    errors = (Rounded(b, [a], a.dtype, precision=precision).own_error for a, b in pairs if a.shape == b.shape)
    with quietly():
        return max(errors, default=0.0)


def _others_differ(low: Sequence[object], golden: Sequence[object], precision: Precision) -> bool:
    standard = Standard(precision=precision)
    pairs = [(a, b) for a, b in leaf_pairs(low, golden) if not _is_float(a)]
    return any(difference(b, expected(a, None, None, standard)) is not None for a, b in pairs)


def _is_float(value: Any) -> bool:
    return is_numbers(value) and (is_floating(value) or "complex" in dtype_name(value.dtype))


def _give_back(arguments: Arguments) -> None:
    """Free the memory that torch holds back: timed launches must find the device as they would without this."""
    if any(tensor.device.type == "cuda" for tensor in arguments.tensors()):
        require("torch", "freeing memory").cuda.empty_cache()


def _f(low: Sequence[Any], precision: Precision) -> float:
    return max((precision.rounding(dtype_name(each.dtype)) for each in low if is_numbers(each)), default=0.0)


def _alike(results: Sequence[object], low: Sequence[object]) -> bool:
    shapes = [[tuple(t.shape) for t in Arguments(tuple(each)).tensors()] for each in (results, low)]
    return len(results) == len(low) and shapes[0] == shapes[1]


def _not_wider(golden: Any, low: Any) -> bool:
    """True if the reference rounds its result to a dtype of its own, whatever its inputs are."""
    return is_numbers(low) and is_floating(low) and low.dtype.itemsize < 4 and golden.dtype == low.dtype


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
