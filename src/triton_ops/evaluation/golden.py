"""The golden result: the reference's on inputs of higher precision, beside its result in the precision asked for.

The inputs are those of the case, already rounded to their dtype, so that both results answer the same question. float64
is tried first, then float32 without TF32. A reference that cannot run in either, or gives something else there, is its
own judge; the reason is kept for the caller. Nothing is timed here, and the device's memory is given back.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from triton_ops._optional import require
from triton_ops.backend import Arguments, is_tensor, one_line
from triton_ops.evaluation.criteria import Precision
from triton_ops.evaluation.dense import dense
from triton_ops.evaluation.expected import Manner, difference, expected, leaf_pairs
from triton_ops.evaluation.judges import Rounded
from triton_ops.evaluation.own_check import Check, refusal
from triton_ops.evaluation.parts import as_list, kept
from triton_ops.evaluation.subject import ArgumentSet, synchronize
from triton_ops.exceptions import (
    DeviceError,
    KernelTypeError,
    ShapeMismatchError,
    TargetError,
    TritonKernelError,
    UnsupportedDtypeError,
)
from triton_ops.hardware.state import free_bytes_of

_TRIED = ("float64", "float32")
_COPIES = 3  # of the inputs and of the results: each as the reference has it, a copy, and what lies between
_MEMORY_SHARE = 0.5  # of the free memory: what a golden result may take at least
_UNLIKE = 4.0  # times what rounding costs: a reference that errs more is asked a second time
_USELESS = 0.05  # a reference whose own error is larger than this share of its result is no yardstick
_ROUNDED_BLUR, _OWN_BLUR = 1.5, 2.0
_TF32_KEPT = ~((1 << 13) - 1)  # TF32 has 13 bits of fraction less than float32


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What the reference says of one case.

    Attributes:
        low: Its results, in order, in the precision that is asked for.
        golden: Its results in higher precision; None for each where there is none.
        precision: In what precision results are computed, with the blur that follows from the golden results.
    """

    low: list[Any]
    golden: list[Any]
    precision: Precision


class Referee:
    """Asks a reference for its results.

    Args:
        reference: The reference; it is called with the arguments of a case.
        outputs: The names of the arguments that a kernel writes; empty where results are returned.

    Attributes:
        used: The precision of the last golden result; empty if there was none.
        why_own: Why there is no golden result, in words; empty if there is one, or if inputs have no higher precision.
    """

    def __init__(self, reference: Callable[..., Any], outputs: Sequence[str] = ()) -> None:
        self._reference, self._outputs = reference, tuple(outputs)
        self._tried = list(_TRIED)
        self._written: tuple[str, ...] = ()
        self.used = self.why_own = ""

    def answers(self, given: ArgumentSet, precision: Precision) -> Answers:
        """The reference's results for the arguments of a case, which are restored if the reference writes them.

        Raises:
            KernelTypeError, ShapeMismatchError, UnsupportedDtypeError, DeviceError: Its results do not fit the outputs.
            TargetError: It gives another result each time.
            Exception: Whatever the reference raises.

        Cost: two calls of the reference, one of them in higher precision; a third where the two differ by more than
        rounding, or where there is only one.
        """
        low = self._asked(given)
        with _comparing():
            return self._answers(low, given, precision)

    def answers_for(self, check: Check, given: ArgumentSet, precision: Precision) -> Answers:
        """The reference's results for the caller's own comparison, which needs no golden result.

        Raises:
            TargetError: The check does not accept what the reference gives when it is asked again.
            Exception: As `answers`.
        """
        low = self._asked(given)
        self._check_fit(low, given)
        if refusal(check, low, low) is None and (found := refusal(check, self._asked(given), low)) is not None:
            raise _random(found.text)
        return Answers(low=low, golden=[None] * len(low), precision=precision)

    def _answers(self, low: list[Any], given: ArgumentSet, precision: Precision) -> Answers:
        self._check_fit(low, given)
        golden = self._golden(given, low)
        _give_back(given.arguments)
        own = math.inf if golden is None else _own_error(low, golden, precision)
        if own > min(_USELESS, _UNLIKE * _f(low, precision)) or _others_differ(low, golden, precision):
            self._check_repeatable(low, given, precision)
        if golden is not None and own > max(_USELESS, _UNLIKE * _f(low, precision)):
            self.why_own = f"in {self.used} it gives another result, {own:.2g} apart"
            golden = None
        if golden is None:
            self.used = ""
            blurred = replace(precision, blur=_OWN_BLUR)
            return Answers(low=low, golden=[None] * len(low), precision=blurred)
        blur = _ROUNDED_BLUR if any(map(_not_wider, golden, low)) else 1.0
        return Answers(low=low, golden=golden, precision=replace(precision, blur=blur))

    def cut_to_tf32(self, given: ArgumentSet) -> list[Any] | None:
        """The golden results for float32 inputs cut to the bits that TF32 keeps; None if there are none."""
        try:
            found = self._raised(given, self.used, (), _cut) if self.used else None
        except Exception:  # noqa: BLE001 - it worked before, so that only memory can be short: the rule does without
            found = None
        _give_back(given.arguments)
        return found

    def _asked(self, given: ArgumentSet) -> list[Any]:
        said = self._reference(*given.arguments.positional, **given.arguments.keyword)
        if isinstance(said, (Iterator, Awaitable)):
            raise TargetError(
                f"the reference returns a {type(said).__name__}, which has computed nothing yet",
                hint="let it return its results: tensors, arrays or numbers",
            )
        if (changed := given.changed()) and said is None:  # what it writes is its result
            self._written, said = tuple(changed), tuple(changed.values())
        found = [kept(item) for item in as_list(said)]
        if changed:
            given.restore()
        if any(tensor.device.type == "meta" for tensor in Arguments(tuple(found)).tensors()):
            raise DeviceError(
                "the reference returns a tensor on the device meta, which has no values",
                "a device with memory", "meta", "reference",
                hint="let it compute its results on the device of its arguments",
            )  # fmt: skip
        return found

    def _golden(self, given: ArgumentSet, low: Sequence[Any]) -> list[Any] | None:
        """The results in the first precision in which the reference runs; None if there is none."""
        wanted = [name for name in self._tried if _raises_any(given.arguments, name)]
        for name in wanted:
            try:
                found = self._raised(given, name, low)
            except (Exception, SystemExit) as error:  # noqa: BLE001, PERF203 - it may refuse a precision by any error
                self.why_own = f"in {name} it fails with {one_line(error)}"
                self._tried = [other for other in self._tried if other != name]
            else:
                if _alike(found, low):
                    self.used, self.why_own = name, ""
                    return found
                self.why_own = f"in {name} it returns another shape or number of results"
        return None

    def _raised(
        self, given: ArgumentSet, name: str, low: Sequence[Any], change: Callable[[Any], Any] = lambda t: t
    ) -> list[Any]:
        """The results on inputs raised to a precision.

        Raises:
            MemoryError: The raised inputs, and results like `low`, alone would take half of the free memory.
            Exception: Whatever the reference raises.
        """
        torch = require("torch", "checking results")
        arguments = given.arguments
        raised = [*arguments.tensors(), *Arguments(tuple(low)).tensors()]
        needed = _COPIES * sum(t.numel() * (8 if name == "float64" else 4) for t in raised)
        free = min((free_bytes_of(str(t.device)) for t in arguments.tensors()), default=needed)
        if needed > _MEMORY_SHARE * free:
            raise MemoryError(f"its inputs and results would take {needed >> 20} MiB of {free >> 20} MiB")
        with _without_tf32(torch):
            wide = _raised_arguments(arguments, name, change)
            said = self._reference(*wide.positional, **wide.keyword)
            synchronize(arguments)
        if said is None and self._written:
            said = tuple(ArgumentSet(wide, self._outputs, protected=False).inputs(self._written).values())
        return [kept(item) for item in as_list(said)]

    def _check_repeatable(self, low: Sequence[Any], given: ArgumentSet, precision: Precision) -> None:
        again, manner = self._asked(given), Manner(precision=replace(precision, blur=_OWN_BLUR))
        wanted = [expected(each, None, None, manner) for each in low]
        if (found := difference(again, wanted)) is not None:
            raise _random(found.text)

    def _check_fit(self, low: Sequence[Any], given: ArgumentSet) -> None:
        """Raise unless the results fit the outputs; a wider float is rounded to the output's dtype."""
        if not self._outputs:
            return
        if len(low) != len(self._outputs):
            raise KernelTypeError(
                f"the reference returns {len(low)} results, the kernel writes {len(self._outputs)}",
                hint="let the reference return the outputs, in the order in which the kernel names them",
            )
        for name, found in zip(self._outputs, low, strict=True):
            if is_tensor(wanted := given.arguments.keyword.get(name)):
                _check_output(name, found, wanted)


def _check_output(name: str, found: Any, wanted: Any) -> None:
    hint = f"return what {name} must hold: {tuple(wanted.shape)} {wanted.dtype} on {wanted.device}"
    if not is_tensor(found):
        raise KernelTypeError(f"the reference returns a {type(found).__name__} for {name}, not a tensor", hint=hint)
    if tuple(found.shape) != tuple(wanted.shape):
        raise ShapeMismatchError(
            f"the reference returns shape {tuple(found.shape)} for {name}, which is {tuple(wanted.shape)}",
            tuple(wanted.shape), tuple(found.shape), name, hint=hint,
        )  # fmt: skip
    wider = wanted.dtype.is_floating_point and found.dtype.is_floating_point
    if found.dtype != wanted.dtype and not (wider and found.dtype.itemsize > wanted.dtype.itemsize):
        raise UnsupportedDtypeError(
            f"the reference returns {found.dtype} for {name}, which is {wanted.dtype}",
            str(found.dtype), [str(wanted.dtype)], name, hint=hint,
        )  # fmt: skip
    if found.device != wanted.device:
        raise DeviceError(
            f"the reference returns a tensor on {found.device} for {name}, which is on {wanted.device}",
            str(wanted.device), str(found.device), name, hint=hint,
        )  # fmt: skip


def _random(how: str) -> TargetError:
    return TargetError(
        f"the reference gives another result each time it is called with the same arguments: {how}",
        hint="give it a seed of its own, or take its random part out",
    )


@contextmanager
def _comparing() -> Iterator[None]:
    """What torch raises inside is no fault of the reference: its results are of a kind that cannot be compared.

    Raises:
        TargetError: In place of what torch raises.
    """
    try:
        yield
    except TritonKernelError:
        raise
    except Exception as error:
        raise TargetError(
            f"the reference's results cannot be compared: {one_line(error)}",
            hint="return tensors with strides, arrays or numbers, or give a check, which compares them itself",
        ) from error


def _own_error(low: Sequence[Any], golden: Sequence[Any], precision: Precision) -> float:
    """The largest error of a floating-point result, by root mean square, relative to the golden one."""
    pairs = [(dense(a), dense(b)) for a, b in leaf_pairs(low, golden) if _is_float(a) and _is_float(b)]
    return max(
        (Rounded(b, [a], a.dtype, precision=precision).own_error for a, b in pairs if a.shape == b.shape), default=0.0
    )


def _others_differ(low: Sequence[Any], golden: Sequence[Any] | None, precision: Precision) -> bool:
    """Whether some value that is no floating-point tensor differs between the precisions."""
    if golden is None:
        return False
    manner = Manner(precision=precision)
    pairs = [(a, b) for a, b in leaf_pairs(low, golden) if not _is_float(a)]
    return any(difference(b, expected(a, None, None, manner)) is not None for a, b in pairs)


def _is_float(value: Any) -> bool:
    return is_tensor(value) and (value.dtype.is_floating_point or value.dtype.is_complex)


def _give_back(arguments: Arguments) -> None:
    """Free the memory that torch holds back: timed launches must find the device as they would without this."""
    if any(tensor.device.type == "cuda" for tensor in arguments.tensors()):
        require("torch", "freeing memory").cuda.empty_cache()


def _f(low: Sequence[Any], precision: Precision) -> float:
    names = [str(each.dtype).removeprefix("torch.") for each in low if is_tensor(each)]
    return max((precision.rounding(name) for name in names), default=0.0)


def _alike(found: Sequence[Any], low: Sequence[Any]) -> bool:
    shapes = [[tuple(t.shape) for t in Arguments(tuple(each)).tensors()] for each in (found, low)]
    return len(found) == len(low) and shapes[0] == shapes[1]


def _not_wider(golden: Any, low: Any) -> bool:
    """Whether the reference rounds its result to a dtype of its own, whatever its inputs are."""
    return is_tensor(low) and low.dtype.is_floating_point and low.dtype.itemsize < 4 and golden.dtype == low.dtype


def _raises_any(arguments: Arguments, name: str) -> bool:
    """Whether some float is narrower than this precision, and none is wider."""
    sizes = [size for value in (*arguments.tensors(), *_arrays(arguments)) if (size := _float_bytes(value))]
    limit = 8 if name == "float64" else 4
    return bool(sizes) and min(sizes) < limit and max(sizes) <= limit


def _arrays(arguments: Arguments) -> Iterator[Any]:
    values = [*arguments.positional, *arguments.keyword.values()]
    yield from (value for value in values if hasattr(value, "astype") and hasattr(value, "dtype"))


def _float_bytes(value: Any) -> int:
    """Bytes of a floating-point element, or of a part of a complex one; 0 for other dtypes."""
    name = str(value.dtype)
    if "complex" in name:
        return int(value.dtype.itemsize) // 2
    return int(value.dtype.itemsize) if "float" in name else 0


def _raised_arguments(arguments: Arguments, name: str, change: Callable[[Any], Any]) -> Arguments:
    torch = require("torch", "checking results")
    complex_name = "complex128" if name == "float64" else "complex64"

    def tensor(value: Any) -> Any:
        if not _float_bytes(value):
            return value.clone()
        wide = change(value.detach()).to(getattr(torch, complex_name if value.is_complex() else name), copy=True)
        return wide.requires_grad_(value.requires_grad)

    def array(value: Any) -> Any:
        if not (hasattr(value, "astype") and hasattr(value, "dtype") and _float_bytes(value)):
            return value.copy() if hasattr(value, "astype") else value
        return value.astype(complex_name if "complex" in str(value.dtype) else name)

    raised = arguments.map(tensor)
    return Arguments(tuple(map(array, raised.positional)), {n: array(v) for n, v in raised.keyword.items()})


def _cut(tensor: Any) -> Any:
    """A float32 tensor cut to the bits that TF32 keeps; any other tensor as it is."""
    torch = require("torch", "checking results")
    if tensor.dtype is not torch.float32:
        return tensor
    return (tensor.contiguous().view(torch.int32) & _TF32_KEPT).view(torch.float32)


@contextmanager
def _without_tf32(torch: Any) -> Iterator[None]:
    """Inside, products of float32 are computed in float32, also those that a reference makes by itself."""
    before = [(holder, *_tf32_setting(holder)) for holder in (torch.backends.cuda.matmul, torch.backends.cudnn)]
    try:
        for holder, name, _, off in before:
            setattr(holder, name, off)
        yield
    finally:
        for holder, name, value, _ in before:
            setattr(holder, name, value)


def _tf32_setting(holder: Any) -> tuple[str, Any, Any]:
    """Torch's setting of TF32: its name, its value, and its value for full precision.

    Torch 2.9 has two names for it, and raises where the old one is read after the new one was set.
    """
    try:
        return "allow_tf32", holder.allow_tf32, False
    except RuntimeError:
        return "fp32_precision", holder.fp32_precision, "ieee"
