"""The kernel role and its capabilities, executables, and the arguments of kernels.

A kernel knows nothing of search, timing or caches. Adding a backend is one class with `check` and `compile`; what else
a kernel can do is a capability, a small protocol of its own, which those who need it ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from triton_ops.backend.containers import is_descriptor, mapped, tensors_in
from triton_ops.backend.containers import is_tensor as is_tensor
from triton_ops.exceptions import KernelTypeError
from triton_ops.space import Config
from triton_ops.values import Resources


@dataclass(frozen=True)
class Arguments:
    """The arguments of a kernel, without the values of its config.

    Attributes:
        positional: The arguments that are given by position, in calling order.
        keyword: The arguments that are given by name.
    """

    positional: tuple[Any, ...] = ()
    keyword: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def given(cls, args: Any, kwargs: Any) -> Arguments:
        """The arguments that a caller gave as `args` and `kwargs`; None for no keywords.

        Raises:
            KernelTypeError: They are no sequence and no mapping, such as a tensor in place of a tuple that holds it.
        """
        if not isinstance(args, Sequence) or isinstance(args, (str, bytes)):
            raise KernelTypeError(
                f"args is a {type(args).__name__}; it must be a tuple or a list of arguments", hint="write args=(x,)"
            )
        if kwargs is not None and not isinstance(kwargs, Mapping):
            raise KernelTypeError(
                f"kwargs is a {type(kwargs).__name__}; it must be a mapping from names to arguments",
                hint='write kwargs={"x": x}',
            )
        return cls(tuple(args), dict(kwargs or {}))

    def tensors(self) -> Iterator[Any]:
        """The torch tensors in these arguments, also those inside containers and tensor descriptors."""
        yield from tensors_in([*self.positional, *self.keyword.values()])

    def result(self, name: str) -> Any:
        """The argument of a name as a result: of a tensor descriptor its tensor."""
        value = self.keyword[name]
        return value.base if is_descriptor(value) else value

    def map(self, change: Callable[[Any], Any], leaf: Callable[[Any], bool] = is_tensor) -> Arguments:
        """These arguments with `change` applied to every tensor, or other leaf; containers are made anew around it."""
        return Arguments(
            tuple(mapped(value, change, leaf) for value in self.positional),
            {name: mapped(value, change, leaf) for name, value in self.keyword.items()},
        )

    def by_name(self, kernel: Kernel) -> Arguments:
        """These arguments with those that came by position under their names, as far as they can be passed by name."""
        names = self.positional_names(kernel)
        first = next((place for place, name in enumerate(names) if name is not None), len(names))
        values = {name: value for name, value in zip(names, self.positional, strict=True) if name is not None}
        if len(values) < len(names) - first:  # a starred parameter: what stands before it must stay before it
            return self
        return Arguments(self.positional[:first], {**values, **self.keyword})

    def positional_names(self, kernel: Kernel) -> list[str | None]:
        """The names that positional arguments have for a kernel; None where one cannot be passed by name."""
        count = len(self.positional)
        if count == 0:
            return []
        names = list(
            getattr(kernel, "parameter_names", ())
        )  # `isinstance` of a protocol takes a quarter of a known tune
        return [*names[:count], *[None] * (count - len(names))]


@dataclass(frozen=True)
class PreparedCall:
    """A launch before which something must be done each time, such as filling an accumulator with zeros.

    Attributes:
        run: Launches.
        prepare: Does what must be done before; it is never timed.
    """

    run: Callable[[], Any]
    prepare: Callable[[], None]

    def __call__(self) -> Any:
        """Prepare, and launch."""
        self.prepare()
        return self.run()


@dataclass(frozen=True, kw_only=True)
class Executable:
    """A config that can be launched, with any arguments of the dtypes, strides and alignments it was compiled for.

    Attributes:
        config: Tunables and launch options.
        bind: From arguments to a call that launches the config with them, and returns what the launch returns; a
            `PreparedCall` if something must be done before each launch. It does no work of the launch: on a CPU every
            sample is taken of a call that was bound anew.
        outputs: Names of the arguments that a launch writes; empty if it returns its result.
        resources: What the compiler made of the config; None where the backend has no compiler.
        compile_s: Seconds that the compiler took; None where the backend has no compiler.
        tf32: Whether the code multiplies in TF32; None where the backend cannot tell.
        atomics: Whether the code has atomic operations, so that equal launches may give different bits; None where the
            backend cannot tell.
        key: Names the whole program: machine code, shared memory, grid and plain arguments. Executables of one kernel
            with equal keys do the same, so that one measurement serves both. None where the backend cannot tell.
        compilation: Names what the compiler was given: source, types, alignment, constants and options. A launch with
            arguments of an equal one compiles nothing. None where the backend has no compiler, or cannot tell.
        suspect: Asked where a result is wrong: the compiler's fault that the code may show, in words; empty if none.
    """

    config: Config
    bind: Callable[[Arguments], Callable[[], Any]]
    outputs: tuple[str, ...] = ()
    resources: Resources | None = None
    compile_s: float | None = None
    tf32: bool | None = None
    atomics: bool | None = None
    key: str | None = None
    compilation: str | None = None
    suspect: Callable[[], str] = lambda: ""

    @property
    def machine_code(self) -> str | None:
        """Fingerprint of the machine code; None where it is not known."""
        return self.resources.binary if self.resources else None

    def launch(self, arguments: Arguments) -> Any:
        """Launch once on the current stream; returns what the launch returns."""
        return self.bind(arguments)()


class Kernel(Protocol):
    """A computation that can be launched in several configs."""

    @property
    def name(self) -> str:
        """The kernel's name, which is the same in every process."""

    @property
    def identity(self) -> Mapping[str, str]:
        """Facts that must be equal for a stored winner to hold: fingerprint of the source, version of the compiler."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the arguments that some config writes; empty if every config returns its result."""

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise a typed error if these tunables and arguments cannot be passed together; does no work."""

    def compile(self, config: Config, arguments: Arguments) -> Executable:
        """Compile without launching. Raises `CandidateError` if the config cannot be compiled or loaded."""


@runtime_checkable
class CompilesAtLaunch(Protocol):
    """A kernel whose configs need not be compiled before they are launched."""

    def executable(self, config: Config) -> Executable:
        """A config that is compiled when it is first launched with arguments of a kind."""


@runtime_checkable
class MayCrash(Protocol):
    """A kernel that runs machine code which can end its process or hang; it is tried in a process of its own."""

    @property
    def process_imports(self) -> tuple[str, ...]:
        """Packages that a process imports before it can run the kernel."""


@runtime_checkable
class CompilesAhead(Protocol):
    """A kernel whose configs can be compiled by processes that have no GPU."""

    @property
    def compiled_ahead(self) -> Compilable | None:
        """The kernel as it is compiled; None if there is nothing to compile, as for an interpreted kernel."""


class Compilable(Protocol):
    """A kernel as processes without a GPU compile it."""

    @property
    def name(self) -> str:
        """The kernel's name, for errors."""

    @property
    def cache_key(self) -> str:
        """Names the source as Triton does; it must be equal in both processes, or a launch finds no binary."""

    @property
    def interpreted(self) -> bool:
        """Tell whether it runs as Python, as under `TRITON_INTERPRET`, so that there is nothing to compile."""

    @property
    def compile_imports(self) -> str:
        """The module that a process imports before it compiles: one of torch's if arguments must be torch's tensors.

        They have no memory there. It is empty where plain stand-ins serve.
        """

    @property
    def parameter_names(self) -> Sequence[str | None]:
        """The names in calling order; None for a parameter that cannot be passed by name."""

    @property
    def parsed(self) -> Any:
        """The JIT function whose text the free rules read; None if no single one decides."""

    @property
    def without_grid(self) -> Compilable:
        """The same kernel where its grid cannot be sent."""

    def lowered(self, config: Config, arguments: Arguments) -> Sequence[Any]:
        """Triton's compiled kernels of one launch; nothing is loaded or launched.

        Raises:
            TargetError: This kernel cannot be compiled without being launched, with the reason.
            Exception: Whatever Triton raises.
        """

    def program_key(self, config: Config, arguments: Arguments, resources: Resources | None) -> str | None:
        """Names all that a launch of a compiled config is; None where it is not known."""
