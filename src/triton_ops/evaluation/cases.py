"""What a candidate is launched on: the arguments that are timed, and the cases on which its results are checked.

A case is left out where the arguments are the caller's, since only the caller knows which values an index, a mask or a
length may have; and where memory is short.

Triton specialises code on whether an integer is 1 or a multiple of 16. An extent that is a multiple of 16 is therefore
replaced by a small odd multiple of 16, which no tile of 32 or more divides, and any other extent by a small odd number.
An extent is kept where the operation refuses the new one, or where an integer that follows from it, such as the number
of scales in a row, would be specialised otherwise, or a flag would be another one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from triton_ops import values
from triton_ops.backend import (
    Arguments,
    ArgumentSet,
    Executable,
    Operation,
    PreparedCall,
    Protection,
)
from triton_ops.device import TorchDevice
from triton_ops.evaluation.expected import ExpectedResults
from triton_ops.evaluation.renewal import Renewal
from triton_ops.exceptions import TritonKernelError
from triton_ops.request import KernelProblem
from triton_ops.space import Config
from triton_ops.timing import Launch
from triton_ops.values import KNOWN_MULTIPLE, IntegerClass, Problem, TensorSpec

_Sets: TypeAlias = Callable[[Iterable[Any]], int]


@dataclass
class Subject:
    """The argument set on which executables are launched and checked, and further sets of equal content for timing.

    `sets` says through how many of them launches rotate, given the tensors of one; it is called when the first launch
    is timed. Where launches change what they read, `restores` is set: arguments are restored before every launch, and
    there is a single set. Launches are timed in turn on the subjects of the problem's other `contents`, which share
    with their `base` all arguments but those named in `own`; `labelled` are such a content's label
    and weight. `value` is what the times on all of them count as; the first are the units of later ones. Inputs of
    callables that return their results get new values by `renewal`.
    """

    first: ArgumentSet
    sets: _Sets = lambda _: 1
    restores: bool = False
    contents: Sequence[Subject] = ()
    labelled: Sequence[Any] = ("", 0.0)
    base: Subject | None = None
    own: Collection[str] = ()
    value: Callable[[Sequence[float]], float] = lambda times_ms: times_ms[0]
    renewal: Renewal | None = None
    _further: list[Arguments] | None = None
    _with_reset: set[Config] = field(default_factory=set)  # configs before whose launches something must be done

    @classmethod
    def on(cls, arguments: Arguments, sets: _Sets, restores: bool | None = None) -> Subject:
        """The subject on arguments that nothing else may write; where `restores` is None, it is to be found out."""
        return cls(ArgumentSet(arguments, protected=restores is not False), sets, bool(restores))

    @classmethod
    def over(
        cls, contents: values.Contents, call: Arguments, outputs: Sequence[str], sets: _Sets, seed: int
    ) -> Subject:
        """The subject on arguments with the first of some contents, beside subjects of the others."""
        subjects: list[Subject] = []
        for *labelled, tensors in list(contents.drawn(call.keyword, seed)):
            base = subjects[0] if subjects else None
            own = {*tensors, *outputs, *(() if base is None else base.own)}  # whose values differ from those of `base`
            first = ArgumentSet(Arguments(call.positional, {**call.keyword, **tensors}), outputs)
            subjects.append(cls(first, sets, labelled=labelled, base=base, own=own))
        subjects[0].contents, subjects[0].value = subjects[1:], partial(contents.value, [])
        return subjects[0]

    @property
    def arguments(self) -> Arguments:
        """The arguments of the first set."""
        return self.first.arguments

    def launch(self, executable: Executable, outputs: Sequence[object] | None = None, name: str = "") -> Launch:
        """A launch that is ready to be timed, of the executable's outputs for None; it may lack memory.

        `name` is that by which a fault of its results is told, empty for that of its config.
        """
        call = executable.bind(self.arguments)
        if outputs is None:
            outputs = tuple(Arguments(tuple(self.first.written_by(executable))).tensors())
        if (reset := self._reset(call)) is not None:
            self._with_reset.add(executable.config)
            launch = Launch(call.run if isinstance(call, PreparedCall) else call, reset, outputs=tuple(outputs))
        else:
            others = tuple(executable.bind(arguments) for arguments in self.further())
            launch = Launch(call, None, others, tuple(outputs), again=lambda: executable.bind(self.arguments))
            if self.renewal is not None and not (outputs or executable.outputs):
                name = name or f"config ({executable.config})"
                launch = replace(launch, renewed=partial(self.renewal.around, name, self.arguments, itertools.count()))
        for each in self.contents:
            each.restores = self.restores
        contents = tuple(each.launch(executable) for each in self.contents)
        return replace(launch, contents=contents, value=self.value) if contents else launch

    def _reset(self, call: Callable[[], object]) -> Callable[[], None] | None:
        """The work before every launch, outside the timed region; None if there is none."""
        # Triton times hooks with the launch, and so picked a config of 698 in place of 843 TFLOP/s:
        # facebookexperimental/triton#1679.
        if not isinstance(call, PreparedCall):
            return self.first.restore if self.restores else None
        if not self.restores:
            return call.prepare

        def reset() -> None:
            self.first.restore()
            call.prepare()

        return reset

    def further(self, executable: Executable | None = None) -> list[Arguments]:
        """The argument sets after the first; none where work, as to restore inputs, precedes each launch."""
        if self.restores or (executable is not None and executable.config in self._with_reset):
            return []
        if self._further is None and self.base is not None:
            own = Arguments(keyword={name: self.arguments.keyword[name] for name in self.own})
            self._further = [
                Arguments(base.positional, {**base.keyword, **Protection.private_copy(own).keyword})
                for base in self.base.further()
            ]
        if self._further is None:
            count = self.sets(self.arguments.tensors()) - 1
            self._further = [Protection.private_copy(self.arguments) for _ in range(count)]
        return self._further


@dataclass(eq=False)
class Case:
    """One check: arguments, a poison pattern, and the expected results.

    These are None until they are known. `label` stands before the description of a difference; empty for the tuned
    problem with its own data. With `whole` numbers as inputs, the case is left out unless its results are exact.
    `effects` has for each input that a launch may change its right content afterwards. `holds` says whether a config is
    valid for the problem of this case. Launches are `timed` on a further content of the problem.
    """

    argument_set: ArgumentSet
    pattern: int
    label: str = ""
    _: KW_ONLY
    whole: bool = False
    expected: ExpectedResults | None = None
    effects: dict[str, Any] = field(default_factory=dict)
    holds: Callable[[Config], bool] = lambda _: True
    timed: bool = False


_MOST = (65, 127)  # steps: 1,040 is more than four of the widest common tiles, 256; 2,032 makes 16 groups of 128
_ODD = 1031  # a prime


def ragged_shape(operation: Operation, shape: tuple[int, ...], dtype: str | None) -> tuple[int, ...] | None:
    """`shape` with as many odd extents as the operation takes, one after another; None if it takes none."""
    if (kinds := _kinds(operation, shape, dtype)) is None:
        return None
    ragged = shape
    for axis, extent in enumerate(shape):
        candidates = ((*ragged[:axis], odd, *ragged[axis + 1 :]) for odd in _odd(extent) if odd != extent)
        ragged = next((candidate for candidate in candidates if _kinds(operation, candidate, dtype) == kinds), ragged)
    return None if ragged == shape else ragged


def _odd(extent: int) -> tuple[int, ...]:
    if extent <= KNOWN_MULTIPLE:
        return (extent,)
    if extent % KNOWN_MULTIPLE:
        return (min(extent, _ODD),)
    multiples = (min(extent // KNOWN_MULTIPLE, most) for most in _MOST)
    return tuple(KNOWN_MULTIPLE * (steps - 1 + steps % 2) for steps in multiples)


def _kinds(operation: Operation, shape: tuple[int, ...], dtype: str | None) -> tuple[object, ...] | None:
    """Triton's specialisations of the values of a problem; None if the operation refuses the shape."""
    try:
        problem = operation.problem(shape, dtype)
    except (TritonKernelError, ArithmeticError, ValueError, AssertionError, LookupError, TypeError):
        return None  # an operation may refuse a shape by any of these errors
    return tuple(_kind(value) for _, value in problem.arguments)


def _kind(value: object) -> object:
    """Triton's specialisation of a value: of an integer its alignment; a flag or a name is a constant of its own."""
    if isinstance(value, (bool, str)):
        return value
    return replace(IntegerClass.of(value), is_wide=False) if isinstance(value, int) else None


_COPIES_OF_A_SET = 5  # the arguments, the copies that restore them, and golden results, of up to thrice the bytes
_MEMORY_SHARE = 0.25  # of the free memory: a further set of data may take so much


def further_cases(first: ArgumentSet, problem: KernelProblem) -> list[Case]:
    """Cases of the tuned shape with other data: a second draw, without outliers, and whole numbers.

    An error that shows without outliers may fade beside them, and the other way round. Without a second draw, as for
    the caller's own arguments, the first data serves again, with outputs that hold another poison.
    """
    if (source := problem.generated) is None:
        return [Case(first, 1)]
    outputs = source.operation.kernel.outputs
    need = _COPIES_OF_A_SET * sum(tensor.untyped_storage().nbytes() for tensor in first.arguments.tensors())
    if need > _MEMORY_SHARE * TorchDevice(problem.device_name).free_bytes:
        return [Case(first, 1)]
    even = _refilled(source.problem, ("outliers",), "uniform") or source.problem
    cases = [Case(ArgumentSet(replace(source, problem=even, seed=source.seed + 1)(), outputs), 1)]
    # Sums of products of -1, 0 and 1 are so small that tensor cores of every precision add them without rounding.
    whole = _refilled(source.problem, ("uniform", "outliers"), "whole")
    if whole is not None and need <= _MEMORY_SHARE * TorchDevice(problem.device_name).free_bytes:
        arguments = replace(source, problem=whole, seed=source.seed + 2)()
        cases.append(Case(ArgumentSet(arguments, outputs), 0, "on whole numbers, ", whole=True))
    return cases


def _refilled(problem: Problem, fills: Sequence[str], new: object) -> Problem | None:
    """The problem with floats that are drawn in one of these ways drawn in a new one; None if there are none."""
    drawn = {
        name: replace(argument, fill=new)
        for name, argument in problem.arguments
        if isinstance(argument, TensorSpec)
        and isinstance(argument.fill, str)
        and argument.fill in fills
        and "float" in argument.dtype
    }
    return replace(problem, arguments=tuple({**dict(problem.arguments), **drawn}.items())) if drawn else None


def odd_case(tuned: KernelProblem) -> Case | None:
    """The case of odd extents, for configs that the operation's space holds there; None if it has none."""
    if (source := tuned.generated) is None:
        return None
    operation: Operation = source.operation
    if (odd := ragged_shape(operation, source.full_shape, source.dtype)) is None:
        return None
    try:
        problem = operation.problem(odd, source.dtype)
        space = operation.space_for(problem)
        argument_set = ArgumentSet(replace(source, problem=problem)(), operation.kernel.outputs)
    except Exception:  # noqa: BLE001 - the operation refuses the shape only when it makes its space or arguments
        return None
    return Case(argument_set, 0, f"at {'x'.join(map(str, odd))}, ", holds=lambda config: space.why_not(config) is None)
