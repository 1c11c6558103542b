"""The implementations of a choice: where each applies, and the space of those that take part."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from triton_ops.backend import Arguments, CandidateError, Executable, FunctionKernel, Operation, Protection
from triton_ops.base import Frozen, cached_property, fingerprint, require
from triton_ops.dispatch.ladder import ladder_of
from triton_ops.dispatch.operations import answered, executable_of
from triton_ops.exceptions import KernelTypeError, TritonKernelError, TuningFailedError, UnknownTunableError
from triton_ops.request import TuneProblem
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Status, TuningResult

Applies = Callable[..., Any]
"""Called with the arguments of a call; returns True, or why not: a text, or a pair of False and a text.

Before a call, as for a problem by shape, tensors come as `Described`: shape, dtype, strides and device without memory.
"""


@dataclass(frozen=True)
class Implementation:
    """One implementation of an operation.

    Attributes:
        function: Called as the operation is. None calls the kernel of `operation`.
        applies: Says whether it serves a call, and why not; None serves all.
        operation: The kernel with its config space, where the implementation has one: it is tuned first, for each
            problem, and its winner is what takes part. The function is then called with `config=`.
        values: From the arguments of a call to those of the operation's kernel by name, outputs made anew among them;
            None if both take the same arguments by the same names.
        returns: Whether the function returns what the others write. The result is then copied to where it belongs.
        gradient: Whether a gradient can be recorded through it. Where one is, others do not apply.

    Raises:
        KernelTypeError: There is neither a function nor an operation, or one of the fields is not callable.
    """

    function: Callable[..., Any] | None = None
    _: KW_ONLY
    applies: Applies | None = None
    operation: Operation | None = None
    values: Callable[..., Mapping[str, Any]] | None = None
    returns: bool = False
    gradient: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.function, Operation):
            object.__setattr__(self, "operation", self.function)
            object.__setattr__(self, "function", None)
        if self.operation is not None and not isinstance(self.operation, Operation):
            raise KernelTypeError(f"operation is {self.operation!r}, and no Operation", hint="leave it out")
        if self.function is None and self.operation is None:
            raise KernelTypeError("an implementation has neither a function nor an operation", hint="give a callable")
        if self.function is not None:
            FunctionKernel(self.function)  # checks that a call does the work
        for name in ("applies", "values"):
            if not callable(getattr(self, name) or len):
                message = f"{name} is {getattr(self, name)!r}, which is not callable"
                raise KernelTypeError(message, hint="give a function")

    @property
    def identity(self) -> Mapping[str, str]:
        """Values that must be equal for a stored winner to hold: source, and versions."""
        own = {} if self.operation is None else self.operation.kernel.identity
        if self.function is None:
            return own
        identity = FunctionKernel(self.function).identity
        return {**own, **identity, "source": f"{identity['source']} {own.get('source', '')}".strip()}

    def why_not(self, arguments: Arguments) -> str | None:
        """Reason for which it does not apply to a call; None if it does. A predicate that raises says no."""
        if self.applies is None:
            return None
        try:
            answer = self.applies(*arguments.positional, **arguments.keyword)
        except Exception as error:  # noqa: BLE001 - the user's predicate
            return f"its predicate raised {CandidateError.one_line(error)}"
        ok, reason = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
        if isinstance(ok, str):
            return ok
        return None if ok is None or bool(ok) else str(reason) or "its predicate says that it does not apply"

    def operation_values(self, arguments: Arguments) -> Mapping[str, object]:
        """The arguments of the operation's kernel for a call, by name."""
        if self.values is not None:
            return self.values(*arguments.positional, **arguments.keyword)
        return arguments.by_name(self.operation.kernel).keyword if self.operation is not None else arguments.keyword

    def run(self, tiles: Mapping[str, object]) -> Callable[..., object]:
        """The callable that a call of this implementation comes to, with the config `tiles` of its operation."""
        if self.operation is None:
            assert self.function is not None
            return self.function
        if self.function is not None:
            return partial(self.function, config=Config(tiles))
        return partial(self._launched, Config(tiles))

    def _launched(self, tiles: Config, *args: object, **kwargs: object) -> object:
        """Launch the operation's kernel; returns its outputs if they were made for this call, else what it returns."""
        assert self.operation is not None
        values = dict(self.operation_values(Arguments(args, kwargs)))
        executable = executable_of(self.operation, tiles, values)
        output = executable.launch(Arguments(keyword=values))
        if self.values is None or not executable.outputs:
            return output
        outputs = tuple(values[name] for name in executable.outputs)
        return outputs[0] if len(outputs) == 1 else outputs


def as_implementation(implementation: Any, **more: Any) -> Implementation:
    """Make an implementation of what a caller gives: one, a callable, or an `Operation`; raises KernelTypeError."""
    if isinstance(implementation, Implementation):
        return replace(implementation, **more) if more else implementation
    return Implementation(implementation, **more)


def in_order(parameters: Sequence[str | None], arguments: Arguments) -> Arguments:
    """Arguments that came by name in their places again, as far as places have no gap: names differ."""
    keyword, positional = dict(arguments.keyword), list(arguments.positional)
    for name in parameters[len(positional) :]:
        if name not in keyword:
            break
        positional.append(keyword.pop(name))
    return Arguments(tuple(positional), keyword)


_CALLS, _LOOKS = 2, 3


def kept_by_a_call(call: Callable[[], object], device: str) -> int:
    """Bytes of tensors that every call keeps; 0 if none does. The call must have been warmed up.

    On a GPU the allocator of torch is asked. On a CPU the tensors that Python knows are added up, each storage once.

    Cost: six calls. On a CPU two calls, after which no new tensor is alive; only where one is, six further calls, and
    four walks over the objects of the process, tens of milliseconds to seconds each.
    """
    on_gpu = device.startswith("cuda")
    if not on_gpu and _leaves_no_tensor(call):
        return 0
    allocated_bytes: Any = require("torch", "looking for leaks").cuda.memory_allocated if on_gpu else _on_cpu
    bytes_held = [allocated_bytes(device)]
    for _ in range(_LOOKS):
        for _ in range(_CALLS):
            call()
        bytes_held.append(allocated_bytes(device))
    grown = [after - before for before, after in itertools.pairwise(bytes_held)]
    # By the least growth: a cache that is filled grows in one of the looks, and a leak in each.
    return min(grown) // _CALLS if min(grown) > 0 else 0


def _leaves_no_tensor(call: Callable[[], object]) -> bool:
    """Tell whether no tensor that a few calls made is alive after them: Python's youngest objects are looked at alone.

    While nothing is collected, what is made is among the youngest. A collection meanwhile, by the call or by another
    thread, leaves the question open.
    """
    gc.collect(0)
    enabled, collections = gc.isenabled(), _collections()
    gc.disable()
    try:
        for _ in range(_CALLS):
            call()
        return collections == _collections() and not any(map(_is_a_tensor, gc.get_objects(generation=0)))
    finally:
        if enabled:
            gc.enable()


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def _is_a_tensor(it: object) -> bool:
    kind = type(it)  # `isinstance` would ask objects for their class, which wakes lazy modules
    return kind.__name__ in ("Tensor", "Parameter") and Arguments.is_tensor(it)


def _on_cpu(_device: str) -> int:
    gc.collect()
    storages: dict[int, int] = {}
    for each in gc.get_objects():
        if _is_a_tensor(each) and str(each.layout) == "torch.strided":
            try:
                storage = each.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
            except (RuntimeError, NotImplementedError):  # a tensor without memory, such as a fake one
                continue
    return sum(storages.values())


IMPLEMENTATION, TILES = "implementation", "tiles"
TilesOf = Callable[[Implementation, Mapping[str, Any]], Config]
"""From an implementation with an operation, and its kernel's arguments by name, to the config that takes part."""
_WARM_UPS = 3  # what is compiled at its first call may record a graph at its third


@dataclass(frozen=True)
class ChoiceKernel:
    """A computation with several implementations. A config has the name of one, and the config of its own operation.

    The first implementation is what runs untuned, if it applies. `parameter_names` are those of what may be given by
    position, None for one without; `outputs` are written by every implementation, none if they return their results.
    """

    name: str
    implementations: Mapping[str, Implementation]
    parameter_names: tuple[str | None, ...] = ()
    outputs: tuple[str, ...] = ()
    _tried: set[str] = field(default_factory=set, compare=False, repr=False)
    _forms: dict[str, str] = field(default_factory=dict, compare=False, repr=False)  # what each has returned, in order

    def __post_init__(self) -> None:
        Frozen.fields(self, "implementations")

    @property
    def identity(self) -> Mapping[str, str]:
        """Sources of all implementations with their names, and the versions of what they use."""
        each = {name: it.identity for name, it in self.implementations.items()}
        unknown = [f"{name}: {identity['unknown']}" for name, identity in each.items() if "unknown" in identity]
        versions = {key: value for identity in each.values() for key, value in identity.items()}
        sources = {"source": fingerprint([[name, identity.get("source", "")] for name, identity in each.items()])}
        return {**versions, **sources, **({"unknown": "; ".join(unknown)} if unknown else {})}

    @property
    def process_imports(self) -> tuple[str, ...]:
        """Torch: implementations may end a process, and are tried on a GPU in one of their own."""
        return ("torch",)

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:  # noqa: ARG002 - the role's signature
        """Raise UnknownTunableError unless the tunables are those of a choice."""
        if strange := [name for name in tunables if name not in (IMPLEMENTATION, TILES)]:
            raise UnknownTunableError(
                f"{self.name} has no tunable {', '.join(strange)}; it has {IMPLEMENTATION}, and {TILES} for what the "
                "implementation itself is tuned by"
            )

    def compile(self, config: Config, arguments: Arguments) -> Executable:
        """The implementation that the config names, after its calls on copies of the arguments; raises CandidateError.

        What compiles at its first calls has then done so, and what keeps memory at every call is known.
        """
        run = self.call(config)
        if config.text not in self._tried:
            self._try(str(config[IMPLEMENTATION]), run, Protection.private_copy(arguments))
            self._tried.add(config.text)
        return Executable(config=config, bind=partial(self._bound, run), outputs=self.outputs)

    def call(self, config: Mapping[str, Any]) -> Callable[..., object]:
        """The call that is made: the implementation's function, with its operation's config; raises CandidateError."""
        if (name := config[IMPLEMENTATION]) not in self.implementations:
            names = ", ".join(self.implementations)
            raise CandidateError(Status.RUNTIME, f"{self.name} has no implementation {name!r}; it has {names}")
        implementation = self.implementations[name]
        run = implementation.run(dict(config.get(TILES, ())))
        return partial(self._written, run) if implementation.returns and self.outputs else run

    def known(self, arguments: Arguments, records: bool, folder: str | Path | None) -> ChoiceSpace:
        """The space of a call, described or not, with the configs that the ladder answers; raises TuningFailedError."""

        def tiles(implementation: Implementation, values: Mapping[str, object]) -> Config:
            assert implementation.operation is not None
            request = TuneProblem(target=implementation.operation, kwargs=values).request()
            return answered(implementation.operation, request, ladder_of(folder), near=True).found.config

        return self._space(arguments, records, tiles)

    def raced(
        self, arguments: Arguments, records: bool, tune: Callable[..., TuningResult], options: Mapping[str, object]
    ) -> ChoiceSpace:
        """The space of a tune, by tunes of operations with its options, or their records; raises TuningFailedError."""

        def tiles(implementation: Implementation, values: Mapping[str, object]) -> Config:
            result = tune(implementation.operation, kwargs=values, **options)
            if result.stopped == "interrupted":  # Ctrl-C ends the whole
                raise KeyboardInterrupt
            return Config(result.best_config)

        return self._space(arguments, records, tiles)

    def _space(self, arguments: Arguments, records: bool, tiles_of: TilesOf) -> ChoiceSpace:
        placed, every = in_order(self.parameter_names, arguments), self.implementations
        taking: dict[str, Config] = {}
        refusals: dict[str, str] = {}
        for name, implementation in every.items():
            answer: Config | str | None = implementation.why_not(placed)
            if answer is None and records and not implementation.gradient:
                answer = "a gradient is recorded, and it has none"
            if answer is None:
                answer = Config() if implementation.operation is None else _asked(implementation, placed, tiles_of)
            if isinstance(answer, Config):
                taking[name] = answer
            else:
                refusals[name] = answer
        if not taking:
            raise self._nothing(refusals)
        tiled = any(each.operation is not None for each in every.values())  # of applicable ones or not
        listed = [
            Config({IMPLEMENTATION: name, **({TILES: tuple(configs.items())} if tiled else {})})
            for name, configs in taking.items()
        ]
        plain = ConfigSpace.from_configs(listed)
        return ChoiceSpace(plain.tunables, (), listed[0], plain.listed, refusals, partial(self._why_no_tiles, placed))

    def _why_no_tiles(self, placed: Arguments, name: str, tiles: Config) -> str | None:
        implementation = self.implementations[name]
        if implementation.operation is None:
            return f"{name} has no operation that could take ({tiles})" if tiles else None
        request = TuneProblem(target=implementation.operation, kwargs=implementation.operation_values(placed)).request()
        return implementation.operation.space_for(request.problem).why_not(tiles)

    def _nothing(self, refusals: Mapping[str, str]) -> TuningFailedError:
        reasons = "; ".join(f"{name}: {why}" for name, why in refusals.items())
        failures = [({IMPLEMENTATION: name}, f"constraint: {why}") for name, why in refusals.items()]
        message = f"no implementation of {self.name} applies: {reasons}"
        hint = "register one that applies to everything"
        return TuningFailedError(message, self.name, 0, reasons, failures, hint=hint)

    def _bound(self, run: Callable[..., object], arguments: Arguments) -> Callable[[], object]:
        placed = in_order(self.parameter_names, arguments)
        return partial(run, *placed.positional, **placed.keyword)

    def _written(self, run: Callable[..., object], *args: object, **kwargs: object) -> None:
        """Call what returns its results, and copy them to where the other implementations write theirs."""
        values: dict[Any, Any] = {**dict(zip(self.parameter_names, args, strict=False)), **kwargs}
        places = [values[name] for name in self.outputs]
        output = run(*args, **kwargs)
        results = output if isinstance(output, (tuple, list)) else (output,)
        if len(results) != len(places):
            raise ValueError(f"it returns {len(results)} results, and {len(places)} are written by the others")
        for place, result in zip(places, results, strict=True):
            if not Arguments.is_tensor(result) or result.shape != place.shape or result.dtype != place.dtype:
                form = f"{tuple(result.shape)} {result.dtype}" if Arguments.is_tensor(result) else type(result).__name__
                raise ValueError(f"it returns {form} for an output of {tuple(place.shape)} {place.dtype}")
            place.copy_(result)

    def _try(self, name: str, run: Callable[..., object], arguments: Arguments) -> None:
        call = self._bound(run, arguments)
        try:
            for _ in range(_WARM_UPS):
                form = _form(call())
            place = next((str(tensor.device) for tensor in arguments.tensors()), None)
            bytes_held = 0 if place is None else kept_by_a_call(call, place)
        except CandidateError:
            raise
        except Exception as error:
            raise CandidateError(Status.RUNTIME, f"{name} raised {CandidateError.one_line(error)}") from error
        if bytes_held:
            raise CandidateError(Status.WRONG, f"{name} leaks: every call keeps {bytes_held:,} more bytes of tensors")
        first, first_form = next(iter(self._forms.items()), (name, form))
        if form != first_form and not self.outputs:
            raise CandidateError(Status.WRONG, f"{name} returns {form}, and {first} returns {first_form}")
        self._forms[name] = form


def _form(result: object) -> str:
    if Arguments.is_tensor(result):
        return "a tensor"
    if isinstance(result, (tuple, list)):
        return f"a tuple or list of {len(result)}"
    return f"a {type(result).__name__}"


@dataclass(frozen=True)
class ChoiceSpace(ConfigSpace):
    """One config for each implementation that takes part. That of a record may have other valid tiles."""

    refusals: Mapping[str, str] = field(default_factory=dict)
    why_no_tiles: Callable[[str, Config], str | None] = lambda _name, _tiles: None

    @property
    def remarks(self) -> tuple[str, ...]:
        """The implementations that do not take part."""
        return tuple(f"{name}: does not apply: {why}" for name, why in self.refusals.items())

    @cached_property
    def fingerprint(self) -> str:
        """Names what was to choose from: tiles do not count, since a later tune of them leaves the choice open."""
        return fingerprint([config[IMPLEMENTATION] for config in self.listed or ()])

    def why_not(self, config: Config) -> str | None:
        """Reason for which `config` is not in this space; None if it is."""
        if set(config) != set(self.tunables):
            return f"names {sorted(config)} instead of {sorted(self.tunables)}"
        if (name := str(config[IMPLEMENTATION])) in self.refusals:
            return f"{name} does not apply: {self.refusals[name]}"
        if name not in (names := [each[IMPLEMENTATION] for each in self.listed or ()]):
            return f"there is no implementation {name}; there are {', '.join(map(str, names))}"
        return self.why_no_tiles(name, tiles_of(config))


def tiles_of(config: Mapping[str, Any]) -> Config:
    """The config of the operation in a choice; empty if there is none."""
    return Config(dict(config.get(TILES, ())))


def _asked(implementation: Implementation, placed: Arguments, tiles_of: TilesOf) -> Config | str:
    """The config of an implementation's operation; a text if there is none, with the reason."""
    try:
        return tiles_of(implementation, implementation.operation_values(placed))
    except TritonKernelError as error:
        return f"its operation cannot be used: {error.message.partition(chr(10))[0]}"
    except Exception as error:  # noqa: BLE001 - the user's `values`
        return f"its `values` raised {CandidateError.one_line(error)}"
