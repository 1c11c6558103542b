"""Search among the configs whose results have the bits of one class, as far as compiled code tells.

What is compiled decides the class of a config. A config of another class, or of one that cannot be told, is refused
before it runs. Results decide as well: a config of the class whose results are others is a fault of the classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice

from triton_ops import kernel_ir
from triton_ops.base import warn
from triton_ops.compilation import CompilePool
from triton_ops.exceptions import TargetError
from triton_ops.processes import Threads
from triton_ops.request import TuneRequest
from triton_ops.space import Config
from triton_ops.values import Compiled, Status, Trial

_MOST_SEARCHED = 32  # configs that are compiled to find one of a class that is pinned


class WithinClass:
    """A compile pool by which configs of other classes than that of `trusted` cannot be launched.

    `trusted` is the default, whose class, `reference`, is told when it is compiled. Where a class is `pinned`, it is
    the first of the default and further configs that is of this class; the default alone runs if none is.
    """

    def __init__(self, pool: CompilePool, request: TuneRequest) -> None:
        self.workers, self.reference = pool.workers, Future[kernel_ir.BitClass]()
        self._pool, self.trusted, space = pool, (default := request.space.default_config), request.space
        if request.pinned:
            first = [default, *filter(None, [request.shown_by]), *islice(space, _MOST_SEARCHED)]
            fitting = [config for config in dict.fromkeys(first) if space.why_not(config) is None]
            self.reference.set_result(self._searched(request.pinned, fitting))
            return
        pool.submit(default, anyway=True).add_done_callback(
            lambda compiled: Threads.settle(self.reference, lambda: self._class_of(default, compiled))
        )

    def submit(self, config: Config, *, anyway: bool = False, spare: bool = False) -> Future[Compiled]:
        """Compile a config, as `CompilePool.submit`; one of another class ends with the status `constraint`."""
        compiled = self._pool.submit(config, anyway=anyway, spare=spare)
        if config == self.trusted:
            return compiled
        judged = Future[Compiled]()

        def judge(_: object) -> None:
            Threads.settle(judged, lambda: self._judged(config, compiled))

        compiled.add_done_callback(lambda _: self.reference.add_done_callback(judge))
        return judged

    def faults(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials of the class that gave other results than the trusted config, whose own were right."""
        right = any(trial.ok for trial in trials if trial.config == self.trusted)
        return [each for each in trials if right and each.status is Status.WRONG and each.config != self.trusted]

    def notes(self, trials: Sequence[Trial]) -> list[str]:
        """Why the default alone could run, and which configs of its class gave other results; each is a warning too."""
        told = self.reference.result()
        notes = [
            f"the classes of equal bits are at fault: ({trial.config}) is in that of ({self.trusted}): {trial.error}"
            for trial in self.faults(trials)
        ]
        if told.silent:
            notes = [f"which configs give these bits cannot be told, so ({self.trusted}) is kept: {told.silent}"]
        for note in notes:
            warn("%s", note)
        return notes

    def _searched(self, pinned: str, configs: Sequence[Config]) -> kernel_ir.BitClass:
        """The class that is pinned, of the first config that has it, which is trusted."""
        reason = ""
        for part in (configs[:2], configs[2:]):  # most often the default, or the config that was pinned, has it
            for config, future in [(config, self._pool.submit(config, anyway=True)) for config in part]:
                found = self._class_of(config, future)
                if found.key == pinned:
                    self.trusted = config
                    return found
                reason = reason or f"({config}): {found.silent or f'it is of the class {found.key}'}"
        return kernel_ir.BitClass(silent=f"none of {len(configs)} is of the pinned class {pinned}, such as {reason}")

    def _class_of(self, config: Config, future: Future[Compiled]) -> kernel_ir.BitClass:
        try:
            compiled = future.result()
        except TargetError as error:
            return kernel_ir.BitClass(silent=error.message)
        return self._pool.read_class(config) if compiled.launchable else kernel_ir.BitClass(silent=compiled.reason)

    def _judged(self, config: Config, future: Future[Compiled]) -> Compiled:
        try:
            compiled = future.result()
        except TargetError as error:
            return Compiled(config, Status.CONSTRAINT, f"its bits cannot be told: {error.message}")
        reference = self.reference.result()
        if not compiled.launchable or (compiled.deferred and compiled.resources is None):
            return compiled
        if reference.silent:
            reason = f"the bits of ({self.trusted}) cannot be told: {reference.silent}"
        elif (found := self._pool.read_class(config)).key != reference.key:
            reason = f"other bits than ({self.trusted}): {'; '.join(found.beside(reference))}"
        else:
            return compiled
        return replace(compiled, status=Status.CONSTRAINT, reason=reason)
