"""Search among the configs whose results have the bits of the default config's, as far as compiled code tells.

What is compiled decides the class of a config. A config of another class, or of one that cannot be told, is refused
before it runs. Results decide as well: a config of the same class whose results are others is a fault of the classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace

from triton_ops import kernel_ir
from triton_ops.base import warn
from triton_ops.compilation import CompilePool
from triton_ops.exceptions import TargetError
from triton_ops.processes import Threads
from triton_ops.space import Config
from triton_ops.values import Compiled, Status, Trial


class WithinClass:
    """A compile pool by which configs of other classes than that of the default cannot be launched.

    `reference` is the class of the default, which is compiled first.
    """

    def __init__(self, pool: CompilePool, default: Config) -> None:
        self.workers, self.reference = pool.workers, Future[kernel_ir.BitClass]()
        self._pool, self._default = pool, default
        pool.submit(default, anyway=True).add_done_callback(
            lambda compiled: Threads.settle(self.reference, lambda: self._class_of_default(compiled))
        )

    def submit(self, config: Config, *, anyway: bool = False, spare: bool = False) -> Future[Compiled]:
        """Compile a config, as `CompilePool.submit`; one of another class ends with the status `constraint`."""
        compiled = self._pool.submit(config, anyway=anyway, spare=spare)
        if config == self._default:
            return compiled
        judged = Future[Compiled]()

        def judge(_: object) -> None:
            Threads.settle(judged, lambda: self._judged(config, compiled))

        compiled.add_done_callback(lambda _: self.reference.add_done_callback(judge))
        return judged

    def notes(self, trials: Iterable[Trial]) -> list[str]:
        """Why the default alone could run, and which configs of its class gave other results."""
        told = self.reference.result()
        if told.silent:
            return [f"which configs give the bits of ({self._default}) cannot be told, so it is kept: {told.silent}"]
        faults = [
            f"the classes of equal bits are at fault: ({trial.config}) is in that of ({self._default}): {trial.error}"
            for trial in trials if trial.status is Status.WRONG and trial.config != self._default
        ]  # fmt: skip
        for fault in faults:
            warn("%s", fault)
        return faults

    def _class_of_default(self, future: Future[Compiled]) -> kernel_ir.BitClass:
        try:
            compiled = future.result()
        except TargetError as error:
            return kernel_ir.BitClass(silent=error.message)
        if not compiled.launchable:
            return kernel_ir.BitClass(silent=compiled.reason)
        return self._pool.read_class(self._default)

    def _judged(self, config: Config, future: Future[Compiled]) -> Compiled:
        try:
            compiled = future.result()
        except TargetError as error:
            return Compiled(config, Status.CONSTRAINT, f"its bits cannot be told: {error.message}")
        reference = self.reference.result()
        if not compiled.launchable or (compiled.deferred and compiled.resources is None):
            return compiled
        if reference.silent:
            reason = f"the bits of ({self._default}) cannot be told: {reference.silent}"
        elif (found := self._pool.read_class(config)).key != reference.key:
            reason = f"other bits than ({self._default}): {'; '.join(found.beside(reference))}"
        else:
            return compiled
        return replace(compiled, status=Status.CONSTRAINT, reason=reason)
