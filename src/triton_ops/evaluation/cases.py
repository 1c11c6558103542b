"""The cases on which candidates are checked, beside the tuned problem with its own data.

A case is left out where the arguments are the caller's, since only the caller knows which values an index, a mask or a
length may have; and where memory is short.
"""

from __future__ import annotations

from dataclasses import replace

from triton_ops.backend import Arguments, Operation
from triton_ops.evaluation.ragged import ragged_shape
from triton_ops.evaluation.subject import ArgumentSet
from triton_ops.evaluation.verify import Case
from triton_ops.hardware import DeviceSpec
from triton_ops.hardware.state import free_bytes
from triton_ops.problem import Problem, Scalar
from triton_ops.task.task import GeneratedArguments
from triton_ops.tensors import TensorSpec

_COPIES_OF_A_SET = 5  # the arguments, the copies that restore them, and golden results, of up to thrice the bytes
_MEMORY_SHARE = 0.25  # of the free memory: a further set of data may take so much


def further_cases(first: ArgumentSet, source: object, device: DeviceSpec, device_name: str) -> list[Case]:
    """Cases of the tuned shape with other data: a second draw, without outliers, and whole numbers.

    An error that shows without outliers may fade beside them, and the other way round.

    Without a second draw, the first data serves again, with outputs that hold another poison.

    Args:
        first: The arguments of the tuned problem.
        source: What made them.
        device: The device that they are on.
        device_name: Its torch name.
    """
    if not isinstance(source, GeneratedArguments):
        return [Case(first, 1)]
    outputs = source.operation.kernel.outputs
    needed = _COPIES_OF_A_SET * _bytes_of(first.arguments)
    if needed > _MEMORY_SHARE * free_bytes(device, device_name):
        return [Case(first, 1)]
    even = replace(source.problem, arguments=tuple((name, _even(it)) for name, it in source.problem.arguments))
    cases = [Case(ArgumentSet(replace(source, problem=even, seed=source.seed + 1)(), outputs), 1)]
    whole = _of_whole_numbers(source.problem)
    if whole is not None and needed <= _MEMORY_SHARE * free_bytes(device, device_name):
        made = replace(source, problem=whole, seed=source.seed + 2)()
        cases.append(Case(ArgumentSet(made, outputs), 0, "on whole numbers, ", whole=True))
    return cases


def _bytes_of(arguments: Arguments) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in arguments.tensors())


def _of_whole_numbers(problem: Problem) -> Problem | None:
    """The problem with floats drawn from -1, 0 and 1 where they were uniform; None if no input is a uniform float.

    Sums of their products are whole, and so small that tensor cores of every precision add them without rounding.
    """
    changed = [(name, _whole(given)) for name, given in problem.arguments]
    if all(new is old for (_, new), (_, old) in zip(changed, problem.arguments, strict=True)):
        return None
    return replace(problem, arguments=tuple(changed))


def _even(given: TensorSpec | Scalar) -> TensorSpec | Scalar:
    outliers = isinstance(given, TensorSpec) and given.fill == "outliers"
    return replace(given, fill="uniform") if isinstance(given, TensorSpec) and outliers else given


def _whole(given: TensorSpec | Scalar) -> TensorSpec | Scalar:
    if isinstance(given, TensorSpec) and given.fill in ("uniform", "outliers") and "float" in given.dtype:
        return replace(given, fill="whole")
    return given


def odd_case(source: object, shape: tuple[int, ...] | None, dtype: str | None) -> Case | None:
    """The case of odd extents, for configs that the operation's space holds there; None where there is no such problem.

    Only problems that an operation makes from a shape have one.

    Args:
        source: What made the arguments of the tuned problem.
        shape: The extents of the tuned problem.
        dtype: Its dtype, as asked for.
    """
    if shape is None or not isinstance(source, GeneratedArguments):
        return None
    operation: Operation = source.operation
    odd = ragged_shape(operation, shape, dtype)
    if odd is None:
        return None
    try:
        problem = operation.problem(odd, dtype)
        space = operation.space_for(problem)
        made = ArgumentSet(replace(source, problem=problem)(), operation.kernel.outputs)
    except Exception:  # noqa: BLE001 - the operation refuses the shape only when it makes its space or arguments
        return None
    label = f"at {'x'.join(map(str, odd))}, "
    return Case(made, 0, label, holds=lambda config: space.why_not(config) is None)
