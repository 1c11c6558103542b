"""Workload of a comparison: a model with the inputs of its calls.

The golden results are those of the model as it is, with its weights and inputs in higher precision. The yardstick is
the error of the model as it is in its own precision.

Some gradients are zero, as that of a bias whose sum a normalisation takes off again: what any way to compute them gives
is rounding alone, and has no digit in common with what another gives. Of these the size is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import Arguments, CandidateError, Protection
from triton_ops.base import require
from triton_ops.evaluation import ReferenceResults, kept
from triton_ops.exceptions import DeviceError, KernelTypeError, SettingsError, TargetError
from triton_ops.values import Tolerance

_NO_SHAPE = "no tensors"


@dataclass(frozen=True)
class ModelWorkload:
    """A model and the calls that are measured; one sample of a measurement is one of each call."""

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
        # A scalar of the CPU goes with tensors of any device.
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
    """The workload that a caller means; a list of inputs is several calls."""
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
    """The workload that a factory returns as `(model, inputs)`; a `TargetError` where it does not."""
    with CandidateError.as_error(TargetError, "the factory raised", "call it in Python to try"):
        pair = factory()
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TargetError(
            f"the factory returned {_kind(pair)}; it must return a model and its inputs",
            hint="return (module, (x,)): the tuple of positional arguments of a call",
        )
    return workload_of(*pair)


def check_model(model: Any, inputs: Any, loss: Any) -> None:
    """Raise where the loss is no function, or there are no inputs, and the model is no factory."""
    if loss is not None and not callable(loss):
        raise SettingsError(f"loss is {loss!r}; it must be a function of the model's output")
    if inputs is None and (not callable(model) or hasattr(model, "named_parameters")):
        raise SettingsError(
            f"inputs is None, and the model is a {type(model).__name__}, not a factory",
            hint="give (model, (x,)), or a factory, which returns (model, (x,))",
        )
    if inputs is None and (needed := Arguments.required(model)):
        raise TargetError(
            f"{getattr(model, '__name__', model)} needs {', '.join(needed)}, and a factory is called without arguments",
            hint="name a function that takes nothing and returns the model and its inputs: (model, (x,))",
        )


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
    if Arguments.is_tensor(inputs):
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
    tensors = [*{**workload.parameters, **workload.buffers}.items()]
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


Loss = Callable[[Any], Any]


class ModelRunner:
    """Calls a model, compiled or not; a `KernelTypeError` if no gradient is computed in training.

    `loss` leads from the model's output to the number whose gradients are computed; None takes the output's own loss,
    the output if it is one number, else the mean square of all its floating-point tensors.
    """

    def __init__(
        self, workload: ModelWorkload, function: Any, *, training: bool = False, loss: Loss | None = None
    ) -> None:
        self._workload, self._function, self.training = workload, function, training
        self._loss = loss or mean_square
        self._parameters = list(workload.parameters.values())
        if training and not any(parameter.requires_grad for parameter in self._parameters):
            raise KernelTypeError(
                "no parameter of the model has a gradient, and a training step computes gradients",
                hint="leave training out, or have parameters with requires_grad",
            )

    def __call__(self, call: Arguments) -> Any:
        """One timed call; the output of a forward pass, or the loss."""
        if not self.training:
            return self._function(*call.positional, **call.keyword)
        for parameter in self._parameters:
            parameter.grad = None
        loss = self._loss(self._function(*call.positional, **call.keyword))  # holds no output while it goes backward
        loss.backward()
        return loss

    def results(self, call: Arguments) -> list[Any]:
        """Output, gradients, buffers and inputs after a call; buffers and inputs are as before afterwards."""
        buffers, gradients = self._workload.buffers, {}
        before, arguments = Protection(buffers.values()), call.map(copied)
        output = self._trained(arguments) if self.training else self(arguments)
        if self.training:
            gradients = {name: each.grad for name, each in self._workload.parameters.items() if each.requires_grad}
        gathered = [output, gradients, buffers, list(arguments.tensors())]
        results = [kept(each) for each in gathered]
        before.restore()
        return results

    def reference(self, state: Mapping[str, Any], *positional: Any, **keyword: Any) -> list[Any]:
        """The same results of the model as it is, with parameters and buffers that are given by name.

        Nothing that is given is changed, so that the call can be made again in another precision.
        """
        torch = require("torch", "checking results")
        buffers = {name: copied(state[name]) for name in self._workload.buffers}
        leaves = {name: state[name] for name in self._workload.parameters}
        arguments = Arguments(positional, keyword).map(copied)
        if state:
            weights = {**leaves, **buffers}
            output = torch.func.functional_call(
                self._workload.model, weights, arguments.positional, dict(arguments.keyword)
            )
        else:
            output = self._workload.model(*arguments.positional, **arguments.keyword)
        gradients: dict[str, Any] = {}
        if self.training:
            trained = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
            # `backward` would add to the model's own gradients.
            tensors = torch.autograd.grad(self._loss(output), list(trained.values()), allow_unused=True)
            gradients = dict(zip(trained, tensors, strict=True))
        return [output, gradients, buffers, list(arguments.tensors())]

    def _trained(self, call: Arguments) -> Any:
        for parameter in self._parameters:
            parameter.grad = None
        output = self._function(*call.positional, **call.keyword)
        self._loss(output).backward()
        return output


def copied(tensor: Any) -> Any:
    """A copy of a tensor that a call may write; a leaf where the tensor is one."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def mean_square(output: Any) -> Any:
    """A loss for any output; a `KernelTypeError` if it holds no floating-point tensor."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if own is not None:
        return own
    tensors = [each for each in Arguments((output,)).tensors() if each.dtype.is_floating_point]
    if not tensors:
        raise KernelTypeError("the output holds no floating-point tensor to compute gradients of", hint="give a loss")
    if len(tensors) == 1 and tensors[0].dim() == 0:
        return tensors[0]
    # Squares of float16 overflow from 256 on.
    return sum(each.float().square().mean() for each in tensors)


_VANISHED = 1e-4  # of the model's own gradient: what a gradient that is zero may be in float64
_LOUDER = 16.0  # times the model's own rounding


class Verification:
    """The right results of each call of a workload.

    `notes` tell why there is no golden result, or no check at all.

    Cost: for each call two calls of the model, one of them in higher precision with copies of the weights.
    """

    def __init__(self, workload: ModelWorkload, step: ModelRunner, tolerance: Tolerance) -> None:
        self.notes: list[str] = []
        self._noise: list[dict[str, float]] = []
        self._right = [self._right_results(workload, step, call, tolerance) for call in workload.calls]
        self.notes = list(dict.fromkeys(self.notes))

    def fault(self, number: int, results: Sequence[Any]) -> str:
        """The fault of the results of call `number`; empty if they are right, or cannot be checked."""
        right, noise = self._right[number], self._noise[number]
        return "" if right is None else _louder(results, noise) or right.fault(_without(results, noise))

    def error(self, number: int, results: Sequence[Any]) -> float | None:
        """The largest difference from the golden results, relative to their largest value; None if not known."""
        right = self._right[number]
        return None if right is None else right.error(_without(results, self._noise[number]))

    def _right_results(
        self, workload: ModelWorkload, step: ModelRunner, call: Arguments, tolerance: Tolerance
    ) -> ReferenceResults | None:
        arguments = Arguments(({**workload.parameters, **workload.buffers}, *call.positional), call.keyword)
        noise = _noise(step, arguments)
        self._noise.append(noise)
        if noise:
            names = f"gradients that are zero but for rounding, of {', '.join(noise)}"
            self.notes.append(f"{names}: only their size is checked")

        def reference(*args: Any, **kwargs: Any) -> list[Any]:
            return _without(step.reference(*args, **kwargs), noise)

        try:
            # The reference copies what it changes, so that nothing has to be protected.
            right = ReferenceResults(reference, arguments, tolerance=tolerance, protected=False)
        except TargetError as error:
            self.notes.append(f"results are not checked: {error.message}")
            return None
        if right.why_own:
            self.notes.append(f"there is no golden result in higher precision: {right.why_own}")
        return right


def _noise(step: ModelRunner, arguments: Arguments) -> dict[str, float]:
    """By name the size of the model's own gradients that are zero but for rounding: in float64 they nearly vanish."""
    if not step.training:
        return {}
    low = step.reference(*arguments.positional, **arguments.keyword)[1]
    wide = arguments.map(_widened)
    try:
        golden = step.reference(*wide.positional, **wide.keyword)[1]
    except Exception:  # noqa: BLE001 - a model may refuse float64 by any error, and is then judged without
        return {}
    sizes = {name: (_size(each), _size(golden.get(name))) for name, each in low.items()}
    return {name: own for name, (own, true) in sizes.items() if own and true is not None and true < _VANISHED * own}


def _widened(tensor: Any) -> Any:
    wide = tensor.detach().double() if tensor.is_floating_point() else tensor
    return wide.requires_grad_(tensor.requires_grad)


def _size(tensor: Any) -> float | None:
    """The root mean square of a gradient; None of none."""
    if not Arguments.is_tensor(tensor) or not tensor.numel():
        return None
    return float(tensor.detach().double().square().mean().sqrt())


def _louder(results: Sequence[Any], noise: Mapping[str, float]) -> str:
    """The first gradient that should be rounding alone, and is more than that; empty if there is none."""
    for name, own in noise.items():
        size = _size(results[1].get(name))
        if size is None or not size <= _LOUDER * own:
            return f"the gradient of {name} is zero but for rounding, {own:.2g}; here it is {size}"
    return ""


def _without(results: Sequence[Any], names: Collection[str]) -> list[Any]:
    output, gradients, *rest = results
    return [output, {name: each for name, each in gradients.items() if name not in names}, *rest]
