"""One comparison of compile modes: each is loaded and screened beside eager, the fastest race, one is confirmed."""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType

from triton_ops import settings
from triton_ops.compile_modes.collecting import Collection
from triton_ops.compile_modes.culprits import WORTH_A_WORD, culprit_of, variations, verdicts
from triton_ops.compile_modes.process import Limits, ModeProcess, compiler_folders
from triton_ops.compile_modes.questions import Failed, Loaded
from triton_ops.compile_modes.report import CompileReport, ModeResult
from triton_ops.compile_modes.request import Request
from triton_ops.compile_modes.rounds import Entrant, RemoteTimer, confirmed, raced, screened
from triton_ops.compile_modes.rows import alias_row, failed_row, row_of
from triton_ops.compile_modes.run_folder import RunFolder, key_of, run_folder
from triton_ops.exceptions import TuningFailedError
from triton_ops.hardware import CpuLoad, DeviceSpec, Turns, probe, turn_key
from triton_ops.inductor.backends import wrong_lists
from triton_ops.inductor.environment import READ, log_switches, wrong_names
from triton_ops.inductor.modes import (
    EAGER,
    CompileMode,
    option_values,
    refusal,
    same_without_gpu,
    variables_of_process,
)
from triton_ops.inductor.options import is_read, variables, variables_by_option
from triton_ops.trial import Status

_log = logging.getLogger("triton_ops")
_MOST_ALIVE = 4  # compiled models that wait for the race beside eager: each holds the weights
_MOST_VARIED = 2
_NONE: Mapping[str, str] = MappingProxyType({})


class Comparing:
    """A comparison that is under way; its processes end with it.

    Args:
        request: What is asked.
        follow: Called with a line of text as each mode is done.
        clock: Monotonic seconds.
    """

    def __init__(
        self, request: Request, follow: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._request, self._follow, self._clock = request, follow, clock
        self._begun = clock()
        self._rng = random.Random(request.manner.seed)
        self._entrants: list[Entrant] = []
        self._rows: dict[str, ModeResult] = {}
        self._aliases: list[tuple[CompileMode, CompileMode]] = []
        self._folder: RunFolder | None = None
        self._key = ""
        self._collection = Collection(request.collect)
        self._replaced: list[str] = []
        self._device: DeviceSpec = probe("cpu")
        self._timer = RemoteTimer("cpu")
        self._turns = Turns(request.device or "cpu", request.wait)
        self._held = ExitStack()

    def __enter__(self) -> Comparing:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        for entrant in self._entrants:
            entrant.process.close()
        if self._folder is not None and (kind is None or issubclass(kind, Exception)):
            self._folder.remove()  # what was interrupted from outside is gone on with
        self._held.close()

    def run(self) -> CompileReport:
        """Run the comparison to its end."""
        load = CpuLoad()
        self._warn_of_environment()
        self._collection.check(self._request.modes)
        eager = self._open_eager()
        for mode in self._request.modes[1:]:
            self._try(mode, eager)
        if self._request.why:
            self._vary(eager)
        self._race(eager)
        winner, said = self._recommended(eager)
        rows = tuple(self._rows.values())
        return CompileReport(
            problem=eager.loaded.label,
            device=self._device.name,
            modes=rows,
            recommended=winner.name,
            chosen=winner,
            culprit=culprit_of(rows),
            confirmed=said,
            notes=(
                *self._request.notes,
                *self._replaced,
                *verdicts(rows),
                *self._turns.notes,
                *load.notes(self._device),
            ),
            folder=str(self._request.collect or ""),
        )

    def _open_eager(self) -> Entrant:
        """Load the model as it is; what it says of the workload decides device and folder.

        Raises:
            TuningFailedError: It does not run.
            TritonKernelError: The factory, or the model and its inputs, do not fit.
        """
        mode = self._request.modes[0]
        process = self._process(mode, None)
        with self._turn():
            found = process.load(self._request.packed, self._request.manner)
        if isinstance(found, Failed):
            process.close()
            if found.error is not None:
                raise found.error
            reason = f"{found.status}: {found.reason}"
            raise TuningFailedError(
                f"the model does not run as it is: {reason}", failures=[({"mode": mode.name}, reason)],
                hint="call the model with these inputs in Python to try",
            )  # fmt: skip
        self._device = probe(found.device_name)
        self._timer = RemoteTimer(found.device_name)
        self._turns = Turns(found.device_name, self._request.wait)
        key = self._key = key_of(found.facts, self._device, self._request.manner, self._request.warm)
        root = self._request.cache_dir or settings.cache_dir()
        self._folder = self._held.enter_context(run_folder(root, key, resume=self._request.resume))
        entrant = Entrant(process, found)
        self._entrants.append(entrant)
        with self._turn():
            screened(entrant, entrant, self._timer, self._rng)
        self._keep_row(entrant, entrant)
        return entrant

    def _try(self, mode: CompileMode, eager: Entrant) -> None:
        """Load a mode and screen it beside eager; one that does not work ends as its row."""
        if (why := refusal(mode)) != "":
            self._keep(failed_row(mode, Status.CONSTRAINT, why))
            return
        same = same_without_gpu(self._request.modes, mode) if self._device.kind == "cpu" else None
        if same is not None and same.name in self._rows:
            self._aliases.append((mode, same))
            self._keep(alias_row(mode, same, self._rows[same.name]))
            return
        if self._left_s() <= 0:
            budget = f"the budget of {self._request.budget_s:g} s was used up before it was begun"
            self._keep(failed_row(mode, Status.DEFERRED, budget))
            return
        with self._turn():
            self._enter(mode, eager)
        self._make_room(eager)

    def _enter(self, mode: CompileMode, eager: Entrant) -> None:
        assert self._folder is not None
        known = self._folder.finished(mode) if self._collection.holds(mode, self._key) else None
        if known is None:
            shutil.rmtree(self._folder.of(mode), ignore_errors=True)  # of a process that was interrupted
        place = self._folder.of(mode)
        variables = self._collection.variables(mode, place) if known is None else _NONE
        process = self._process(mode, place, traces=variables)
        found = process.load(self._request.packed, self._request.manner)
        if known is None and (replaced := self._collection.keep(mode, self._key, process.lines, place)):
            self._replaced.append(f"{mode.name} {replaced}")
            self._follow(self._replaced[-1])
        if isinstance(found, Failed):
            self._keep(failed_row(mode, found.status, found.reason, process.lines))
            return
        entrant = Entrant(process, found)
        if known is None:
            self._folder.keep(mode, found, process.lines)
        else:
            entrant = Entrant(process, _cold(found, known[0]), lines=known[1])
        self._entrants.append(entrant)
        if (lost := screened(entrant, eager, self._timer, self._rng)) is not None:
            self._keep(failed_row(mode, Status.CRASH, lost))
            return
        self._keep_row(entrant, eager)

    def _make_room(self, eager: Entrant) -> None:
        """End the processes of the slowest modes: so many models need not lie in memory at the same time."""
        alive = [each for each in self._entrants if each is not eager and each.process.alive]
        for entrant in sorted(alive, key=lambda each: each.relative)[_MOST_ALIVE:]:
            entrant.process.close()

    def _vary(self, eager: Entrant) -> None:
        """Try variations of the slowest tuned modes, each in one option."""
        timed = [row for row in self._rows.values() if row.relative is not None]
        fastest = min((row.relative or 0.0 for row in timed), default=0.0)
        modes = {entrant.mode.name: entrant.mode for entrant in self._entrants}
        slow = [row for row in timed if row.name != EAGER and (row.relative or 0.0) > WORTH_A_WORD * fastest]
        known = option_values()
        for row in sorted(slow, key=lambda each: -(each.relative or 0.0))[:_MOST_VARIED]:
            if row.name not in modes:  # the same as another on this device
                continue
            taken = [dict(other.options) for other in self._rows.values()]
            for varied in variations(modes[row.name], row.options, known):
                if dict(varied.options) not in taken:
                    self._try(varied, eager)

    def _race(self, eager: Entrant) -> None:
        """Compare the fastest side by side; their rows get the times of this comparison."""
        alive = [each for each in self._entrants if each is not eager and each.process.alive]
        if not alive:
            return
        seconds = min(self._request.seconds, max(self._left_s(), 2.0))
        self._follow(f"comparing {', '.join(each.mode.name for each in [eager, *alive])} for up to {seconds:.3g} s")
        with self._turn():
            raced(eager, alive, self._timer, seconds, self._rng)
        for entrant in [eager, *alive]:
            if entrant.lost:
                self._keep(failed_row(entrant.mode, Status.CRASH, entrant.lost))
            else:
                self._rows[entrant.mode.name] = row_of(entrant, eager)
        for mode, same in self._aliases:
            self._rows[mode.name] = alias_row(mode, same, self._rows[same.name])

    def _recommended(self, eager: Entrant) -> tuple[CompileMode, str]:
        """The way to use, and how it compared with eager in fresh processes."""
        raced_too = [each for each in self._entrants if each is not eager and each.wins]
        if not raced_too:
            return eager.mode, ""
        best = raced_too[0]
        for entrant in self._entrants:
            entrant.process.close()
        assert self._folder is not None
        whole = self._request.limits  # the budget is for what has not begun: it may be used up by now
        fresh = [
            self._process(best.mode, self._folder.of(best.mode), whole), self._process(eager.mode, None, whole),
        ]  # fmt: skip
        self._follow(f"confirming {best.mode.name} in fresh processes")
        try:
            with self._turn():
                for process in fresh:
                    found = process.load(self._request.packed, self._request.manner)
                    if isinstance(found, Failed):
                        return eager.mode, f"{best.mode.name} did not run again: {found.status}: {found.reason}"
                verdict, said = confirmed(fresh[0], fresh[1], self._timer, self._request.seconds, self._rng)
        finally:
            for process in fresh:
                process.close()
        return (best.mode, said) if verdict else (eager.mode, f"{said}: eager stays")

    def _keep_row(self, entrant: Entrant, eager: Entrant) -> None:
        self._keep(row_of(entrant, eager))

    def _keep(self, row: ModeResult) -> None:
        self._rows[row.name] = row
        if row.steady_ms is not None:
            self._follow(f"{row.name}: {row.steady_ms:.4g} ms, first call {row.first_call_s or 0:.1f} s")
        else:
            self._follow(f"{row.name}: {row.status}: {row.reason}")

    def _process(
        self, mode: CompileMode, folder: Path | None, limits: Limits | None = None, traces: Mapping[str, str] = _NONE
    ) -> ModeProcess:
        """A process of a mode, not yet started, with its compiler's folders and logs; limits are the budget's.

        A process that confirms leaves no traces: they would lie beside those of the same mode, as further graphs.
        """
        environment = log_switches(dict(settings.environment()), (*READ, *self._request.logs)) if not mode.eager else {}
        environment |= variables_of_process(mode)
        if folder is not None and not self._request.warm:
            environment |= compiler_folders(folder)
        environment |= traces
        limits = limits or self._request.limits.within(self._left_s())
        return ModeProcess(mode, limits, device=self._request.device, environment=environment)

    def _left_s(self) -> float:
        """Seconds that are left of the budget."""
        budget_s = self._request.budget_s
        return float("inf") if budget_s is None else budget_s - (self._clock() - self._begun)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        name = self._turns.device_name
        with self._turns.turn(turn_key(probe(name), name)):
            yield

    def _warn_of_environment(self) -> None:
        environment = dict(settings.environment())
        for name, meant in wrong_names(environment, variables(), is_read).items():
            _log.warning("%s is set, and torch does not read it; %s is probably meant", name, meant)
        for wrong in wrong_lists(environment, variables_by_option()):
            _log.warning("%s", wrong)


def _cold(now: Loaded, before: Loaded) -> Loaded:
    """What is true now, with the first calls of the process that compiled without a cache."""
    return replace(now, calls_s=before.calls_s, compile_s=before.compile_s)
