"""What is known of a config before it is launched."""

from __future__ import annotations

from dataclasses import dataclass

from triton_ops.space import Config
from triton_ops.trial import Resources, Status


@dataclass(frozen=True)
class Verdict:
    """What a rule says of a config.

    Attributes:
        status: How the trial ends without being run; `ok` for a config that is only deferred.
        reason: Why, with the numbers.
    """

    status: Status
    reason: str

    @property
    def deferred(self) -> bool:
        """Whether the config can run, but need only be tried when nothing else is left."""
        return self.status is Status.OK


@dataclass(frozen=True)
class Compiled:
    """A config that went through the tiers before a launch.

    Attributes:
        config: What was compiled.
        status: `ok` if it can be launched, as far as can be known without doing it; else how its trial ends:
            `constraint`, `compile`, `resources`, `timeout` or `crash`.
        reason: Why it is not ok, or why it is deferred, with the numbers; empty otherwise.
        resources: What the compiler made of it; of a config over a limit, as much as was found out.
        compile_s: Seconds it took; None if nothing was compiled.
        deferred: Whether it need only be tried when nothing else is left. A rule may have said so before anything was
            compiled: `resources` is None then.
    """

    config: Config
    status: Status
    reason: str = ""
    resources: Resources | None = None
    compile_s: float | None = None
    deferred: bool = False

    @property
    def ok(self) -> bool:
        """Whether it can be launched."""
        return self.status is Status.OK
