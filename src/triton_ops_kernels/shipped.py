"""Kernels of public functions: each call has its config, and launches with it.

The functions are decorated with `compilable`, and check their arguments themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from triton_ops.backend import Arguments, Operation, launches_are_taken
from triton_ops.base import require
from triton_ops.dispatch import config_for
from triton_ops.exceptions import UnsupportedDtypeError
from triton_ops.space import Config
from triton_ops.values import Problem, TensorSpec, is_fake
from triton_ops_kernels.composed import at_launch

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ShippedKernel:
    """The kernel of a public function: its operation, and the configs with which a call runs it.

    `check` is as for `config_for`. `fits` is given a config, the values of a launch, and whether the config is the
    caller's own; it returns the config that runs for these values, or raises ConfigValueError.
    """

    operation: Operation
    check: Callable[[Mapping[str, Any], str], Config]
    fits: Callable[[Config, Mapping[str, Any], bool], Config] | None = None

    def run(
        self, values: Mapping[str, object], device: torch.device, config: Mapping[str, object] | None = None,
        tune: bool = False, **changed: object,
    ) -> None:  # fmt: skip
        """Launch once with `values` by name, but for what is `changed` once they have decided the config.

        It runs asynchronously, on the current stream of the torch device `device`. `config` None asks for the winner.
        Raises as `config_for`.
        """
        chosen, launched = config_for(self.operation, values, self.check, config, tune), {**values, **changed}
        if self.fits is not None:
            chosen = self.fits(chosen, launched, config is not None)
        self.launch(chosen, launched, device)

    def problem_of(self, values: Mapping[str, object], **changed: object) -> Problem:
        """The problem of a launch, but for values that do not count, which are `changed`."""
        given: dict[str, Any] = {**values, **changed}
        specs = {name: TensorSpec.of(value) if Arguments.is_tensor(value) else value for name, value in given.items()}
        return Problem(self.operation.name, tuple(specs.items()))

    def launch(self, config: Config, values: Mapping[str, object], device: torch.device) -> None:
        """Launch once with a config, which Triton compiles if it has not."""
        kernel: Any = self.operation.kernel
        if device.type == "cpu" and kernel.interpreted:
            self._check_interpreted(values)
        with self.on(device):
            at_launch(kernel, config).launch(Arguments(keyword=values))

    @staticmethod
    def launches(out: torch.Tensor) -> bool:
        """Tell whether a launch has something to write: not for an empty tensor.

        Nor for one without memory in a trace, unless the launches of the trace are taken.
        """
        return (not is_fake(out) or bool(launches_are_taken())) and bool(out.numel() > 0)

    @staticmethod
    def on(device: torch.device) -> AbstractContextManager[object]:
        """A context in which launches go to a torch device; on a CPU, where kernels are interpreted, one of nothing."""
        if device.type == "cpu":
            return nullcontext()
        return require("torch", "launching a kernel").cuda.device(device)  # type: ignore[no-any-return]

    def _check_interpreted(self, values: Mapping[str, Any]) -> None:
        """Refuse products of bfloat16, of which Triton's interpreter multiplies the bits as whole numbers (3.6, 3.7).

        Raises UnsupportedDtypeError.
        """
        work, outputs = self.operation.work, self.operation.kernel.outputs
        if work is None or not work(self.problem_of(values)).flops:
            return
        # triton-lang/triton#11584; maintainers count operations on bfloat16 as not supported (triton-lang/triton#4972).
        for name, value in values.items():
            if Arguments.is_tensor(value) and str(value.dtype) == "torch.bfloat16" and name not in outputs:
                raise UnsupportedDtypeError(
                    f"{name} is {value.dtype}, and {self.operation.name} is interpreted: Triton's interpreter "
                    "multiplies the bits of bfloat16 as whole numbers",
                    value.dtype, ["float16", "float32"], name,
                    hint=f"interpret it in another dtype, for example {name}.to(torch.float32), or run it on a GPU",
                )  # fmt: skip
