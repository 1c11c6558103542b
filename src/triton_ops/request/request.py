"""Problems as callers of `tune` give them, and the requests that they mean, checked before any work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from triton_ops import backend, values
from triton_ops.backend import Arguments, FunctionKernel, Kernel, Operation
from triton_ops.base import cached_property, canonical_json, fingerprint
from triton_ops.device import DeviceSpec, Target, TorchDevice, gpu_missing, probe
from triton_ops.exceptions import DeviceError, KernelTypeError, SettingsError, ShapeMismatchError, SpaceError
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Key, Problem, TensorSpec, Tolerance, Work, as_callable

_MOST_LETTERS = 2**16  # of an argument's text in a key: a record has several copies of it, and is 4 MiB at most


@dataclass(frozen=True, eq=False)
class GeneratedArguments:
    """Makes an operation's arguments from their specs; the same seed gives the same values.

    The problem is that of a `shape` and `dtype`, None for a default, of which another process can make it again.
    """

    operation: Operation
    problem: Problem
    device: str
    seed: int
    shape: tuple[int, ...] | None
    dtype: str | None

    def __call__(self) -> Arguments:
        """New arguments, with the same values on each call."""
        return self.operation.materialise(self.problem, self.device, self.seed)

    @property
    def full_shape(self) -> tuple[int, ...]:
        """The extents, with the operation's defaults for those that the shape leaves out."""
        return self.operation.full_shape(self.shape)

    def stays(self) -> bool:
        """True if the operation makes the same problem now, too."""
        return self.operation.problem(self.shape, self.dtype) == self.problem


@dataclass(frozen=True, eq=False)
class CopiedArguments:
    """Makes copies of the caller's own arguments; unpickled, where they are a worker's alone, an `OwnedArguments`."""

    originals: Arguments

    def __call__(self) -> Arguments:
        """New copies of the arguments."""
        return backend.Protection.private_copy(self.originals)

    def __reduce__(self) -> tuple[type[OwnedArguments], tuple[Arguments]]:
        return OwnedArguments, (self.originals,)


class OwnedArguments:
    """Hands over arguments without copying them, once, since a copy would take the device's memory a second time."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments: Arguments | None = arguments

    def __call__(self) -> Arguments:
        """The arguments themselves; a `RuntimeError` the second time."""
        arguments, self._arguments = self._arguments, None
        if arguments is None:
            raise RuntimeError("the arguments of this process are in use already")
        return arguments


@dataclass(frozen=True, kw_only=True)
class KernelProblem:
    """A problem of a kernel on a device.

    `arguments` makes the private ones, and is called only when a config is about to run. `check` None takes the
    tolerance. With `cold`, L2 holds nothing of the kernel's data when a timed launch starts. `contents` None is that of
    arguments alone. With `same_bits_as`, `default` or a config, results must have the bits of the default config's;
    `lockfile` asks for the class that is `pinned`, which `shown_by` had then.
    """

    kernel: Kernel
    problem: Problem
    device: DeviceSpec
    device_name: str
    arguments: GeneratedArguments | CopiedArguments | OwnedArguments
    reference: Callable[..., Any] | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    check: Callable[[Any, Any], Any] | None = None
    cold: bool = True
    contents: values.Contents | None = None
    same_bits_as: str | Mapping[str, Any] | None = None
    pinned: str = ""
    shown_by: Config | None = None

    @property
    def reference_fingerprint(self) -> str | None:
        """The fingerprint of the reference's source; an empty text, which no record has, if it cannot be told."""
        if self.reference is None:
            return None
        source = backend.Source.of(self.reference)
        return source.fingerprint if source.unknown is None else ""

    @property
    def contents_fingerprint(self) -> str | None:
        """The fingerprint of contents, with the values of their tensors; None without any, an empty text if unknown."""
        if self.contents is None:
            return None
        plain = Arguments.mapped(vars(self.contents), lambda tensor: tensor.detach().cpu().tolist())
        source = backend.Source.of(plain)
        return source.fingerprint if source.unknown is None else ""

    @property
    def generated(self) -> GeneratedArguments | None:
        """The maker of an operation's arguments; None for the caller's own."""
        return self.arguments if isinstance(self.arguments, GeneratedArguments) else None

    @property
    def originals(self) -> Arguments | None:
        """The caller's own arguments; None if they are generated."""
        return self.arguments.originals if isinstance(self.arguments, CopiedArguments) else None

    @property
    def arguments_or_specs(self) -> Arguments:
        """The caller's own arguments, or the specs of those that are generated."""
        originals = self.originals
        return Arguments(keyword=dict(self.problem.arguments)) if originals is None else originals


@dataclass(frozen=True, kw_only=True)
class TuneRequest(KernelProblem):
    """Kernel, problem and device of a call, with the `chosen` config space; `operation` is None for a callable."""

    operation: Operation | None
    chosen: Any = None  # as a caller gives a space; None takes the operation's

    @cached_property
    def space(self) -> ConfigSpace:
        """The config space: the chosen one, or else the operation's; a `SpaceError` if there is neither.

        A config whose bits are asked for is its default.
        """
        space = self._own_space
        if self.same_bits_as is None or isinstance(self.same_bits_as, str):
            return space
        default = space.checked(Config(self.same_bits_as), self.kernel.name)
        return replace(space, default=default)

    @property
    def _own_space(self) -> ConfigSpace:
        if self.chosen is not None:
            return ConfigSpace.from_user(self.chosen)
        if self.operation is None:
            message = f"there is no config space for {self.kernel.name}"
            raise SpaceError(message, hint='give one: space={"BLOCK": [64, 128]}')
        return self.operation.space_for(self.problem)

    @cached_property
    def work(self) -> Work | None:
        """The least operations and bytes of the problem; None if not known."""
        return self.operation.work(self.problem) if self.operation is not None and self.operation.work else None

    @property
    def of_class(self) -> TuneRequest:
        """The request of the problem that stands for the class of this one; the same if that is its own."""
        typical = tuple((name, values.typical_argument(value)) for name, value in self.problem.arguments)
        if typical == self.problem.arguments:
            return self
        return replace(self, problem=Problem.described(self.problem.kernel, typical))

    @property
    def ranked(self) -> tuple[Work, float] | None:
        """The declared work and the least gain of a pick; None where no model ranks the configs of the operation."""
        if self.operation is None or self.operation.least_gain is None or self.work is None:
            return None
        return self.work, self.operation.least_gain

    @property
    def key(self) -> Key:
        """The key of the record that answers this request, with what replaces the rule for verdicts."""
        check = None if self.check is None else _object(self.check)
        bits = None if self.same_bits_as is None else self.pinned or str(self.space.default_config)
        rules = {"tolerance": self.tolerance.content, "check": check, "same_bits_as": bits}
        held_to = {name: rule for name, rule in rules.items() if rule}
        return Key.of(self.problem, self.kernel.identity, self.device, cold=self.cold, held_to=held_to)

    def checked(self) -> TuneRequest:
        """This request, if the tunables of its space fit the kernel's parameters; raises as the kernel's check."""
        self.kernel.check(self.space.tunables, self.arguments_or_specs)
        return self

    def check_same_bits(self) -> TuneRequest:
        """This request; a `SettingsError` if bits are asked for that no compiled code for a GPU of NVIDIA tells."""
        asked = self.same_bits_as
        words, kinds = ("default", "lockfile"), (type(None), Mapping)
        if not (asked in words if isinstance(asked, str) else isinstance(asked, kinds)):
            raise SettingsError(f"same_bits_as is {asked!r}", hint='give "default", "lockfile" or a config')
        if asked is not None and not self.tells_bits:
            message = f"which configs of {self.kernel.name} give the same bits on {self.device.name} is not known"
            hint = "same_bits_as is for Triton kernels on GPUs of NVIDIA; tolerance=0 compares results on the arguments"
            raise SettingsError(message, hint=hint)
        return self

    @property
    def tells_bits(self) -> bool:
        """True if compiled code for a GPU of NVIDIA tells which configs give the same bits."""
        return isinstance(self.kernel, backend.CompilesAhead) and self.device.kind == "cuda"

    def compiler(self) -> backend.Compiler | None:
        """The compiler of the kernel's configs, for processes without the device; None if nothing is compiled."""
        if not isinstance(self.kernel, backend.CompilesAhead):
            return None
        target = None if self.device.kind == "cpu" else Target.of(self.device)
        return self.kernel.compiler(self.arguments_or_specs, target, self.space.members)


def device_for(device: str | None, runs_on: str, who: str) -> str:
    """The torch name of the device for an operation that runs on `cuda`, `cpu` or `any`; a `DeviceError` without."""
    if device is not None and runs_on != "any" and device.partition(":")[0] != runs_on:
        hint = f"use device={runs_on!r} (--device {runs_on})"
        raise DeviceError(f"{who} runs on {runs_on}, not on {device}", runs_on, device, hint=hint)
    if device is not None:
        return _with_index(device)
    if runs_on == "any":
        return "cpu" if gpu_missing() else TorchDevice.current_name()
    if runs_on == "cuda" and (missing := gpu_missing()):
        raise DeviceError(f"{who} runs on a GPU, and there is none: {missing}", "cuda", "cpu", hint=DeviceError.NO_GPU)
    return _with_index(runs_on)


def device_of(arguments: Arguments, device: str | None) -> str:
    """The torch name of the device of the tensors, one and the named one; without any, `device` or `cpu`."""
    places = sorted({str(tensor.device) for tensor in arguments.tensors()})
    if len({place for place in places if place != "cpu"}) > 1:
        text = f"the arguments are on several devices: {', '.join(places)}"
        raise DeviceError(text, places[0], places[-1], hint=f"move them to one: tensor.to({places[-1]!r})")
    place = next((place for place in places if place != "cpu"), "cpu")
    if place == "meta":
        message = "the arguments are on the device meta, which holds no numbers"
        hint = "give tensors that are on the device for which a winner is asked"
        raise DeviceError(message, "cpu or cuda", place, hint=hint)
    if device is not None and places and device not in (place, place.partition(":")[0]):
        raise DeviceError(f"the arguments are on {place}, not on {device}", device, place, hint=f"use device={place!r}")
    return place if places or device is None else _with_index(device)


def _with_index(device_name: str) -> str:
    """The device's name; `cuda` with the number of the current GPU, which is another one in other threads."""
    return TorchDevice.current_name() if device_name == "cuda" else device_name


def _describe(kernel: Kernel, arguments: Arguments) -> tuple[tuple[str, Any], ...]:
    names = [name or f"arg{place}" for place, name in enumerate(arguments.positional_names(kernel))]
    items = [*zip(names, arguments.positional, strict=True), *arguments.keyword.items()]
    return tuple((name, spec_of(value)) for name, value in items)


def spec_of(value: Any) -> TensorSpec | bool | int | float | str | None:
    """An argument as it stands in a problem: the spec of a tensor, a scalar itself, any other object as text."""
    if Arguments.is_tensor(value):
        return TensorSpec.of(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return _bounded(value) if isinstance(value, str) else value
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        if value.shape == () and not hasattr(value, "__setitem__"):  # a number of NumPy's, which nobody can change
            return spec_of(value.item())
        strides = getattr(value, "strides", None)  # in bytes: the memory order of numpy's arrays
        return f"{type(value).__name__} {tuple(value.shape)} {value.dtype}{'' if strides is None else f' {strides}'}"
    if Arguments.is_descriptor(value):
        return _descriptor(value)
    if isinstance(text := Problem.plain(value), str):  # a dtype of torch or Triton
        return text
    if isinstance(value, (list, tuple, dict)):
        inner = Arguments((value,)).map(lambda tensor: str(TensorSpec.of(tensor))).positional[0]
        try:
            return _bounded(canonical_json(inner))
        except (TypeError, ValueError):
            pass  # a container of objects that JSON cannot hold
    return _object(value)


def _bounded(text: str) -> str:
    """A text itself, or its begin, size and digest if it is longer than a record should hold."""
    if len(text) <= _MOST_LETTERS:
        return text
    return f"{text[:100]}… of {len(text)} letters, {fingerprint(text)}"


def _descriptor(value: Any) -> str:
    base = TensorSpec.of(value.base) if Arguments.is_tensor(value.base) else spec_of(value.base)
    layout = f", layout {value.layout}" if hasattr(value, "layout") else ""
    parts = [f"{name} {'x'.join(map(str, getattr(value, name)))}" for name in ("shape", "strides", "block_shape")]
    return f"descriptor of {base}: {', '.join(parts)}, padding {getattr(value, 'padding', None)}{layout}"


def _object(value: Any) -> str:
    """The identity of an argument that is neither tensor nor scalar, as text; if it has none, the reason."""
    source = backend.Source.of(value)
    if source.unknown is not None:
        return f"{Key.UNKNOWN}: {source.unknown}"
    return f"{type(value).__module__}.{type(value).__qualname__} {source.fingerprint}"


@dataclass(frozen=True, kw_only=True)
class TuneProblem:
    """One problem of a run of many; the fields without a word of their own are as the parameters of `tune`.

    Attributes:
        target: An `Operation`, a kernel, or a callable that takes config values as keywords.
        args: Positional arguments of every call.
        kwargs: Keyword arguments of every call.
        space: What may be tried; None takes the operation's.
        shape: Extents of an operation's problem; None takes its defaults.
        dtype: Dtype of an operation's problem; None takes its default.
        device: `cpu`, `cuda` or `cuda:N`. A problem with a device or with tensors of the caller's stays on that device;
            any other is measured on whichever device of its kind is free.
        reference: A function that gives the right result.
        tolerance: How far a right result may be from the expected one.
        check: An own comparison of results.
        cold: Whether L2 holds none of the kernel's data when a launch starts.
        contents: Pairs of a weight and a content, over which configs are compared; None compares on the arguments as
            they are.
        same_bits_as: `default`, `lockfile` or a config, whose bits all results must have.
        weight: How much the problem counts beside the others, such as how often it is launched.
    """

    target: Operation | Kernel | Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    space: Any = None
    shape: Sequence[int] | None = None
    dtype: str | None = None
    device: str | None = None
    reference: Callable[..., Any] | None = None
    tolerance: float | Tolerance | None = None
    check: Callable[[Any, Any], Any] | None = None
    cold: bool = True
    contents: values.Contents | Sequence[tuple[float, Any]] | None = None
    same_bits_as: str | Mapping[str, Any] | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        hint = "leave it out for 1, or say how often it is launched"
        SettingsError.checked("the weight of a problem", self.weight, hint=hint)

    @property
    def parts(self) -> tuple[Operation | Kernel, Any]:
        """The operation or kernel with what the configs of the space bring, hooks and files, and the plain space."""
        target, space = self.target, self.space
        if isinstance(target, Operation):
            kernel, plain = FunctionKernel.kernel_and_space(target.kernel, space)
            return target if kernel is target.kernel else replace(target, kernel=kernel), plain
        kernel = FunctionKernel.as_kernel(target)
        if isinstance(space, ConfigSpace) or (space is None and not getattr(target, "offered", ())):
            return kernel, space
        return FunctionKernel.kernel_and_space(kernel, space)

    def measurable(self, device: str | None = None, seed: int = 0) -> TuneRequest:
        """The request of a tune, as `request`, whose tensors must have memory."""
        for tensor in Arguments.given(self.args, self.kwargs).tensors():
            TensorSpec.check_memory(tensor, "an argument")
        return self.request(device, seed)

    def request(self, device: str | None = None, seed: int = 0, *, spec: DeviceSpec | None = None) -> TuneRequest:
        """The request on a device, the problem's own for None; all is checked but the space, which may be missing.

        A `spec` describes a device that need not be here; None asks the device. Raises as `tune` for arguments.
        """
        target, space = self.parts
        arguments, device = Arguments.given(self.args, self.kwargs), TorchDevice.name_of(device or self.device)
        reference, tolerance, check = as_callable("reference", self.reference), self.tolerance, self.check
        operation = target if isinstance(target, Operation) else None
        if operation is not None and not (arguments.positional or arguments.keyword):
            kernel, problem, name, maker = self._by_shape(operation, device, seed)
        elif self.shape is not None or self.dtype is not None:
            raise ShapeMismatchError(
                "a shape or dtype was given together with arguments, or without an Operation that makes arguments from "
                "it",
                hint="give either arguments, or an Operation with a shape",
            )
        else:
            kernel, problem, name, maker = _by_arguments(target, arguments, device)
        if operation is not None:
            reference = reference or operation.reference
            tolerance, check = operation.tolerance if tolerance is None else tolerance, check or operation.check
        return TuneRequest(
            kernel=kernel, problem=problem, device=spec or probe(name), device_name=name, arguments=maker,
            reference=reference, tolerance=Tolerance.of(tolerance), check=as_callable("check", check),
            operation=operation, cold=self.cold, chosen=space, same_bits_as=self.same_bits_as,
            contents=None if self.contents is None else values.Contents.of(self.contents, problem.specs),
        ).check_same_bits()  # fmt: skip

    def _by_shape(self, operation: Operation, device: str | None, seed: int) -> _Parts:
        shape = None if self.shape is None else tuple(self.shape)
        problem = operation.problem(shape, self.dtype)
        name = device_for(device, operation.device, operation.name)
        return operation.kernel, problem, name, GeneratedArguments(operation, problem, name, seed, shape, self.dtype)


_Parts: TypeAlias = tuple[Kernel, Problem, str, "GeneratedArguments | CopiedArguments"]


def _by_arguments(target: Operation | Kernel, arguments: Arguments, device: str | None) -> _Parts:
    kernel = target.kernel if isinstance(target, Operation) else target
    arguments = arguments.by_name(kernel)  # an output is named by its argument
    if missing := [name for name in kernel.outputs if name not in arguments.keyword]:
        message = f"{kernel.name} writes {', '.join(missing)}, which is not among the given arguments"
        raise KernelTypeError(message, hint="pass it, by its name or in its place")
    name = device_of(arguments, device)
    owner = target.name if isinstance(target, Operation) else kernel.name
    return kernel, Problem.described(owner, _describe(kernel, arguments)), name, CopiedArguments(arguments)
