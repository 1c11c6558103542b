"""The golden result: the reference's on inputs of higher precision, beside its result in the precision asked for.

The inputs are those of the case, already rounded to their dtype, so that both results answer the same question. float64
is tried first, then float32 without TF32, each in two ways. First the reference runs as it is, and everything that it
computes is computed in higher precision beside it, closed-over tensors included (`lifted.py`). Where parts of it have
no such form, it is called with raised inputs. Where that is no better, the golden result is in part in the tensors' own
precision; what that costs is measured by a second run with other rounding errors. A reference that gives something else
in each way is its own judge; the reason is kept for the caller. Nothing is timed here, and the device's memory is given
back.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops.backend import Arguments, ArgumentSet, CandidateError
from triton_ops.base import require
from triton_ops.device import TorchDevice
from triton_ops.evaluation.expected import Check, Criteria, as_list, difference, expected, kept, leaf_pairs, refusal
from triton_ops.evaluation.judges import Precision, Rounded, dense
from triton_ops.evaluation.lifted import Lifted
from triton_ops.exceptions import (
    DeviceError,
    KernelTypeError,
    ShapeMismatchError,
    TargetError,
    TritonKernelError,
    UnsupportedDtypeError,
)

_TF32_KEPT = ~((1 << 13) - 1)  # TF32 has 13 bits of fraction less than float32


def raises_any(arguments: Arguments, name: str) -> bool:
    """True if some float is narrower than this precision, and none is wider."""
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


def raised_arguments(
    arguments: Arguments, name: str, change: Callable[[Any], Any], *, tensors: bool = True
) -> Arguments:
    """Copies of arguments, raised to a precision: floats in arrays, and, if `tensors`, in tensors after a change."""
    torch = require("torch", "checking results")
    complex_name = "complex128" if name == "float64" else "complex64"

    def tensor(value: Any) -> Any:
        if not tensors or not _float_bytes(value):
            return value.detach().clone().requires_grad_(value.requires_grad)
        wide = change(value.detach()).to(getattr(torch, complex_name if value.is_complex() else name), copy=True)
        return wide.requires_grad_(value.requires_grad)

    def array(value: Any) -> Any:
        if not (hasattr(value, "astype") and hasattr(value, "dtype") and _float_bytes(value)):
            return value.copy() if hasattr(value, "astype") else value
        return value.astype(complex_name if "complex" in str(value.dtype) else name)

    raised = arguments.map(tensor)
    return Arguments(tuple(map(array, raised.positional)), {n: array(v) for n, v in raised.keyword.items()})


def cut(tensor: Any) -> Any:
    """A float32 tensor cut to the bits that TF32 keeps; any other tensor as it is."""
    torch = require("torch", "checking results")
    if tensor.dtype is not torch.float32:
        return tensor
    return (tensor.contiguous().view(torch.int32) & _TF32_KEPT).view(torch.float32)


@contextmanager
def without_tf32(torch: Any) -> Iterator[None]:
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


_TRIED = ("float64", "float32")
_SEED = 0  # of the rounding errors of a second run
_COPIES = 3  # of the inputs and of the results: each as the reference has it, a copy, and what lies between
_MEMORY_SHARE = 0.5  # of the free memory: what a golden result may take at least
_UNLIKE = 4.0  # times what rounding costs: a reference that errs more is asked a second time
_USELESS = 0.05  # a reference whose own error is larger than this share of its result is no yardstick
_ROUNDED_BLUR, _OWN_BLUR = 1.5, 2.0


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The reference's answers for one case; `disturbed` are golden ones with other rounding errors, if any."""

    low: list[Any]
    golden: list[Any]
    precision: Precision
    disturbed: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class _Way:
    """A way to a golden result: in what precision, and whether all that is computed is lifted to it, or the inputs."""

    name: str
    lifts: bool


@dataclass(frozen=True, kw_only=True)
class _Truth:
    """A golden result; `rounded` is what of it is in the tensors' own precision, `own` the reference's own error."""

    golden: list[Any]
    way: _Way
    rounded: tuple[str, ...] = ()
    own: float = 0.0


class Referee:
    """Asks a reference for its results; `outputs` names the arguments that a kernel writes.

    Of the last golden result, `used` is the precision in words, `rounded` what of it was computed in the tensors' own
    precision and what that costs, and `why_own` why there is none; each may be empty. It is `unstable` where rounding
    alone makes its result another one: the same steps give it in higher precision.
    """

    def __init__(self, reference: Callable[..., Any], outputs: Sequence[str] = ()) -> None:
        self._reference, self._outputs = reference, tuple(outputs)
        self._ways = [_Way(name, lifts) for name in _TRIED for lifts in (True, False)]
        self._way: _Way | None = None
        self._written: tuple[str, ...] = ()
        self.used = self.rounded = self.why_own = ""
        self.unstable = False

    def answers(self, argument_set: ArgumentSet, precision: Precision) -> Answers:
        """The reference's results for the arguments of a case, which are restored if the reference writes them.

        A `TritonKernelError` says that they do not fit the outputs, or are others each time; what the reference raises
        is raised.
        """
        low = self._ask(argument_set)
        with _comparing():
            return self._answers(low, argument_set, precision)

    def answers_for(self, check: Check, argument_set: ArgumentSet, precision: Precision) -> Answers:
        """The reference's results for the caller's own comparison, without a golden one; raises as `answers`."""
        low = self._ask(argument_set)
        self._check_fit(low, argument_set)
        if refusal(check, low, low) is None and (reason := refusal(check, self._ask(argument_set), low)) is not None:
            raise _random(reason.text)
        return Answers(low=low, golden=[None] * len(low), precision=precision)

    def _answers(self, low: list[Any], argument_set: ArgumentSet, precision: Precision) -> Answers:
        self._check_fit(low, argument_set)
        truth = self._truth(argument_set, low, precision)
        _give_back(argument_set.arguments)
        golden, own = (None, math.inf) if truth is None else (truth.golden, truth.own)
        if own > min(_USELESS, _UNLIKE * _f(low, precision)) or _others_differ(low, golden, precision):
            self._check_repeatable(low, argument_set, precision)
        self._way, self.used, self.rounded = None if truth is None else truth.way, "", ""
        if truth is None:
            blurred = replace(precision, blur=_OWN_BLUR)
            return Answers(low=low, golden=[None] * len(low), precision=blurred)
        self.used, self.why_own = truth.way.name, ""
        disturbed = self._disturbed(truth, argument_set, precision) if truth.rounded else []
        blur = _ROUNDED_BLUR if disturbed or any(map(_not_wider, truth.golden, low)) else 1.0
        blur = _OWN_BLUR if truth.rounded and not disturbed else blur
        return Answers(low=low, golden=truth.golden, precision=replace(precision, blur=blur), disturbed=disturbed)

    def cut_to_tf32(self, argument_set: ArgumentSet) -> list[Any] | None:
        """The golden results for float32 inputs cut to the bits that TF32 keeps; None if there are none."""
        try:
            results = self._results(self._way, argument_set, (), cut)[0] if self._way else None
        except Exception:  # noqa: BLE001 - it worked before, so that only memory can be short: the rule does without
            results = None
        _give_back(argument_set.arguments)
        return results

    def _disturbed(self, truth: _Truth, argument_set: ArgumentSet, precision: Precision) -> list[Any]:
        """The golden results of a second run whose roundings err otherwise; none where it fails."""
        self.used = f"{truth.way.name} but for {_listed(truth.rounded)}"
        try:
            results, _ = self._results(truth.way, argument_set, truth.golden, seed=_SEED)
        except Exception:  # noqa: BLE001 - it worked before, so that only memory can be short: more rounding is allowed
            results = []
        _give_back(argument_set.arguments)
        if not _alike(results, truth.golden):
            results = []
        cost = f"costs {_own_error(results, truth.golden, precision):.2g} of the result" if results else "is not known"
        self.rounded = f"{_listed(truth.rounded)} ran in the precision of the tensors, which {cost} and is allowed for"
        return results

    def _ask(self, argument_set: ArgumentSet) -> list[Any]:
        answer = self._reference(*argument_set.arguments.positional, **argument_set.arguments.keyword)
        if isinstance(answer, (Iterator, Awaitable)):
            raise TargetError(
                f"the reference returns a {type(answer).__name__}, which has computed nothing yet",
                hint="let it return its results: tensors, arrays or numbers",
            )
        if (changes := argument_set.changed()) and answer is None:  # what it writes is its result
            self._written, answer = tuple(changes), tuple(changes.values())
        results = [kept(item) for item in as_list(answer)]
        if changes:
            argument_set.restore()
        if any(tensor.device.type == "meta" for tensor in Arguments(tuple(results)).tensors()):
            raise DeviceError(
                "the reference returns a tensor on the device meta, which has no values",
                "a device with memory", "meta", "reference",
                hint="let it compute its results on the device of its arguments",
            )  # fmt: skip
        return results

    def _truth(self, argument_set: ArgumentSet, low: Sequence[Any], precision: Precision) -> _Truth | None:
        """The results in the first way that has no part in the tensors' own precision, else in the first way."""
        partial: _Truth | None = None
        for way in [way for way in self._ways if _applies(way, argument_set.arguments, low)]:
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
                partial = partial or _Truth(golden=results, way=way, rounded=rounded, own=own)
            else:
                return _Truth(golden=results, way=way, own=own)
        return partial

    def _results(
        self, way: _Way, argument_set: ArgumentSet, low: Sequence[Any],
        change: Callable[[Any], Any] = lambda t: t, seed: int | None = None,
    ) -> tuple[list[Any], tuple[str, ...]]:  # fmt: skip
        """The results in one way, and what was computed in the tensors' own precision; `MemoryError` without room."""
        torch = require("torch", "checking results")
        arguments = argument_set.arguments
        raised = [*arguments.tensors(), *Arguments(tuple(low)).tensors()]
        need = _COPIES * sum(t.numel() * (8 if way.name == "float64" else 4) for t in raised)
        free = min((TorchDevice(str(t.device)).free_bytes for t in raised), default=0)
        if need > _MEMORY_SHARE * free:
            raise MemoryError(f"its inputs and results would take {need >> 20} MiB of {free >> 20} MiB")
        with without_tf32(torch):
            wide = raised_arguments(arguments, way.name, change, tensors=not way.lifts)
            run = Lifted(way.name, change=change, seed=seed) if way.lifts else None
            answer = run.run(self._reference, wide) if run else self._reference(*wide.positional, **wide.keyword)
            arguments.synchronize()
            if answer is None and self._written:
                answer = tuple(ArgumentSet(wide, self._outputs, protected=False).inputs(self._written).values())
            results = [kept(run.wide(item) if run else item) for item in as_list(answer)]
        return results, tuple(run.rounded) if run else ()

    def _check_repeatable(self, low: Sequence[Any], argument_set: ArgumentSet, precision: Precision) -> None:
        again, criteria = self._ask(argument_set), Criteria(precision=replace(precision, blur=_OWN_BLUR))
        expectations = [expected(each, None, None, criteria) for each in low]
        if (change := difference(again, expectations)) is not None:
            raise _random(change.text)

    def _check_fit(self, low: Sequence[Any], argument_set: ArgumentSet) -> None:
        """Raise unless the results fit the outputs; a wider float is rounded to the output's dtype."""
        if not self._outputs:
            return
        if len(low) != len(self._outputs):
            raise KernelTypeError(
                f"the reference returns {len(low)} results, the kernel writes {len(self._outputs)}",
                hint="let the reference return the outputs, in the order in which the kernel names them",
            )
        for name, result in zip(self._outputs, low, strict=True):
            if Arguments.is_tensor(output := argument_set.arguments.keyword.get(name)):
                _check_output(name, result, output)


def _check_output(name: str, result: Any, output: Any) -> None:
    hint = f"return what {name} must hold: {tuple(output.shape)} {output.dtype} on {output.device}"
    if not Arguments.is_tensor(result):
        raise KernelTypeError(f"the reference returns a {type(result).__name__} for {name}, not a tensor", hint=hint)
    if tuple(result.shape) != tuple(output.shape):
        raise ShapeMismatchError(
            f"the reference returns shape {tuple(result.shape)} for {name}, which is {tuple(output.shape)}",
            tuple(output.shape), tuple(result.shape), name, hint=hint,
        )  # fmt: skip
    wider = output.dtype.is_floating_point and result.dtype.is_floating_point
    if result.dtype != output.dtype and not (wider and result.dtype.itemsize > output.dtype.itemsize):
        raise UnsupportedDtypeError(
            f"the reference returns {result.dtype} for {name}, which is {output.dtype}",
            str(result.dtype), [str(output.dtype)], name, hint=hint,
        )  # fmt: skip
    if result.device != output.device:
        raise DeviceError(
            f"the reference returns a tensor on {result.device} for {name}, which is on {output.device}",
            str(output.device), str(result.device), name, hint=hint,
        )  # fmt: skip


def _random(how: str) -> TargetError:
    return TargetError(
        f"the reference gives another result each time it is called with the same arguments: {how}",
        hint="give it a seed of its own, or take its random part out",
    )


@contextmanager
def _comparing() -> Iterator[None]:
    """Turn what torch raises inside into an error: the reference's results are of a kind that cannot be compared."""
    try:
        yield
    except TritonKernelError:
        raise
    except Exception as error:
        raise TargetError(
            f"the reference's results cannot be compared: {CandidateError.one_line(error)}",
            hint="return tensors with strides, arrays or numbers, or give a check, which compares them itself",
        ) from error


def _own_error(low: Sequence[Any], golden: Sequence[Any], precision: Precision) -> float:
    pairs = [(dense(a), dense(b)) for a, b in leaf_pairs(low, golden) if _is_float(a) and _is_float(b)]
    return max(
        (Rounded(b, [a], a.dtype, precision=precision).own_error for a, b in pairs if a.shape == b.shape), default=0.0
    )


def _others_differ(low: Sequence[Any], golden: Sequence[Any] | None, precision: Precision) -> bool:
    if golden is None:
        return False
    criteria = Criteria(precision=precision)
    pairs = [(a, b) for a, b in leaf_pairs(low, golden) if not _is_float(a)]
    return any(difference(b, expected(a, None, None, criteria)) is not None for a, b in pairs)


def _is_float(value: Any) -> bool:
    return Arguments.is_tensor(value) and (value.dtype.is_floating_point or value.dtype.is_complex)


def _give_back(arguments: Arguments) -> None:
    """Free the memory that torch holds back: timed launches must find the device as they would without this."""
    if any(tensor.device.type == "cuda" for tensor in arguments.tensors()):
        require("torch", "freeing memory").cuda.empty_cache()


def _f(low: Sequence[Any], precision: Precision) -> float:
    names = [str(each.dtype).removeprefix("torch.") for each in low if Arguments.is_tensor(each)]
    return max((precision.rounding(name) for name in names), default=0.0)


def _alike(results: Sequence[Any], low: Sequence[Any]) -> bool:
    shapes = [[tuple(t.shape) for t in Arguments(tuple(each)).tensors()] for each in (results, low)]
    return len(results) == len(low) and shapes[0] == shapes[1]


def _not_wider(golden: Any, low: Any) -> bool:
    """True if the reference rounds its result to a dtype of its own, whatever its inputs are."""
    return (
        Arguments.is_tensor(low)
        and low.dtype.is_floating_point
        and low.dtype.itemsize < 4
        and golden.dtype == low.dtype
    )


def _applies(way: _Way, arguments: Arguments, low: Sequence[Any]) -> bool:
    if not way.lifts:
        return raises_any(arguments, way.name)
    either = arguments, Arguments(tuple(low))
    return any(raises_any(Arguments(tuple(each.tensors())), way.name) for each in either)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
