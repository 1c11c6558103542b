"""The steps of reading kernels, any of which may end, or never end, the process that takes it.

A statement of a file can call `os._exit`, wait for ever, or take all memory, and so can what a compiler makes of a
kernel. The process that reads files says of each step that it begins (`apart.py`), so that another one goes on without
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class LostStepError(Exception):
    """A step is left out, since it has ended a process."""


class Steps:
    """The steps of this process.

    Attributes:
        omissions: Steps that are left out, with the reason.
    """

    def __init__(self) -> None:
        self.tell: Callable[[str], None] = lambda _: None
        self.omissions: Mapping[str, str] = {}

    def begin(self, step: str) -> None:
        """Begin a step.

        Raises:
            LostStepError: It is left out.
        """
        if step in self.omissions:
            raise LostStepError(self.omissions[step])
        self.tell(step)


STEPS = Steps()
