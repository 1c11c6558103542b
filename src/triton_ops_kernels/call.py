"""Steps of the public kernels before a launch: checks with typed errors, one function per rule, of configs too.

A kernel checks placement, dtypes, layout and shapes in this order, so that the first error is the one to mend first.
The checks neither use a device nor import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from triton_ops.backend import Operation
from triton_ops.base import require
from triton_ops.dispatch import beside
from triton_ops.exceptions import (
    ConfigValueError,
    DeviceError,
    KernelTypeError,
    SettingsError,
    ShapeMismatchError,
    UnknownTunableError,
    UnsupportedDtypeError,
)
from triton_ops.space import Config
from triton_ops.values import TensorSpec, is_fake
from triton_ops_kernels.shipped import ShippedKernel

if TYPE_CHECKING:
    import torch

    from triton_ops_kernels.composed import Form, FormsKernel


def validate_positive_dimensions(**dimensions: object) -> None:
    """Check that every size is a whole number of 1 or more.

    Raises:
        ShapeMismatchError: One is not; `tensor_name` of the error is its name.
    """
    for name, size in dimensions.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ShapeMismatchError(f"{name} is {size!r}; it must be a whole number from 1", "1 or more", size, name)


def validate_head_dim(head_dim: Any, hidden_dim: int | None = None) -> None:
    """Check that a head has an even size, as RoPE needs, and that heads of this size fill `hidden_dim`.

    Raises:
        ShapeMismatchError: They do not.
    """
    validate_positive_dimensions(head_dim=head_dim)
    if head_dim % 2:
        raise ShapeMismatchError(
            f"head_dim is {head_dim}; RoPE turns pairs: it must be even", "an even head size", head_dim, "head_dim"
        )
    if hidden_dim is not None and hidden_dim % head_dim:
        raise ShapeMismatchError(
            f"hidden_dim {hidden_dim} is no multiple of head_dim {head_dim}",
            f"a multiple of {head_dim}",
            hidden_dim,
            "hidden_dim",
        )


def validate_eps(eps: object) -> None:
    """Check that what is added to a mean square is a finite number, and not negative.

    Raises:
        SettingsError: It is not.
    """
    SettingsError.checked("eps", eps, 0)


class ValueRule(NamedTuple):
    """A test of a tunable's value, with its words: what the value must be."""

    words: str
    holds: Callable[[Any], bool]


_FLAG = ValueRule("true or false", lambda value: type(value) is bool)
_POWER_OF_TWO = ValueRule(
    "a power of two, such as 64", lambda value: type(value) is int and value > 0 and value & (value - 1) == 0
)


def whole_from(least: int) -> ValueRule:
    """Whole numbers from `least` on."""
    return ValueRule(f"a whole number from {least}", lambda value: type(value) is int and value >= least)


def one_of(values: Sequence[object]) -> ValueRule:
    """These values alone."""
    return ValueRule(
        f"one of {', '.join(map(str, values))}",
        lambda value: any(type(value) is type(each) and value == each for each in values),
    )


def _rule_of(values: Sequence[Any]) -> ValueRule:
    """The rule of a tunable with these values in a kernel's space: numbers may lie beyond what is worth trying."""
    kinds = set(map(type, values))
    if kinds == {bool}:
        return _FLAG
    if kinds != {int}:
        return one_of(values)
    return _POWER_OF_TWO if all(map(_POWER_OF_TWO.holds, values)) else whole_from(min(1, *values))


class Own(NamedTuple):
    """A tunable of a shipped kernel, which a config of a caller's own may leave out if it is `optional`.

    `rule` says which values the kernel takes where these are more, or fewer, than those of the space tell.
    """

    values: Sequence[Any]
    rule: ValueRule | None = None
    optional: bool = False


class OwnConfigs:
    """The tunables of a kernel, and the configs that it takes from its callers."""

    def __init__(self, declared: Mapping[str, Sequence[Any] | Own]) -> None:
        own = {name: each if isinstance(each, Own) else Own(each) for name, each in declared.items()}
        self.tunables = {name: each.values for name, each in own.items()}
        self._rules = {name: each.rule or _rule_of(each.values) for name, each in own.items()}
        self._optional = tuple(name for name, each in own.items() if each.optional)
        self._essentials = tuple(name for name, each in own.items() if not each.optional)

    def checked(self, config: Mapping[str, object], kernel: str) -> Config:
        """`config` as a `Config` that the kernel of this name takes.

        Raises:
            UnknownTunableError: A tunable is missing, or a name is no tunable of the kernel.
            ConfigValueError: A value is none that the kernel takes, or of a type that no config can hold.
        """
        unknown = [name for name in config if name not in self._rules]
        absent = [name for name in self._essentials if name not in config]
        if unknown or absent:
            wrong = [f"has no tunable {name!r}" for name in unknown]
            wrong += [f"needs a value for {name!r}" for name in absent]
            rest = f", and if you like {', '.join(self._optional)}" if self._optional else ""
            raise UnknownTunableError(
                f"{kernel} {', '.join(wrong)}", hint=f"give exactly {', '.join(self._essentials)}{rest}"
            )
        checked = config if isinstance(config, Config) else Config(config)
        for name, value in checked.items():
            if not self._rules[name].holds(value):
                raise ConfigValueError(f"{kernel}: {name} is {value!r}; it must be {self._rules[name].words}")
        return checked


def shipped(
    name: str, kernel: Form | FormsKernel, problems: ModuleType,
    fits: Callable[[Config, Mapping[str, Any], bool], Config] | None = None, *, part: str = "",
) -> ShippedKernel:  # fmt: skip
    """The kernel that a file `problems` declares; what belongs to a `part` of it, as `gradient`, begins with that.

    The reference is called as the kernel. A part has its own space and arguments, and shares what it lacks. `fits` is
    as of a `ShippedKernel`.
    """
    named = vars(problems)

    def of_part(what: str) -> Any:
        own = f"{part}_{what}"
        return named.get(own.upper() if what.isupper() else own, named[what])

    operation = Operation(
        name, kernel, named[f"{part or 'config'}_space"], of_part("arguments"), device="cuda",
        reference=named[f"{name}_reference"], work=of_part("work"), dtypes=problems.DTYPES,
        problems=of_part("PROBLEMS"), least_gain=None if part else named.get("LEAST_GAIN"),
        by_class=True,
    )  # fmt: skip
    return ShippedKernel(operation, of_part("OWN").checked, fits)


_UNITS_UNKNOWN = 132  # multiprocessors of an H100


def check_placement(tensors: Mapping[str, Any], on_cpu: bool = False) -> None:
    """Check that all are tensors, on a GPU, on the same GPU, with strides and their values as they are, in this order.

    With `on_cpu` the kernel runs on a CPU too, as under `TRITON_INTERPRET=1`. Sparse and nested tensors are refused,
    and those with torch's bit for negation, as `z.conj().imag`.
    """
    for name, tensor in tensors.items():
        TensorSpec.check_layout(tensor, name)
    places = ("cuda", "cpu") if on_cpu else ("cuda",)
    for name, tensor in tensors.items():
        if tensor.device.type not in places:
            raise DeviceError(
                f"{name} is on {tensor.device}; the kernel runs on a CUDA device",
                "cuda",
                str(tensor.device),
                name,
                hint=f'move it: {name}.to("cuda")',
            )
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        if tensor.device != first.device:
            raise DeviceError(
                f"{name} is on {tensor.device} and {first_name} on {first.device}",
                str(first.device),
                str(tensor.device),
                name,
                hint=f"move {name} to {first.device}",
            )
    for name, tensor in tensors.items():
        if tensor.is_neg():
            raise KernelTypeError(
                f"{name} is a view whose elements torch negates when it reads them, which kernels do not",
                hint=f"pass {name}.resolve_neg()",
            )


def check_dtypes(tensors: Mapping[str, torch.Tensor], dtypes: Collection[str | torch.dtype]) -> None:
    """Check that every tensor has one of the `dtypes`, which are torch's or their long names."""
    names = [str(each).removeprefix("torch.") for each in dtypes]
    for name, tensor in tensors.items():
        if str(tensor.dtype).removeprefix("torch.") not in names:
            raise UnsupportedDtypeError(
                f"{name} is {tensor.dtype}; it must be {' or '.join(names)}", tensor.dtype, names, name,
                hint=f"convert it, for example {name}.to(torch.{names[0]})",
            )  # fmt: skip


def check_contiguous(tensors: Mapping[str, torch.Tensor]) -> None:
    """Check that every tensor is stored row-major without gaps; `expected` and `actual` of the error are strides."""
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise TensorSpec.strides_error(tensor, name, "is not contiguous", f"pass {name}.contiguous()")


def check_shape(name: str, actual: Iterable[int], expected: tuple[int, ...], why: str) -> None:
    """Check that the shape `actual` is `expected`; the message of the error ends with `why`."""
    if tuple(actual) != expected:
        raise ShapeMismatchError(
            f"{name} has shape {tuple(actual)} instead of {expected}: {why}", expected, tuple(actual), name
        )


def check_rank(name: str, actual: Iterable[int], axes: str) -> None:
    """Check that `actual` has as many axes as `axes` names, such as `[M, K]`."""
    shape = tuple(actual)
    if len(shape) != axes.count(",") + 1:
        raise ShapeMismatchError(f"{name} has shape {shape}; it must be {axes}", axes, shape, name)


def check_activation(activation: str, choices: Collection[str]) -> None:
    """Check that the activation is known."""
    if activation not in choices:
        raise SettingsError(f"activation is {activation!r}; it must be {' or '.join(map(repr, choices))}")


def check_apart(out: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> None:
    """Check that every element of a result has memory of its own, which no input reaches into.

    What counts is the memory from the first to the last element of `out`.
    """
    if is_fake(out) or out.numel() == 0:
        return
    if any(step == 0 and extent > 1 for extent, step in zip(out.shape, out.stride(), strict=True)):
        fault = "has elements that share memory"
        raise TensorSpec.strides_error(out, "out", fault, "pass a tensor that is not expanded")
    for name, tensor in inputs.items():
        if tensor.device == out.device and beside(_overlap, out, tensor):
            raise KernelTypeError(
                f"out reaches into the memory of {name}, which would be read after it was written",
                hint="pass another tensor, or leave out away",
            )


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    (first, last), (begin, end) = _reach(one), _reach(other)
    return bool(begin < last and first < end)


def _reach(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of the first byte of a tensor and of the one after its last; equal for an empty tensor."""
    if tensor.numel() == 0:
        return 0, 0
    elements = 1 + sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + elements * tensor.element_size()


def check_constant(tensors: Mapping[str, torch.Tensor], kernel: str) -> None:
    """Check that no tensor waits, while torch is recording, for a gradient that a kernel does not compute."""
    recording = require("torch", "running a kernel").is_grad_enabled()
    for name, tensor in tensors.items():
        if recording and tensor.requires_grad:
            raise KernelTypeError(
                f"{name} requires a gradient, which {kernel} does not compute", hint=f"pass {name}.detach()"
            )


def precision_of(tensor: torch.Tensor | TensorSpec) -> str:
    """The multiplication of float32, `ieee` or `tf32`; other dtypes have one way, which is called `tf32` too.

    For what describes a tensor it is that of torch's default.
    """
    if isinstance(tensor, TensorSpec):
        return "ieee" if tensor.dtype == "float32" else "tf32"
    torch = require("torch", "running a kernel")
    exact = tensor.dtype == torch.float32 and beside(torch.get_float32_matmul_precision) == "highest"
    return "ieee" if exact else "tf32"


def multiprocessors(device: Any) -> int:
    """The multiprocessors of a torch device, from which launches that walk over their work take their programs.

    A CPU, where kernels are interpreted, counts as one. Where a launch is only compiled and the device is not known, it
    counts as an H100: the number is no part of the code.
    """
    if device.type == "cpu":
        return 1
    found = require("torch", "launching a kernel").cuda.get_device_properties(device)
    return int(getattr(found, "multi_processor_count", _UNITS_UNKNOWN))
