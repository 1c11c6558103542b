"""An operation: everything a tune needs to know of one computation, under one name.

The kernel says how a config becomes a launch, the space what may be tried, the problem builder which arguments a
shape means, the reference what the right result is, and the work what the device must at least do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from triton_ops._faces import Upward
from triton_ops.backend.callables import FunctionKernel
from triton_ops.backend.origins import Layers
from triton_ops.backend.roles import Arguments, Kernel
from triton_ops.base import Frozen
from triton_ops.exceptions import (
    KernelTypeError,
    MissingDependencyError,
    SettingsError,
    ShapeMismatchError,
    UnsupportedDtypeError,
)
from triton_ops.space import ConfigSpace
from triton_ops.values import Problem, TensorSpec, Tolerance, Work, as_callable, dtype_name

_TENSORS_SHOWN = 4
_CALLED = Upward["Callable[[Operation, tuple[Any, ...], dict[str, Any]], Any]"]("a call of an operation")
_SHIPPED = Upward["Callable[[str], Operation]"]("a shipped kernel")
_SHIPPED_NAMES = Upward["Callable[[], tuple[str, ...]]"]("the names of shipped kernels")
ArgumentSpecs = Mapping[str, "TensorSpec | bool | int | float | str | None"]


@dataclass(frozen=True)
class Operation:
    """One tunable computation.

    Attributes:
        name: Short and stable, such as `matmul`: the command line's TARGET and part of every record.
        kernel: How a config becomes a launch; a callable becomes a `FunctionKernel`.
        space: What may be tried: a `ConfigSpace` or what one is made of, as for `tune`; or a function of the problem
            that returns it. None takes the list of an `autotune` around the kernel.
        arguments: From extents (its positional parameters, whose names explain `--shape`) and a `dtype` keyword to the
            kernel's arguments, by name, in calling order. Its defaults are the problem of a call that names none.
        reference: Called with the same arguments by name; returns the right result, or the outputs in order.
        work: The least the problem makes the device do.
        dtypes: Dtypes it takes; the first is the default. Empty if `arguments` takes no dtype.
        problems: Named shapes with their dtype, used by tests, benchmarks and tuning alike.
        tolerance: How far results may be from the right one: a number or a `Tolerance`, as for `tune`.
        check: The own comparison of results, `check(result, expected)`, in place of the rule; as for `tune`.
        device: Where it runs: `cuda` (any GPU), `cpu`, or `any`, a GPU where there is one. That of a compiled Triton
            kernel is `cuda`.
        least_gain: Share by which the model's first pick must be ahead of the default, so that a call without a winner
            runs it; for work whose configs the model is known to rank well. With None such a call runs the default.
        by_class: Whether a call whose very problem has no winner takes the config of the problem that stands for its
            class of sizes; for spaces whose rules change at powers of two and with alignment alone.
    """

    name: str
    kernel: Kernel
    space: ConfigSpace | Callable[[Problem], ConfigSpace] | None
    arguments: Callable[..., ArgumentSpecs]
    _: KW_ONLY
    reference: Callable[..., Any] | None = None
    work: Callable[[Problem], Work] | None = None
    dtypes: tuple[str, ...] = ()
    problems: Mapping[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    device: Literal["cuda", "cpu", "any"] = "any"
    tolerance: float | Tolerance | None = None
    check: Callable[[Any, Any], Any] | None = None
    least_gain: float | None = None
    by_class: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", FunctionKernel.as_kernel(self.kernel))
        if self.tolerance is not None:
            object.__setattr__(self, "tolerance", Tolerance.of(self.tolerance))
        as_callable("check", self.check)
        as_callable("reference", self.reference)
        if self.least_gain is not None:
            SettingsError.checked("least_gain", self.least_gain, hint="0.05 asks for 5 % over the default")
        object.__setattr__(self, "dtypes", tuple(map(dtype_name, self.dtypes)))
        Frozen.fields(self, "problems")
        kernel, space = FunctionKernel.kernel_and_space(self.kernel, self.space)
        object.__setattr__(self, "kernel", kernel)
        if isinstance(self.space, ConfigSpace) or not callable(self.space):
            object.__setattr__(self, "space", ConfigSpace.from_user(space))
        if self.device == "any" and getattr(self.kernel, "interpreted", None) is False:
            object.__setattr__(self, "device", "cuda")  # else a machine without a GPU tells it of each config
        if not callable(self.arguments):
            raise KernelTypeError(f"arguments is {self.arguments!r}; it must be a function from extents to specs")
        try:
            Layers.parameters_of(self.arguments)
        except ValueError as error:  # such as `dict`
            message = f"arguments is {self.arguments!r}, whose parameters cannot be seen"
            raise KernelTypeError(message, hint="wrap it in a function") from error

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run the kernel with the winner of these arguments' problem, or with the default config if none is known.

        Returns:
            What the kernel returns; outputs that are arguments are written.

        Raises:
            UntunedError: No winner is known, and `on_miss` says that this is an error.

        Cost: the first call of a problem reads one file, and compiles.
        """
        return _CALLED.function(self, args, kwargs)  # it looks into records, and so stands above

    @staticmethod
    def shipped(name: str) -> Operation:
        """The operation of the shipped kernel called `name`; the first call imports Triton.

        Raises:
            TargetError: No shipped kernel has this name.
            MissingDependencyError: Triton, or the package of shipped kernels, is not installed.
        """
        return _SHIPPED.function(name)

    @staticmethod
    def shipped_names() -> tuple[str, ...]:
        """The names of the shipped kernels; none where their package is not installed."""
        try:
            return _SHIPPED_NAMES.function()
        except MissingDependencyError:
            return ()

    @property
    def extents(self) -> tuple[str, ...]:
        """The names of a shape's extents, in order."""
        parameters = Layers.parameters_of(self.arguments).values()
        return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "dtype")

    def problem(self, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> Problem:
        """The problem that `shape` and `dtype` name; None takes the defaults.

        Raises:
            ShapeMismatchError: Wrong number of extents, one below 1, or a shape that the kernel cannot take.
            UnsupportedDtypeError: A dtype that the operation does not take.
            KernelTypeError: `arguments` gives a tensor or an array.
        """
        extents = self.full_shape(shape)
        keywords = self._checked_dtype(dtype)
        specs = self.arguments(*extents, **keywords)
        if real := [name for name, value in specs.items() if Arguments.is_tensor(value) or Arguments.is_array(value)]:
            message = f"the arguments of {self.name} have values in place of specs: {', '.join(real)}"
            raise KernelTypeError(message, hint='write TensorSpec((1024,), "float32") for a tensor')
        tensors = [str(spec) for spec in specs.values() if isinstance(spec, TensorSpec)]
        more = ", …" if len(tensors) > _TENSORS_SHOWN else ""
        listed = ", ".join(tensors[:_TENSORS_SHOWN]) + more or ("default shape" if specs else "")
        label = "x".join(map(str, extents)) or listed
        return Problem(self.name, tuple(specs.items()), " ".join([label, *keywords.values()]).strip())

    def axis(self, extent: str) -> int:
        """The place of an extent; `ShapeMismatchError` for an unknown one."""
        if extent in self.extents:
            return self.extents.index(extent)
        message = f"{self.name} has no extent {extent!r}; it has {', '.join(self.extents)}"
        raise ShapeMismatchError(message, self.extents, extent, hint="name one of them")

    def full_shape(self, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """`shape` with the defaults for what it leaves out; raises `ShapeMismatchError` as `problem`."""
        names = self.extents
        parameters = Layers.parameters_of(self.arguments)
        minimum = sum(parameters[name].default is inspect.Parameter.empty for name in names)
        if shape is None:
            if minimum:
                message = f"{self.name} needs a shape: {'x'.join(names)}"
                raise ShapeMismatchError(message, names, None, hint=f"add --shape {'x'.join(names)}")
            return tuple(parameters[name].default for name in names)
        text = "x".join(map(str, shape))
        if not minimum <= len(shape) <= len(names):
            count = str(len(names)) if minimum == len(names) else f"{minimum} to {len(names)}"
            message = f"{self.name} takes {count} extents, {'x'.join(names) or 'none'}; {text} has {len(shape)}"
            raise ShapeMismatchError(message, names, shape, hint=f"write --shape as {'x'.join(names)}")
        if any(extent < 1 for extent in shape):
            raise ShapeMismatchError(f"shape {text} of {self.name} has an extent below 1", "1 or more", shape)
        return (*shape, *(parameters[name].default for name in names[len(shape) :]))

    def space_for(self, problem: Problem) -> ConfigSpace:
        """The configs that may be tried on this problem."""
        return ConfigSpace.from_user(self.space(problem)) if callable(self.space) else ConfigSpace.from_user(self.space)

    def materialise(self, problem: Problem, device: str, seed: int = 0) -> Arguments:
        """Dummy arguments for `problem` on `device`: tensors from their specs, scalars as they are."""
        return Arguments(keyword=TensorSpec.with_tensors(dict(problem.arguments), device, seed))

    def _checked_dtype(self, dtype: str | None) -> dict[str, str]:
        if not self.dtypes:
            if dtype is not None:
                raise UnsupportedDtypeError(f"{self.name} has no choice of dtype", dtype, [], hint="leave --dtype out")
            return {}
        name = dtype_name(dtype) if dtype is not None else self.dtypes[0]
        if name not in self.dtypes:
            message = f"{self.name} does not take {name}; it takes {', '.join(self.dtypes)}"
            raise UnsupportedDtypeError(message, name, list(self.dtypes), hint="use one of these")
        return {"dtype": name}


def operation(
    *,
    space: Any,
    arguments: Callable[..., ArgumentSpecs],
    name: str | None = None,
    reference: Callable[..., Any] | None = None,
    work: Callable[[Problem], Work] | None = None,
    dtypes: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    device: Literal["cuda", "cpu", "any"] = "any",
    tolerance: float | Tolerance | None = None,
    check: Callable[[Any, Any], Any] | None = None,
) -> Callable[[Callable[..., Any]], Operation]:
    """Decorator that makes an `Operation` of a Python function.

    Args:
        space: What may be tried, as of an `Operation`; its values reach the function as keywords.
        arguments: From extents and a `dtype` keyword to the function's arguments, by name, as of an `Operation`.
        name: Its name in records; None takes the function's.
        reference: Called with the same arguments by name; returns the right result. None compares with the default's.
        work: From the problem to the least that it makes the device do.
        dtypes: The dtypes it takes; the first is the default. Empty if `arguments` takes no dtype.
        outputs: Names of the arguments that the function writes; empty if it returns its result.
        device: Where it runs: `cuda`, `cpu`, or `any`, a GPU where there is one.
        tolerance: As for `tune`.
        check: As for `tune`.

    Returns:
        A decorator, which returns the operation. It is called as the function is, and runs the winner of the problem.

    Raises:
        KernelTypeError: What is decorated is not callable.
        SpaceError: The space is not well defined.
    """

    def make(function: Callable[..., Any]) -> Operation:
        kernel = FunctionKernel(function, outputs=outputs)
        return Operation(
            name or kernel.name, kernel, space, arguments,
            reference=reference, work=work, dtypes=dtypes, problems={}, device=device,
            tolerance=tolerance, check=check,
        )  # fmt: skip

    return make
