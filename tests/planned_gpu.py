"""A GPU that is not here: configs are really compiled for it, and their times are the sizes of their blocks."""

from __future__ import annotations

from dataclasses import replace

from triton_ops.device import DeviceSpec
from triton_ops.evaluation import Outcome, StationFacts, Stations
from triton_ops.request import request
from triton_ops.values import Measurement, Status, Trial


class Planned:
    """Tries configs at once."""

    facts, lost = StationFacts(), None

    def attempt(self, config, best):
        """A trial with the planned time."""
        return Trial(config, Status.OK, Measurement((float(config["BLOCK"]),), "planned"))

    def finals(self, final):
        """The fastest trial."""
        return replace(Outcome.of_screenings(final.trials), confidence="ok")  # as if they had raced

    def close(self):
        """Nothing is open."""


def planned_gpu():
    """Make this process believe in the GPU, until it ends."""
    request.probe = lambda _: DeviceSpec.named("NVIDIA H200")
    request.gpu_missing = lambda: ""
    Stations.begin = lambda *_, **__: Planned
