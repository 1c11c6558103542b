"""What Triton prints of a tune where it was told to, in its words."""

from __future__ import annotations

import sys
from typing import Any

from triton_ops.base import escaped, require
from triton_ops.dispatch.triton_autotuner import to_triton
from triton_ops.tuner import Listener, RunPlan, RunProgress
from triton_ops.values import Trial, TuningResult


class Printed:
    """Writes a line for each config and one for the winner to stdout, in Triton's words, with the values of the key."""

    def __init__(self, kernel: str, key: object) -> None:
        self._kernel, self._key = kernel, key

    def started(self, plan: RunPlan) -> None:
        """Triton says nothing before the first config."""

    def tried(self, trial: Trial, progress: RunProgress) -> None:  # noqa: ARG002 - the role's signature
        """The config that was tried, and why it failed if it did."""
        sys.stdout.write(f"Autotuning kernel {self._kernel} with config {to_triton(trial.config)}\n")
        if not trial.ok:
            sys.stdout.write(f"Autotuning failed with {escaped(str(trial.error))}\n")

    def ended(self, result: TuningResult | None) -> None:
        """The winner."""
        if result is not None:
            sys.stdout.write(
                f"Triton autotuning for function {self._kernel},\nwith key as {self._key},\n"
                f"finished after {result.elapsed_s:.2f}s,\nbest config selected: {to_triton(result.best_config)};\n"
            )
            sys.stdout.flush()


def printed_listener(kernel: Any, key: tuple[Any, ...]) -> Listener | None:
    """The listener that prints a kernel's tune, if Triton was told to print; None otherwise."""
    return Printed(kernel.__name__, key) if require("triton.knobs", "triton_ops.autotune").autotuning.print else None
