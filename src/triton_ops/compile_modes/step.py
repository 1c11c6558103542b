"""One call of a model, as it is timed or checked: forward, or forward with backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from triton_ops.backend import Arguments, Protection
from triton_ops.base import require
from triton_ops.compile_modes.workload import ModelWorkload
from triton_ops.evaluation import kept
from triton_ops.exceptions import KernelTypeError, SettingsError

Loss = Callable[[Any], Any]


class ModelRunner:
    """Calls a model, compiled or not.

    Args:
        workload: The model as it is, and its calls.
        run: What is called: the model, or the compiled one.
        training: Whether a call is forward and backward.
        loss: From the model's output to the number whose gradients are computed; None takes the output's own loss, the
            output if it is one number, else the mean square of all its floating-point tensors.

    Raises:
        KernelTypeError: No gradient is computed in training.
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
        loss = self._loss(self._function(*call.positional, **call.keyword))
        loss.backward()
        return loss

    def results(self, call: Arguments) -> list[Any]:
        """Everything that a call computes and changes; the model's buffers and the inputs are as before afterwards."""
        buffers = self._workload.buffers
        before, arguments = Protection(buffers.values()), call.map(copied)
        output = self(arguments) if not self.training else self._trained(arguments)
        results = [kept(each) for each in gathered(output, self._gradients(), buffers, arguments)]
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
            tensors = torch.autograd.grad(self._loss(output), list(trained.values()), allow_unused=True)
            gradients = dict(zip(trained, tensors, strict=True))
        return gathered(output, gradients, buffers, arguments)

    def _trained(self, call: Arguments) -> Any:
        for parameter in self._parameters:
            parameter.grad = None
        output = self._function(*call.positional, **call.keyword)
        self._loss(output).backward()
        return output

    def _gradients(self) -> dict[str, Any]:
        if not self.training:
            return {}
        return {name: each.grad for name, each in self._workload.parameters.items() if each.requires_grad}


def checked_loss(loss: Any) -> None:
    """Raise unless this is a loss, or None.

    Raises:
        SettingsError: It cannot be called.
    """
    if loss is not None and not callable(loss):
        raise SettingsError(f"loss is {loss!r}; it must be a function of the model's output")


def gathered(output: Any, gradients: Mapping[str, Any], buffers: Mapping[str, Any], call: Arguments) -> list[Any]:
    """Results in one order: the output, the gradients by name, the buffers by name, and the inputs after the call."""
    return [output, dict(gradients), dict(buffers), list(call.tensors())]


def copied(tensor: Any) -> Any:
    """A copy of a tensor that a call may write; a leaf where the tensor is one."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def mean_square(output: Any) -> Any:
    """A loss for any output.

    Raises:
        KernelTypeError: The output holds no floating-point tensor.
    """
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if own is not None:
        return own
    tensors = [each for each in Arguments((output,)).tensors() if each.dtype.is_floating_point]
    if not tensors:
        raise KernelTypeError("the output holds no floating-point tensor to compute gradients of", hint="give a loss")
    if len(tensors) == 1 and tensors[0].dim() == 0:
        return tensors[0]
    return sum(each.float().square().mean() for each in tensors)
