"""`triton_ops.choose`: makes a chooser of implementations by name, or of a function that gets further ones later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from triton_ops.backend import FunctionKernel
from triton_ops.backend.operation import ArgumentSpecs
from triton_ops.choices.chooser import Chooser
from triton_ops.choices.implementation import as_implementation
from triton_ops.dispatch.tuner import tune_options
from triton_ops.exceptions import SettingsError
from triton_ops.tolerance import Tolerance

_OF_A_CALL = frozenset({
    "target", "args", "kwargs", "space", "shape", "dtype", "device", "reference", "tolerance", "check", "cold",
})  # fmt: skip


def choose(
    implementations: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    outputs: Sequence[str] = (),
    parameters: Sequence[str] | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: float | Tolerance | None = None,
    check: Callable[[Any, Any], Any] | None = None,
    arguments: Callable[..., ArgumentSpecs] | None = None,
    dtypes: Sequence[str] = (),
    problems: Mapping[str, tuple[tuple[int, ...], str]] | None = None,
    schema: str | None = None,
    on_miss: str | None = None,
    **options: Any,
) -> Any:
    """Choose among implementations of one operation by measurement: for each problem, the fastest one that is right.

    With implementations it makes a `Chooser`. Without, it is a decorator: the decorated function is the first
    implementation, and `@function.register("name")` adds others.

    Args:
        implementations: Name to a callable, an `Operation`, or an `Implementation`, which says where it applies. All
            are called with the same arguments, those with a place by position. The first one runs untuned, and is the
            right one where no reference is given.
        name: The operation's name in records; None takes that of the first implementation's function.
        outputs: Arguments that the implementations write; empty if they return their results, one or several.
        parameters: Names of the parameters that may be given by position; None takes them from the first implementation
            that tells its own. Outputs, and arguments by name, need them.
        reference: As of `tune`; None takes the first implementation in higher precision, where it returns its result.
        tolerance: As of `tune`.
        check: As of `tune`.
        arguments: From extents and `dtype` to the arguments by name, as of an `Operation`: for problems by shape, and
            for the command line.
        dtypes: Dtypes that `arguments` takes; the first is the default.
        problems: Named shapes with their dtypes.
        schema: The operation's arguments and results as torch writes them, such as `(Tensor a, Tensor b) -> Tensor`, or
            `(Tensor x, Tensor(a!) out) -> ()` for one that writes. Code that `torch.compile` makes for dynamic sizes
            then chooses when it runs; without it such code is compiled anew for each size.
        on_miss: What a call without a known winner does: `default` runs the first implementation that applies, `tune`
            measures, `error` raises, `queue` notes the problem. None takes `TRITON_OPS_ON_MISS`, else `default`.
        **options: Options of `tune` for all tunes, such as `effort`, `budget_s`, `cache_dir` and `isolate`.

    Returns:
        A `Chooser`; without implementations a decorator that returns one.

    Raises:
        KernelTypeError: An implementation is not callable, or there is none.
        SettingsError: There is no such policy, or no such option.
    """
    _check_options(options)
    if implementations is None:

        def decorate(function: Callable[..., Any]) -> Chooser:
            kernel = FunctionKernel(function)
            return Chooser(
                {function.__name__: function}, name=name or kernel.name, outputs=outputs, parameters=parameters,
                reference=reference, tolerance=tolerance, check=check, arguments=arguments, dtypes=dtypes,
                problems=problems, schema=schema, on_miss=on_miss, options=options,
            )  # fmt: skip

        return decorate
    return Chooser(
        implementations, name=name or _name_of(implementations), outputs=outputs, parameters=parameters,
        reference=reference, tolerance=tolerance, check=check, arguments=arguments, dtypes=dtypes, problems=problems,
        schema=schema, on_miss=on_miss, options=options,
    )  # fmt: skip


def _check_options(options: Mapping[str, Any]) -> None:
    known = tune_options() - _OF_A_CALL
    if unknown := sorted(set(options) - known):
        raise SettingsError(
            f"choose takes no option {', '.join(unknown)}", hint=f"options of tune are {', '.join(sorted(known))}"
        )


def _name_of(implementations: Any) -> str:
    if not isinstance(implementations, Mapping) or not implementations:
        return ""  # the chooser refuses it
    first = as_implementation(next(iter(implementations.values())))
    if first.operation is not None:
        return first.operation.name
    return FunctionKernel(first.function).name if first.function is not None else ""
