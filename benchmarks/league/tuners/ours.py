"""The search `auto` with and without what it may know beside the tunables, and a random order."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.league.spaces import Space
from triton_ops.search import Searcher, make_searcher
from triton_ops.space import Config
from triton_ops.values import Status, Trial
from triton_ops_lab.recording import MODE
from triton_ops_lab.replayed_search import PreviewAllowance, priors_for


class Bare:
    """`auto` that knows the tunables and the times alone, as tuners of other packages do."""

    search = "auto"

    def __init__(self, space: Space, seed: int, default: Config | None) -> None:
        self.space, self.default = space, default
        self.searcher = self.searcher_of(space, seed)

    def searcher_of(self, space: Space, seed: int) -> Searcher:
        """The searcher to run."""
        return make_searcher(self.search, space.recording.space, seed)

    def ask(self) -> Config | None:
        """The default, where one is given; then what the search asks for."""
        if self.default is not None:
            first, self.default = self.default, None
            return first
        return next(iter(self.searcher.ask(1)), None)

    def tell(self, config: Config, ms: float | None) -> None:
        """Tell the search a trial that has a time and nothing else."""
        self.searcher.tell([Trial(config, Status.RUNTIME) if ms is None else Trial.of_time(config, ms, MODE)])


class Random(Bare):
    """Each config once, in random order."""

    search = "random"


class Informed(Bare):
    """`auto` with the model of the kernel and previews, as far as the recording has them."""

    def searcher_of(self, space: Space, seed: int) -> Searcher:
        """The searcher with the priors of the recorded kernel."""
        self._ready: set[Config] = set()
        self.compiled_s = 0.0
        return make_searcher(self.search, space.recording.space, seed, priors_for(space.recording))

    def ask(self) -> Config | None:
        """The next config, after previews."""
        compiled, allowance = self.space.recording.compiled, PreviewAllowance()
        if compiled:
            previews = self.searcher.wanted_previews(allowance.each if self._ready else allowance.first)
            self._compile(previews)
            self.searcher.take_previews([compiled[config] for config in previews])
        config = super().ask()
        self._compile(() if config is None else (config,))
        return config

    def tell(self, config: Config, ms: float | None) -> None:  # noqa: ARG002 - it is the trial's
        """Tell the search the recorded trial, with what the compiler says of the config."""
        self.searcher.tell([self.space.recording.trials[config]])

    def _compile(self, configs: Iterable[Config]) -> None:
        new = set(configs) - self._ready
        self.compiled_s += sum(map(self.space.compile_s, sorted(new, key=lambda config: config.text)))
        self._ready |= new
