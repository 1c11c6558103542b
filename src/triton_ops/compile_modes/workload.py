"""Workload of a comparison: a model with the inputs of its calls, checked before any work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import Arguments, is_tensor, one_line
from triton_ops.exceptions import DeviceError, KernelTypeError, TargetError, TritonKernelError

_NO_SHAPE = "no tensors"


@dataclass(frozen=True)
class ModelWorkload:
    """A model and the calls that are measured.

    Attributes:
        model: A `torch.nn.Module`, or another callable.
        calls: The arguments of each call; one sample of a measurement is one of each.
    """

    model: Any
    calls: tuple[Arguments, ...]

    @property
    def parameters(self) -> dict[str, Any]:
        """The model's parameters by name; none of a plain function."""
        return dict(self.model.named_parameters()) if hasattr(self.model, "named_parameters") else {}

    @property
    def buffers(self) -> dict[str, Any]:
        """The model's buffers by name; none of a plain function."""
        return dict(self.model.named_buffers()) if hasattr(self.model, "named_buffers") else {}

    @property
    def device_name(self) -> str:
        """Torch's name of the device; `cpu` where there is no tensor."""
        return next((str(tensor.device) for tensor in self._tensors() if tensor.dim()), "cpu")

    @property
    def dtype(self) -> str:
        """The dtype of the first floating-point tensor, by its long name; empty where there is none."""
        dtype = next((tensor.dtype for tensor in self._tensors() if tensor.dtype.is_floating_point), "")
        return str(dtype).removeprefix("torch.")

    @property
    def label(self) -> str:
        """The model and the shapes of its inputs, such as `SimpleMLP 256x1024 float32`."""
        name = getattr(self.model, "__name__", type(self.model).__name__)
        return f"{name} {' | '.join(map(shapes_text, self.calls))}"

    @property
    def facts(self) -> list[Any]:
        """Plain values that tell this workload from others: names, shapes and dtypes; no weights."""
        state = {**self.parameters, **self.buffers}
        specs = [[name, list(tensor.shape), str(tensor.dtype)] for name, tensor in sorted(state.items())]
        return [self.label, repr(self.model) if state else "", specs, self.device_name]

    def _tensors(self) -> Iterator[Any]:
        yield from self.parameters.values()
        yield from self.buffers.values()
        for call in self.calls:
            yield from call.tensors()


def workload_of(model: Any, inputs: Any) -> ModelWorkload:
    """The workload that a caller means.

    Args:
        model: The model; compiled as it is, so that it is in the mode, such as `eval()`, in which it is to run.
        inputs: A tensor, a tuple of positional arguments, or a mapping of named ones; a list of these is several calls.

    Raises:
        KernelTypeError: The model is not callable, or there are no inputs.
        DeviceError: A tensor is on another device than the rest, or on none.
    """
    if not callable(model) or isinstance(model, type):
        raise KernelTypeError(
            f"the model is {_kind(model)}; a torch.nn.Module or a function is needed",
            hint="return (module, inputs) from the factory",
        )
    workload = ModelWorkload(model, tuple(_call(each) for each in (inputs if isinstance(inputs, list) else [inputs])))
    if not workload.calls:
        raise KernelTypeError("inputs is an empty list; at least one call is needed", hint="inputs=(x,)")
    _check_devices(workload)
    return workload


def workload_by(factory: Callable[[], Any]) -> ModelWorkload:
    """The workload that a factory returns as `(model, inputs)`.

    Raises:
        TargetError: The factory raised, or returned something else.
        KernelTypeError, DeviceError: As `workload_of`.
    """
    try:
        pair = factory()
    except TritonKernelError:
        raise
    except (Exception, SystemExit) as error:
        raise TargetError(f"the factory raised {one_line(error)}", hint="call it in Python to try") from error
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TargetError(
            f"the factory returned {_kind(pair)}; it must return a model and its inputs",
            hint="return (module, (x,)): the tuple of positional arguments of a call",
        )
    return workload_of(*pair)


def shapes_text(call: Arguments) -> str:
    """The shapes and dtypes of the tensors of a call, such as `256x1024 float32`."""
    parts: list[str] = []
    for tensor in call.tensors():
        shape = "x".join(map(str, tensor.shape)) or "scalar"
        parts.append(f"{shape} {str(tensor.dtype).removeprefix('torch.')}")
    return ", ".join(parts) or _NO_SHAPE


def _call(inputs: Any) -> Arguments:
    if isinstance(inputs, Arguments):
        return inputs
    if isinstance(inputs, Mapping):
        return Arguments.given((), inputs)
    if is_tensor(inputs):
        return Arguments((inputs,))
    if isinstance(inputs, Sequence) and not isinstance(inputs, (str, bytes)):
        return Arguments(tuple(inputs))
    raise KernelTypeError(
        f"inputs is {_kind(inputs)}; a tensor, a tuple of positional arguments or a mapping of named ones is needed",
        hint="inputs=(x,)",
    )


def _check_devices(workload: ModelWorkload) -> None:
    """Raise unless all tensors are on one device; scalars of the CPU go with any."""
    home = workload.device_name
    tensors = [(name, tensor) for name, tensor in {**workload.parameters, **workload.buffers}.items()]
    for number, call in enumerate(workload.calls):
        tensors += [(f"input {place} of call {number}", tensor) for place, tensor in enumerate(call.tensors())]
    for name, tensor in tensors:
        device = str(tensor.device)
        if (device != home and not (device == "cpu" and tensor.dim() == 0)) or device == "meta":
            where = "which has no memory" if device == "meta" else f"and the model on {home}"
            raise DeviceError(
                f"{name} is on {device}, {where}",
                home, device, name,
                hint="move the model and its inputs to one device that has memory: model.to(device), x.to(device)",
            )  # fmt: skip


def _kind(value: Any) -> str:
    if value is None or isinstance(value, (int, float)):
        return repr(value)
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
