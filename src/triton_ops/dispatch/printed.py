"""What `TRITON_PRINT_AUTOTUNING` asks for: the lines that Triton's own autotuner prints, while this one tunes."""

from __future__ import annotations

import sys
from typing import Any

from triton_ops._optional import require
from triton_ops.dispatch.configs import to_triton
from triton_ops.progress.events import Listener, RunPlan, RunProgress
from triton_ops.trial import Trial, TuningResult


class Printed:
    """Writes a line for each config and one for the winner to stdout, in Triton's words.

    Args:
        kernel: The kernel's name.
        key: The values of the key, as Triton prints them.
    """

    def __init__(self, kernel: str, key: Any) -> None:
        self._kernel, self._key = kernel, key

    def started(self, plan: RunPlan) -> None:
        """Triton says nothing before the first config."""

    def tried(self, trial: Trial, progress: RunProgress) -> None:  # noqa: ARG002 - the role's signature
        """The config that was tried, and why it failed if it did."""
        sys.stdout.write(f"Autotuning kernel {self._kernel} with config {to_triton(trial.config)}\n")
        if not trial.ok:
            sys.stdout.write(f"Autotuning failed with {trial.error}\n")

    def ended(self, result: TuningResult | None) -> None:
        """The winner."""
        if result is not None:
            sys.stdout.write(
                f"Triton autotuning for function {self._kernel},\nwith key as {self._key},\n"
                f"finished after {result.elapsed_s:.2f}s,\nbest config selected: {to_triton(result.best_config)};\n"
            )
            sys.stdout.flush()


def printed_listener(kernel: str, key: Any) -> Listener | None:
    """The listener that prints, if Triton was told to print; None otherwise."""
    asked = require("triton.knobs", "autotuning").autotuning.print
    return Printed(kernel, key) if asked else None
