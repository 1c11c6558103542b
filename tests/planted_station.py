"""A station whose times are the configs' tile sizes, in place of one that launches on a GPU."""

from __future__ import annotations

import time
from dataclasses import replace

from triton_ops.evaluation import Outcome, StationFacts
from triton_ops.values import Measurement, Status, Trial


class Planned:
    """Tries configs of tiles `BM` times `BN` in a hundredth of a second.

    Attributes:
        tried: The configs, in order.
        opened_s: When the station was opened.
        closed_s: When it was closed, infinite before.
    """

    facts, lost = StationFacts(), None

    def __init__(self, assignment=None):
        self.assignment, self.tried = assignment, []
        self.opened_s, self.closed_s = time.monotonic(), float("inf")

    def attempt(self, config, best):
        """A trial with the planned time."""
        self.tried.append(config)
        time.sleep(0.01)
        return Trial(config, Status.OK, Measurement((float(config["BM"] * config["BN"]),), "planned"))

    def finals(self, final):
        """The fastest trial."""
        return replace(Outcome.of_screenings(final.trials), confidence="ok")  # as if they had raced

    def close(self):
        """Note when."""
        self.closed_s = time.monotonic()
