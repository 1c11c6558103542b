"""Kernels written in Triton: how a config of a JIT function is compiled and launched.

Facts used, from Triton 3.6 to 3.9: `JITFunction.arg_names` and `.params`; `.warmup(…, grid=…)` compiles with the real
specialisation of the arguments and does not launch; a kernel whose `global_scratch_size` is not 0
asks the allocator when it is launched; a `triton.Config` tells its values in `all_kwargs()`, and its `pre_hook` is
called with all arguments and values by name; a decorator has what is below it in `fn`, an `Autotuner` its configs in
`configs`, `Heuristics` its functions in `values`, and `run` calls the `run` below with what it added. Under
`TRITON_INTERPRET=1` a kernel is an `InterpretedFunction` and nothing is compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from triton_ops.backend.callables import OVERRIDE, Source, is_triton_config, triton_identity
from triton_ops.backend.descriptors import BlockRule, check_declared, check_in_kernel, descriptor
from triton_ops.backend.origins import Layers, is_gluon, missing_parameters, without_autotune
from triton_ops.backend.portable import settled
from triton_ops.backend.roles import Arguments, CompiledByTriton, Executable, PreparedCall
from triton_ops.backend.triton_process import ScratchAllocator, TritonProcess
from triton_ops.base import Frozen, require
from triton_ops.exceptions import (
    ConfigCollisionError,
    ConfigValueError,
    DeviceError,
    KernelTypeError,
    UnknownTunableError,
)
from triton_ops.space import LAUNCH_OPTIONS, Config

Hook: TypeAlias = Callable[[dict[str, Any]], Any]


def hook_of(configs: Sequence[Any]) -> Hook | None:
    """The hook of the configs, each with its own if they differ; None if no config has one."""
    hooks = [(config, config.pre_hook) for config in configs if is_triton_config(config) and config.pre_hook]
    if not hooks:
        return None
    first = hooks[0][1]
    if len(hooks) == len(configs) and all(hook is first for _, hook in hooks):
        hook: Hook = first
        return hook
    return HookByConfig(tuple((Config(TritonKernel.values_of(config)), hook) for config, hook in hooks))


@dataclass(frozen=True)
class HookByConfig:
    """Calls the hook of the config that has the values it is called with; none if there is no such config.

    A launch option that no config sets does not appear in a space, nor in the values.
    """

    hooks: Sequence[tuple[Config, Hook]]

    def __call__(self, values: dict[str, Any]) -> None:
        """Call the hook of the config that these arguments and values belong to."""
        for config, hook in self.hooks:
            if all(values[name] == value for name, value in config.items() if name in values):
                hook(values)
                return


def both_hooks(first: Hook | None, second: Hook | None) -> Hook | None:
    """One hook that calls both, each once, or the one that there is."""
    if first is None or second is None or first is second:
        return first or second
    return HooksInOrder((first, second))


@dataclass(frozen=True)
class HooksInOrder:
    """Calls several hooks, one after the other."""

    hooks: tuple[Hook, ...]

    def __call__(self, values: dict[str, Any]) -> None:
        """Call each with the arguments and values by name."""
        for hook in self.hooks:
            hook(values)


def given_to_hook(arguments: Mapping[str, object], grid: object, config: Config) -> dict[str, Any]:
    """The argument of a hook before a launch, as by Triton."""
    return {**arguments, "grid": grid, "warmup": False, **config}


def with_hook_run(hook: Hook, arguments: Arguments, grid: object, config: Config) -> tuple[Arguments, bool]:
    """The arguments as a hook leaves them, and whether it writes tensors; their memory stays as it is.

    The hook runs on tensors without memory; what it does to descriptors is then taken over.
    """
    torch = require("torch", "running a hook")
    substitutes = arguments.map(lambda tensor: torch.empty_like(tensor, device="meta"))
    # torch counts the writes to a tensor in `_version`, also where it has no memory.
    before = [tensor._version for tensor in substitutes.tensors()]
    hook(given_to_hook(substitutes.keyword, grid, config))
    writes = before != [tensor._version for tensor in substitutes.tensors()]
    memory = iter(list(arguments.tensors()))
    return substitutes.map(lambda _: next(memory)), writes


Grid = Callable[[Mapping[str, Any]], tuple[int, ...]]


@dataclass(frozen=True)
class TritonKernel(CompiledByTriton):
    """A `@triton.jit` function with its grid.

    Attributes:
        function: The JIT function, with or without `@triton.heuristics` and an `autotune` of Triton's or this package's
            around it, in any order. Of an `autotune` the list is the space where none is given; `reset_to_zero` and
            `restore_value` are the decorator's unless they are given.
        grid: From the arguments and the config's values, by name, to the launch grid, as Triton's grid functions.
            It must be a function: a grid that does not follow a tuned block size launches the wrong number of programs.
        outputs: Names of the arguments that the kernel writes.
        label: Its name in records; None takes `module:function`.
        descriptors: For each parameter that takes a tensor descriptor made on the host, its block shape: extents and
            names of parameters, or a function of what the grid is given. The argument is the tensor itself, and each
            config makes its own descriptor of it. The block shape of a descriptor among the arguments stays as it is,
            unless `pre_hook` changes it.
        made: From what the grid is given to further arguments of the launch, such as descriptors of transposed
            matrices. A parameter that it fills for some configs only has a default.
        pre_hook: Called with arguments and config by name before every launch, as a `triton.Config`'s is, `grid` (this
            kernel's) and `warmup` among them; what it does is not timed. A space of `triton.Config`s brings its own,
            which are called first.
        reset_to_zero: Names of the arguments that are filled with zeros before every launch; that is not timed.
        restore_value: Names of the arguments that the kernel changes in place. Naming them is not needed: every input
            that a launch changes is restored before the next.
        overrides: Files that the configs name as `ir_override`; their content is part of the identity.
        grid_of_call: Whether the grid is that of one call, which is no part of what the kernel is.
        offered: The configs of an `autotune` around the function, until a space takes them.

    Raises:
        KernelTypeError: `function` is no JIT function, or has several decorators that tune, or one with hooks or with
            pruning of its own; `grid` is not callable, or a name is no parameter.
    """

    LAUNCH_OPTIONS: ClassVar[frozenset[str]] = frozenset(LAUNCH_OPTIONS)

    function: Any
    grid: Grid
    outputs: tuple[str, ...] = ()
    label: str | None = None
    _: KW_ONLY
    descriptors: Mapping[str, BlockRule] = field(default_factory=dict, hash=False)
    made: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    pre_hook: Callable[[dict[str, Any]], Any] | None = None
    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    grid_of_call: bool = False
    offered: Any = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        self._take_tuners_out()
        Frozen.fields(self, "descriptors")
        if not (hasattr(self.function, "arg_names") and hasattr(self.function, "run")):
            raise KernelTypeError(f"{self.function!r} is no Triton kernel", hint="decorate it with @triton.jit")
        if not callable(self.grid):
            raise KernelTypeError(
                f"the grid of {self.name} is {self.grid!r}; it must be a function of the config",
                hint='write lambda meta: (triton.cdiv(n, meta["BLOCK"]),)',
            )
        names_by_use = {"to be an output": self.outputs, "to be described": self.descriptors}
        names_by_use |= {"to be reset to zero": self.reset_to_zero, "to be restored": self.restore_value}
        for what, names in names_by_use.items():
            if strange := [name for name in names if name not in self.function.arg_names]:
                raise KernelTypeError(f"{self.name} has no parameter {', '.join(strange)} {what}")
        if both := [name for name in self.restore_value if name in self.outputs]:
            raise KernelTypeError(
                f"{', '.join(both)} of {self.name} is an output and is restored; outputs hold nothing before a launch",
                hint="leave it out of the outputs",
            )

    def _take_tuners_out(self) -> None:
        """Take an `autotune` out of the function, and keep what it says of arguments and configs."""
        tuners = [layer for layer in Layers.of(self.function) if hasattr(layer, "configs")]
        if len(tuners) > 1:
            message = f"{self.name} has {len(tuners)} decorators that tune, one around the other"
            raise KernelTypeError(message, hint="leave one of them, with the configs of both")
        for tuner in tuners:
            if getattr(tuner, "user_defined_pre_hook", False) or getattr(tuner, "user_defined_post_hook", False):
                hint = "give TritonKernel the function with its heuristics alone, and the hook as pre_hook"
                raise KernelTypeError(f"the @triton.autotune of {self.name} has a hook of its own", hint=hint)
            prunes = Layers.prunes(tuner)
            if prunes and tuner is self.function:
                message = f"the @triton.autotune of {self.name} leaves configs out by a function of its own"
                hint = "give the function below it, kernel.fn, and the configs that are left as the space"
                raise KernelTypeError(message, hint=hint)
            for name in ("reset_to_zero", "restore_value"):
                object.__setattr__(self, name, getattr(self, name) or tuple(getattr(tuner, name, ())))
            space = getattr(getattr(tuner, "options", None), "space", None)  # of this package's decorator
            listed = () if prunes else tuple(tuner.configs)
            object.__setattr__(self, "offered", listed if space is None else space)
        object.__setattr__(self, "function", without_autotune(self.function))

    @property
    def name(self) -> str:
        """`module:function`, unless labelled."""
        inner = Layers.unwrap(self.function)
        return self.label or f"{inner.__module__}:{inner.__name__}"

    @property
    def interpreted(self) -> bool:
        """Tell whether it runs as Python, as under `TRITON_INTERPRET`: then there is nothing to compile."""
        return TritonProcess.is_interpreted(self.function)

    @property
    def sources(self) -> dict[str, Source]:
        """The kernel, its grid, and what else decides what a launch does, with all they refer to."""
        parts = {
            "reset": self.reset_to_zero,
            "pre_hook": self.pre_hook,
            "descriptors": dict(self.descriptors),
            "made": self.made,
            "grid": None if self.grid_of_call else self.grid,
        }
        return {name: Source.of(part) for name, part in {"source": self.function, **parts}.items() if part}

    @property
    def identity(self) -> Mapping[str, str]:
        """Fingerprints of the kernel and of its grid with all they refer to, and what compiles it."""
        return triton_identity(self.sources, interpreted=self.interpreted, files=self.overrides)

    @property
    def cache_key(self) -> str:
        """Triton's name for the source with all that it calls; the names of compiled binaries are made from it."""
        return str(settled(Layers.of(self.function)[-1]).cache_key)

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise unless tunables and arguments together are what the kernel takes.

        Raises:
            ConfigCollisionError: A tunable is an argument as well.
            UnknownTunableError: A tunable is neither a parameter nor a launch option.
            KernelTypeError: A parameter without a default gets no value, or an argument is no parameter.
            ShapeMismatchError: An argument cannot be described by a tensor descriptor as it is to be.
            DeviceError: The tensors are on a CPU, where only an interpreted kernel runs, or are arrays of NumPy.
        """
        names = list(tunables)
        self._check_names(names, {*arguments.keyword, *self.parameter_names[: len(arguments.positional)]})
        values = self.by_name(arguments)
        configs = tunables if isinstance(tunables, Mapping) else names
        if missing := missing_parameters(self.function, configs, values, self.made):
            message = f"{self.name} needs a value for {', '.join(missing)}"
            raise KernelTypeError(message, hint="pass it as an argument, or add it to the config space")
        if unknown := [name for name in values if name not in {*self.parameter_names, *self.LAUNCH_OPTIONS}]:
            hint = f"it has {', '.join(self.parameter_names)}"
            raise KernelTypeError(f"{self.name} has no parameter {', '.join(unknown)}", hint=hint)
        check_declared(self.name, self.descriptors, values)
        check_in_kernel(self.name, Layers.of(self.function)[-1], values)
        Arguments.check_for_triton(self.name, values)
        if {tensor.device.type for tensor in arguments.tensors()} == {"cpu"} and not self.interpreted:
            message = f"{self.name} is a Triton kernel, which runs on a GPU, and the tensors are on a CPU"
            hint = "move them to a GPU: tensor.cuda(); or run it as Python with TRITON_INTERPRET=1"
            raise DeviceError(message, "cuda", "cpu", hint=hint)

    def _check_names(self, names: list[str], arguments: set[str]) -> None:
        order = self.parameter_names
        if clash := [name for name in names if name in arguments]:
            message = f"{', '.join(map(repr, clash))} is both a tunable and an argument of {self.name}"
            raise ConfigCollisionError(message, hint="leave it out of the arguments, or out of the space")
        if unknown := [name for name in names if name not in order and name not in self.LAUNCH_OPTIONS]:
            raise UnknownTunableError(
                f"{self.name} has no parameter {', '.join(map(repr, unknown))}; tunable are "
                f"{', '.join(name for name in order if name not in arguments)} and the launch options "
                f"{', '.join(sorted(self.LAUNCH_OPTIONS))}",
                hint="correct the tunable's name",
            )
        results = Layers.heuristics(self.function)
        if clash := [name for name in (*arguments, *names) if name in results]:
            message = f"{', '.join(map(repr, clash))} is computed by the @triton.heuristics of {self.name}"
            hint = "leave it out of the arguments and the space, or take it out of the heuristics"
            raise ConfigCollisionError(message, hint=hint)

    @property
    def parameter_names(self) -> list[str]:
        """The JIT function's parameters in calling order."""
        return list(self.function.arg_names)

    @property
    def compile_imports(self) -> str:
        """Torch where code of the user's, heuristics or a hook, may ask a tensor anything when a config is compiled."""
        return "torch" if len(Layers.of(self.function)) > 1 or self.pre_hook is not None else ""

    @property
    def without_grid(self) -> TritonKernel:
        """The same kernel for processes that only compile, where the grid cannot go."""
        return replace(self, grid=_no_grid)

    @property
    def alone(self) -> tuple[Any, Grid] | None:
        """The JIT function and the grid, if a call with a config asks for the grid and launches and does no more."""
        more = self.descriptors or self.made or self.pre_hook or self.reset_to_zero or Layers.heuristics(self.function)
        return None if more or self.interpreted else (self.function, self.grid)

    @property
    def parsed(self) -> Any:
        """The JIT function whose text the free rules read."""
        return self.function

    def with_configs(self, configs: Iterable[object]) -> TritonKernel:
        """This kernel with what a list of `triton.Config`s brings: their `pre_hook`s, and the files they override.

        As in Triton, a config's hook is called before the kernel's own.
        """
        all_configs = list(configs)
        hook = both_hooks(hook_of(all_configs), self.pre_hook)
        overrides = {str(one[OVERRIDE]) for one in map(TritonKernel.values_of, all_configs) if one.get(OVERRIDE)}
        return replace(self, pre_hook=hook, overrides=tuple(sorted(overrides)))

    def lowered(self, config: Config, arguments: Arguments) -> list[Any]:
        """Triton's compiled kernel for these arguments' types and alignment; nothing is loaded or launched."""
        own_arguments, _ = self._own_arguments(config, arguments)
        settled(Layers.of(self.function)[-1])
        grid = functools.partial(self._grid, config, arguments)  # for those who ask: compiling does not
        args, keywords = Layers.placed(self.function, own_arguments.positional, {**own_arguments.keyword, **config})
        kernel = self.function.warmup(*args, grid=grid, **keywords)
        # In Triton's `AsyncCompileMode` it is a `FutureKernel`, of which 3.6 has no attributes but `result`.
        return [kernel.result() if hasattr(kernel, "result") else kernel]

    def compile(self, config: Config, arguments: Arguments) -> Executable:
        """Compile for these arguments' types and alignment, and load the binary; nothing is launched.

        Cost: 0.1 to a few seconds for a new binary, about a millisecond from Triton's disk cache.

        Raises:
            CandidateError: `compile` if the compiler refused it, `resources` if the device cannot hold it.
            CacheError: The compiler cannot write its files, as on a full disk.
        """
        if self.interpreted:
            return self.executable(config)
        (kernel,), facts = self.loaded(config, arguments)
        executable = self.executable(config, scratch=bool(getattr(kernel.metadata, "global_scratch_size", 1)))
        return replace(executable, key=self.program_key(config, arguments, facts["resources"]), **facts)

    def executable(self, config: Config, scratch: bool = True) -> Executable:
        """A config that Triton itself compiles at its first launch, which may ask for memory if `scratch` is true."""

        def bind(arguments: Arguments) -> Callable[[], object]:
            grid = functools.partial(self._grid, config, arguments)
            own_arguments, writes = self._own_arguments(config, arguments)
            args, keywords = Layers.placed(self.function, own_arguments.positional, {**own_arguments.keyword, **config})
            launcher = TritonProcess.launcher_of(self.function)
            run: Callable[[], Any] = functools.partial(launcher, *args, grid=grid, warmup=False, **keywords)
            prepare = self._preparation(config, own_arguments, writes)
            launch = ScratchAllocator.around(run) if scratch else run

            def launched() -> None:
                launch()  # the compiled kernel that Triton returns is no result of the computation

            return launched if prepare is None else PreparedCall(launched, prepare)

        return Executable(config=config, bind=bind, outputs=self.outputs)

    def _own_arguments(self, config: Config, arguments: Arguments) -> tuple[Arguments, bool]:
        """The arguments as a launch takes them, with their own descriptors, and whether the hook writes tensors."""
        if not (self.descriptors or self.pre_hook or self.made):
            return arguments, False
        values = self.by_name(arguments)
        if self.made is not None:
            values |= self.made({**self.defaults, **values, **config})
        meta, gluon = {**values, **config}, is_gluon(self.function)
        described = {name: rule for name, rule in self.descriptors.items() if name in values}
        values |= {name: descriptor(values[name], rule, meta, gluon=gluon) for name, rule in described.items()}
        own_arguments = Arguments(keyword=values)
        if self.pre_hook is None:
            return own_arguments, False
        return with_hook_run(self.pre_hook, own_arguments, self.grid, config)

    def _preparation(self, config: Config, arguments: Arguments, writes: bool) -> Callable[[], None] | None:
        zeroed = list(Arguments.tensors_in(self.by_name(arguments).get(name) for name in self.reset_to_zero))
        hook = self.pre_hook if writes else None
        if not zeroed and hook is None:
            return None

        def prepare() -> None:
            if hook is not None:
                hook(given_to_hook(arguments.keyword, self.grid, config))
            for tensor in zeroed:
                tensor.zero_()

        return prepare

    @property
    def defaults(self) -> dict[str, Any]:
        """The values of parameters that need not be given, by name."""
        return Layers.defaults_of(self.function)

    def by_name(self, arguments: Arguments) -> dict[str, Any]:
        """The arguments of a call by name."""
        return {**dict(zip(self.function.arg_names, arguments.positional, strict=False)), **arguments.keyword}

    def launch_parts(self, config: Config, arguments: Arguments) -> Sequence[object] | None:
        """The grid and plain arguments of a config's launch.

        None if the grid function raises, heuristics compute a plain argument, or a hook may do anything before the
        launch. Tensors may be stand-ins without memory.
        """
        plain = {param.name for param in Layers.of(self.function)[-1].params if not param.is_constexpr}
        if plain.intersection(Layers.heuristics(self.function)) or self.pre_hook:
            return None
        if (grid := self.extents(config, arguments)) is None:
            return None
        try:
            own_arguments, _ = self._own_arguments(config, arguments)
        except Exception:  # noqa: BLE001 - the user's own functions; their launch will say why
            return None
        values = sorted((name, repr(value)) for name, value in config.items() if name in plain)
        blocks = sorted((name, own_arguments.keyword[name].block_shape) for name in self.descriptors)
        return [grid, values, *blocks]

    def extents(self, config: Config, arguments: Arguments) -> list[int] | None:
        """The extents of the grid; None where its function raises, as where it asks for what heuristics compute."""
        try:
            return [int(extent) for extent in self._grid(config, arguments, self.defaults)]
        except Exception:  # noqa: BLE001 - the user's own function; its launch will say why
            return None

    def _grid(self, config: Config, arguments: Arguments, meta: Mapping[str, object]) -> tuple[int, ...]:
        # Triton has bound `meta`: it also has defaults, and values that heuristics compute.
        return self.grid({**meta, **self.by_name(arguments), **config})

    @staticmethod
    def values_of(config: Any) -> Mapping[str, object]:
        """Tunables and launch options of a config of either kind, without what a `triton.Config` leaves open."""
        values: Any = config.all_kwargs() if is_triton_config(config) else config
        if not isinstance(values, Mapping):
            message = f"config is {config!r}; it must be a mapping"
            raise ConfigValueError(message, hint="config={'BM': 64, 'num_warps': 8}")
        return values


def _no_grid(_meta: Mapping[str, object]) -> tuple[int, ...]:
    raise LookupError("the grid is not known here")
