"""Operations of several launches: a function that launches kernels is compiled ahead and timed as one candidate."""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any

from triton_ops._hashing import fingerprint
from triton_ops.backend.as_python import is_interpreted
from triton_ops.backend.base import Arguments, Executable
from triton_ops.backend.compiled import compile_error, loaded, resources_of, traits_of
from triton_ops.backend.dry_run import dry_run, launches_taken
from triton_ops.backend.errors import CandidateError
from triton_ops.backend.function import FunctionKernel
from triton_ops.backend.jit_function import is_jit_function, settled
from triton_ops.backend.light_torch import NEEDS_MORE, REFERENCES
from triton_ops.backend.members import used_values
from triton_ops.backend.scratch import with_scratch
from triton_ops.backend.stand_in import described
from triton_ops.backend.unwrap import is_triton, layers, unwrap
from triton_ops.backend.users_code import is_users
from triton_ops.exceptions import DeviceError, KernelTypeError, TargetError
from triton_ops.hardware import gpu_missing
from triton_ops.resources import Resources
from triton_ops.space import Config
from triton_ops.trial import Status

_log = logging.getLogger("triton_ops")


@dataclass(frozen=True)
class LauncherKernel:
    """A Python function that launches one or several Triton kernels; the values of a config are keywords.

    The function is called as `launch(*args, **kwargs, **config)`. It may make tensors, such as scratch whose shape
    follows the config, and call torch between its launches. All of it is one candidate: compiled ahead, checked, timed.

    To compile ahead, the function is run on tensors without memory, and its launches are compiled in place of being
    launched. A function that reads a tensor's values cannot be run so: a warning says why, and each config is compiled
    when it is first launched.

    Attributes:
        launch: The function.
        outputs: Names of the arguments that it writes; empty if it returns its result.
        label: Its name in records; None takes `module:qualified_name`.

    Raises:
        KernelTypeError: `launch` is no Python callable, or an output is no parameter.
    """

    launch: Callable[..., Any]
    outputs: tuple[str, ...] = ()
    label: str | None = None

    def __post_init__(self) -> None:
        if is_triton(self.launch):
            raise KernelTypeError(
                f"{self.launch!r} is a Triton kernel, and no function that launches one",
                hint="give TritonKernel(kernel, grid)",
            )
        names = self._function.parameter_names  # checks that it is callable
        takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(self.launch).parameters.values())
        if strange := [name for name in self.outputs if name not in names and not takes_any]:
            raise KernelTypeError(f"{self.name} has no parameter {', '.join(strange)} to be an output")

    @property
    def _function(self) -> FunctionKernel:
        return FunctionKernel(self.launch, self.label, self.outputs)

    @property
    def name(self) -> str:
        """`module:qualified_name`, unless labelled."""
        return self._function.name

    @property
    def identity(self) -> Mapping[str, str]:
        """Fingerprint of the function with its kernels and all they refer to, and versions of what compiles them."""
        return self._function.identity

    @property
    def parameter_names(self) -> list[str | None]:
        """In calling order; None for a parameter that cannot be passed by name."""
        return self._function.parameter_names

    @property
    def process_imports(self) -> tuple[str, ...]:
        """Triton first: it readies itself while torch is imported."""
        return ("triton", "torch")

    @property
    def compiled_ahead(self) -> LauncherKernel | None:
        """This kernel; None if its kernels are interpreted."""
        return None if self.interpreted else self

    @property
    def interpreted(self) -> bool:
        """Whether its kernels run as Python, as under `TRITON_INTERPRET`."""
        return any(is_interpreted(kernel) for _, kernel in _kernels_of(self.launch))

    @property
    def compile_imports(self) -> str:
        """Torch; and what it imports for a third of a second and more where the function names what needs that.

        What an operator such as `+` needs is imported when it is first met.
        """
        home = _home(self.launch)
        codes = (value.__code__ for value in _referred(self.launch) if _is_own(value, home))
        return REFERENCES if any(_names_in(code) & NEEDS_MORE for code in codes) else "torch"

    @property
    def parsed(self) -> None:
        """None: which text belongs to which tunable is not known."""

    @property
    def without_grid(self) -> LauncherKernel:
        """This kernel, whose grids are part of the function."""
        return self

    @property
    def cache_key(self) -> str:
        """Names the kernels that the function and its helpers refer to, as Triton does."""
        return fingerprint(sorted([name, str(settled(kernel).cache_key)] for name, kernel in _kernels_of(self.launch)))

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise unless every tunable can be passed as a keyword beside the arguments.

        Raises:
            ConfigCollisionError: A tunable has the name of an argument that is passed as well.
            UnknownTunableError: The function takes no keyword of that name.
            DeviceError: There is no GPU, the tensors are on a CPU, and the kernels are not interpreted. Where there is
                a GPU the function may move them.
        """
        self._function.check(tunables, arguments)
        places = {tensor.device.type for tensor in arguments.tensors()}
        if places == {"cpu"} and not self.interpreted and (missing := gpu_missing()):
            raise DeviceError(
                f"{self.name} launches Triton kernels, which run on a GPU, and there is none: {missing}",
                "cuda",
                "cpu",
                hint="run it on a machine with a GPU, or run its kernels as Python with TRITON_INTERPRET=1",
            )

    def lowered(self, config: Config, arguments: Arguments) -> list[Any]:
        """Triton's compiled kernels of one call, in the order of their launches; nothing is loaded or launched.

        Raises:
            TargetError: The function cannot be run without computing.
            CandidateError: It launches no kernel.
            Exception: Whatever Triton raises.
        """
        call = functools.partial(self.launch, **config)
        made = dry_run(call, described(arguments))
        if not made:
            raise self._nothing_launched()
        return made

    def program_key(self, config: Config, arguments: Arguments, made: Resources | None) -> None:  # noqa: ARG002
        """None: what the function does beside its launches is not known."""
        return

    def compile(self, config: Config, arguments: Arguments) -> Executable:
        """Compile every launch for these arguments, and load the binaries; nothing is launched.

        Cost: that of compiling each of its kernels, 0.1 to a few seconds; milliseconds from Triton's disk cache.

        Raises:
            CandidateError: `compile` if the compiler refused a kernel, `resources` if the device cannot hold one,
                `runtime` if the function launches none.
            CacheError: The compiler cannot write its files, as on a full disk.
        """
        if self.interpreted:
            return self._executable(config, known=True)
        start = time.perf_counter()
        try:
            made = self.lowered(config, arguments)
        except TargetError as error:
            _log.warning("%s is compiled when it is launched: %s", self.name, error.message)
            return self._executable(config, known=False)
        except Exception as error:
            raise compile_error(error) from error
        loaded(lambda: made)
        took_s = time.perf_counter() - start
        traits = {**traits_of(made), "atomics": None}  # torch may use some too
        return replace(self._executable(config, known=True), resources=resources_of(made), compile_s=took_s, **traits)

    def _executable(self, config: Config, known: bool) -> Executable:
        """The config; where it is not known that it launches a kernel, its first call looks."""

        def bind(given: Arguments) -> Callable[[], Any]:
            call = functools.partial(self.launch, *given.positional, **{**given.keyword, **config})
            return with_scratch(call if known else functools.partial(self._watched, call))

        return Executable(config=config, bind=bind, outputs=self.outputs)

    def _watched(self, call: Callable[[], Any]) -> Any:
        launched = 0

        def counted(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            nonlocal launched
            launched += 1
            return run(*args, **kwargs)

        with launches_taken(counted):
            found = call()
        if not launched:
            raise self._nothing_launched()
        return found

    def _nothing_launched(self) -> CandidateError:
        return CandidateError(
            Status.RUNTIME, f"{self.name} launches no Triton kernel; a function that needs none is a FunctionKernel"
        )


def _kernels_of(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The JIT functions that a function of the user's and its helpers refer to, each once, with a name."""
    for value in _referred(function):
        if is_triton(value):
            *_, kernel = (layer for layer in layers(value) if is_triton(layer))
            if is_jit_function(kernel):
                yield f"{kernel.fn.__module__}.{kernel.fn.__qualname__}", kernel


def _home(function: Callable[..., Any]) -> str:
    """The package of a function."""
    return str(getattr(unwrap(function), "__module__", "")).partition(".")[0]


def _is_own(value: Any, home: str) -> bool:
    """Whether something is a Python function of the user's or of the same package, and no kernel."""
    if is_triton(value) or not isinstance(value, FunctionType):
        return False
    return is_users(value.__module__ or "", value.__code__.co_filename, home)


def _names_in(code: CodeType) -> set[str]:
    """The names of attributes and globals in a function's code and in that of functions inside it."""
    inner = (_names_in(each) for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names}.union(*inner)


def _referred(function: Callable[..., Any]) -> Iterator[Any]:
    """A function of the user's, and what it and its helpers refer to, each once; kernels are not looked into."""
    home = _home(function)
    seen: set[int] = set()
    left: deque[Any] = deque([unwrap(function)])
    while left:
        value = left.popleft()
        if isinstance(value, functools.partial):
            value = unwrap(value.func)
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if _is_own(value, home):
            left.extend(found.value for found in used_values(value, lambda module: is_users(module, None, home)))
