"""The league's tuners. Each is one class that is made from a space, a seed and perhaps a config to start from."""

from __future__ import annotations

import importlib
import queue
import threading
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from benchmarks.document import commit_here
from benchmarks.league.spaces import Space
from triton_ops.space import Config

EVALUATIONS = 50  # of a run, also told to a tuner that plans by their number


class Tuner(Protocol):
    """What a tuner is. It reads `space` as far as `Space` allows it.

    A tuner that is given a default asks for it first. It may have an attribute `compiled_s`, the seconds of all that it
    has had compiled so far, if it has more compiled than it asks to measure, and a method `close`, called after a run.
    """

    def __init__(self, space: Space, seed: int, default: Config | None) -> None: ...

    def ask(self) -> Config | None:
        """The next config to measure; None if the tuner is at its end."""

    def tell(self, config: Config, ms: float | None) -> None:
        """The config's milliseconds; None if it fails or breaks a constraint. A config may be told without a question.

        What was asked for before has its time again, and is no evaluation. After 20 such questions in a row, or
        questions for configs that break a constraint, a random config is measured and told.
        """


@dataclass(frozen=True)
class Entry:
    """A tuner of the league.

    Attributes:
        place: Module and class, with a colon between them; the module may be in this package.
        package: The distribution that has the version, which is also the name of the requirements; "" for our own.
        about: How it is run, for the page.
    """

    place: str
    package: str = ""
    about: str = ""

    def load(self) -> Any:
        """The class."""
        module, _, name = self.place.partition(":")
        inside = module.startswith(".")
        return getattr(importlib.import_module(module, __name__ if inside else None), name)

    @property
    def version(self) -> str:
        """The package's version; of our own tuners the commit."""
        return version(self.package) if self.package else commit_here()

    @property
    def requirements(self) -> Path:
        """The file with what the tuner's environment needs."""
        return Path(__file__).parents[1] / "requirements" / f"{self.package}.txt"


OURS, BARE = "triton_ops", "triton_ops, tunables alone"
TUNERS = {
    OURS: Entry(".ours:Informed", about="`auto` with the model of the kernel and previews, where the file has them"),
    BARE: Entry(".ours:Bare", about="`auto` without both"),
    "random": Entry(".ours:Random", about="each config once, in random order"),
    "Optuna TPE": Entry(".with_optuna:Tpe", "optuna", "`TPESampler(multivariate=True)`"),
    "Nevergrad (1+1)": Entry(".with_nevergrad:OnePlusOne", "nevergrad", "`DiscreteOnePlusOne`"),
    "Kernel Tuner firefly": Entry(".with_kernel_tuner:Firefly", "kernel_tuner", "`firefly_algorithm`"),
    "Kernel Tuner tabu": Entry(".with_kernel_tuner:Tabu", "kernel_tuner", "`adaptive_tabu_greywolf`"),
    "Kernel Tuner genetic": Entry(".with_kernel_tuner:Genetic", "kernel_tuner", "`genetic_algorithm`"),
    "Helion": Entry(".with_helion:Lfbo", "helion", "`LFBOTreeSearch` with full effort"),
    "Helion, quick": Entry(
        ".with_helion:Quick", "helion", "the same with 30 configs at first, 2 copies, 5 generations"
    ),
    "hyperopt TPE": Entry(".with_hyperopt:Tpe", "hyperopt", "`tpe.suggest`"),
    "SMAC3": Entry(".with_smac:Forest", "smac", "`HyperparameterOptimizationFacade`"),
}


def entry_of(name: str) -> Entry:
    """The entry of a name, or of a class that is written as MODULE:CLASS."""
    return TUNERS.get(name) or Entry(name)


class Ended(BaseException):
    """The run is over; not an Exception, for a search may survive those."""


class Called:
    """A tuner whose package calls a function that measures: the search waits in a thread for each answer."""

    def __init__(self, space: Space, seed: int, default: Config | None) -> None:
        self.space, self.seed, self.default = space, seed, default
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._pending: Config | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def search(self) -> None:
        """Run the package's search, with `measure` as what it calls."""
        raise NotImplementedError

    def measure(self, config: Config) -> float | None:
        """Milliseconds of a config; None if it fails or breaks a constraint."""
        self._asked.put(config)
        answer = self._answers.get()
        if answer is Ended:
            raise Ended
        return answer

    def ask(self) -> Config | None:
        """The config that the search wants measured; None once it has returned."""
        if self._thread.ident is None:
            self._thread.start()
        asked = self._asked.get()
        if isinstance(asked, BaseException):
            raise asked
        self._pending = asked
        return asked

    def tell(self, config: Config, ms: float | None) -> None:
        """Answer the search; it cannot be told what it did not ask for."""
        if config == self._pending:
            self._pending = None
            self._answers.put(ms)

    def close(self) -> None:
        """End the search, and wait for its thread."""
        self._answers.put(Ended)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self.search()
            self._asked.put(None)
        except Ended:
            pass
        except Exception as error:  # noqa: BLE001 - of the other package; passed on to `ask`
            self._asked.put(error)
