"""Kernels of one or two launches by the config: the second finishes what the first has left in scratch.

The first takes every tunable, and is all that most configs launch. So both are compiled without torch, and the free
rules read the first, as with a kernel of one launch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from triton_ops._hashing import fingerprint
from triton_ops._optional import require
from triton_ops.backend.base import Arguments, Executable
from triton_ops.backend.compiled import loaded, resources_of, traits_of
from triton_ops.backend.composed import ComposedKernel
from triton_ops.backend.identity import triton_identity
from triton_ops.backend.stand_in import StandIn
from triton_ops.backend.triton import TritonKernel
from triton_ops.exceptions import KernelTypeError
from triton_ops.resources import Resources
from triton_ops.space import Config
from triton_ops.tensors import TensorSpec

_PROGRAMS = "programs"  # the parameter of the second kernel that is told how many programs the first launch had
_ANY = 1  # no part of the code: a parameter that Triton must not specialise on


@dataclass(frozen=True)
class StagedKernel(ComposedKernel):
    """A Triton kernel, and the one that some of its configs launch after it.

    Attributes:
        first: Takes every tunable, and the scratch, which is None for a config of one launch.
        second: Takes the scratch, and those arguments and tunables of the first that it has parameters for; if it has
            a parameter `programs`, the number of programs of the first launch.
        when: From arguments and config by name to whether the second is launched.
        scratch: The parameter of both that takes the scratch, a float32 tensor on the device.
        elements: From arguments and config by name, and the number of programs of the first launch, to the elements of
            the scratch.
        options: Launch options and parameters of the second that belong to no config.

    Raises:
        KernelTypeError: The second has a parameter that gets no value, or one of the two takes no scratch.
    """

    first: TritonKernel
    second: TritonKernel
    _: KW_ONLY
    when: Callable[[Mapping[str, Any]], bool]
    scratch: str
    elements: Callable[[Mapping[str, Any], int], int]
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        known = {*self.first.parameter_names, *self.options, _PROGRAMS}
        strange = [name for name in self.second.parameter_names if name not in known]
        if strange or any(self.scratch not in each.parameter_names for each in (self.first, self.second)):
            raise KernelTypeError(
                f"{self.second.name} cannot follow {self.first.name}: no value for "
                f"{', '.join(strange) or self.scratch}",
                hint="name its parameters as those of the first, or give them as options",
            )

    @property
    def _leading(self) -> TritonKernel:
        return self.first

    @property
    def identity(self) -> Mapping[str, str]:
        """Fingerprints of both kernels with all they refer to, and what compiles them."""
        second = triton_identity(
            self.second.function,
            self.second.grid,
            interpreted=self.interpreted,
            parts={"when": self.when, "elements": self.elements},
        )
        more = fingerprint([sorted(second.items()), sorted(self.options.items())])
        return {**self.first.identity, "second": more}

    @property
    def compile_imports(self) -> str:
        """Torch where code of the user's may ask a tensor anything when a config of one of the two is compiled."""
        return self.first.compile_imports or self.second.compile_imports

    @property
    def without_grid(self) -> StagedKernel:
        """The same kernels for processes that only compile, where the grids cannot go."""
        return replace(self, first=self.first.without_grid, second=self.second.without_grid)

    @property
    def parsed(self) -> Any:
        """The first JIT function, whose text the free rules read."""
        return self.first.parsed

    @property
    def cache_key(self) -> str:
        """What Triton calls the sources of both."""
        return fingerprint([self.first.cache_key, self.second.cache_key])

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise as the first kernel does, unless tunables and arguments together are what it takes."""
        self.first.check(tunables, arguments)

    def lowered(self, config: Config, arguments: Arguments) -> list[Any]:
        """Triton's compiled kernels of one call, in the order of their launches; nothing is loaded or launched.

        Raises:
            Exception: Whatever Triton raises.
        """
        if not self._is_staged(config, arguments):
            return self.first.lowered(config, arguments)
        like = self._meta(config, arguments)[self.outputs[0]]
        light = isinstance(like, StandIn)
        scratch = StandIn.of(TensorSpec((1,), "float32")) if light else self._memory(like.device, 1)
        first, second, own = self._parts(config, arguments, scratch, _ANY)
        return [*self.first.lowered(config, first), *self.second.lowered(own, second)]

    def compile(self, config: Config, arguments: Arguments) -> Executable:
        """Compile every launch of a config for these arguments, and load the binaries; nothing is launched.

        Cost: 0.1 to a few seconds for each new binary, about a millisecond from Triton's disk cache.

        Raises:
            CandidateError: `compile` if the compiler refused a kernel, `resources` if the device cannot hold one.
            CacheError: The compiler cannot write its files, as on a full disk.
        """
        if not self._is_staged(config, arguments):
            return self.first.compile(config, arguments)
        if self.interpreted:
            return self.executable(config)
        start = time.perf_counter()
        made = loaded(lambda: self.lowered(config, arguments))
        took_s = time.perf_counter() - start
        return replace(self.executable(config), resources=resources_of(made), compile_s=took_s, **traits_of(made))

    def executable(self, config: Config) -> Executable:
        """A config that Triton itself compiles at its first launch with arguments of a kind.

        The scratch is made when arguments are bound, and is theirs for all launches.
        """

        def bind(given: Arguments) -> Callable[[], Any]:
            if not self._is_staged(config, given):
                return self.first.executable(config).bind(given)
            meta = self._meta(config, given)
            programs = math.prod(self.first.grid(meta))
            scratch = self._memory(meta[self.outputs[0]].device, self.elements(meta, programs))
            first, second, own = self._parts(config, given, scratch, programs)
            launches = [self.first.executable(config).bind(first), self.second.executable(own).bind(second)]

            def launched() -> None:
                for launch in launches:
                    launch()

            return launched

        return Executable(config=config, bind=bind, outputs=self.outputs)

    def program_key(self, config: Config, arguments: Arguments, made: Resources | None) -> str | None:
        """Names all that a launch of a compiled config is; None for two launches, of which none is known alone."""
        return None if self._is_staged(config, arguments) else self.first.program_key(config, arguments, made)

    def _meta(self, config: Config, given: Arguments) -> dict[str, Any]:
        """Arguments and config by name, with the defaults of the first kernel's parameters, as grids are given them."""
        return {**self.first.defaults, **self.first.by_name(given), **config}

    def _is_staged(self, config: Config, given: Arguments) -> bool:
        return self.when(self._meta(config, given))

    def _memory(self, device: Any, elements: int) -> Any:
        torch = require("torch", "memory between two launches")
        return torch.empty(elements, dtype=torch.float32, device=device)

    def _parts(
        self, config: Config, given: Arguments, scratch: Any, programs: int
    ) -> tuple[Arguments, Arguments, Config]:
        """What both launches are given: the arguments of the first, those of the second, and its own config."""
        taken = set(self.second.parameter_names)
        meta = {**self._meta(config, given), self.scratch: scratch, _PROGRAMS: programs}
        own = {name: meta[name] for name in config if name in taken} | dict(self.options)
        second = {name: meta[name] for name in self.second.parameter_names if name not in own}
        return (
            Arguments(given.positional, {**given.keyword, self.scratch: scratch}),
            Arguments(keyword=second),
            Config(own),
        )
