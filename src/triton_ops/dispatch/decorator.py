"""The decorator `autotune`, whose kernels Triton, torch and libraries know as an `Autotuner`.

Facts used, from Triton 3.6 to 3.9: the constructor's parameters, `configs`, `cache`, `best_config`, `nargs`, `keys`,
`configs_timings`, `bench_time`, `prune_configs(kwargs)` and `run(*args, grid, warmup, **kwargs)` of `Autotuner`, which
others read, change and call.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from triton_ops import values
from triton_ops.backend import Layers, Packed, TritonKernel, TritonProcess
from triton_ops.dispatch.calls import Calls
from triton_ops.dispatch.deciding import Options
from triton_ops.dispatch.decision import Decision, register
from triton_ops.dispatch.early_start import await_tune
from triton_ops.dispatch.fast_launch import Entrance
from triton_ops.dispatch.in_compile import KernelInCompile
from triton_ops.dispatch.launching import Launches
from triton_ops.dispatch.triton_autotuner import AUTOTUNER, Expected, Winners, to_triton
from triton_ops.exceptions import ConfigCollisionError, KernelTypeError, SettingsError, SpaceError, UnknownTunableError
from triton_ops.request import Effort, TuneOptions
from triton_ops.space import ConfigSpace
from triton_ops.values import BucketRule, Mapper, Tolerance


def named(module: str, name: str) -> Any:
    """The decorated kernel that stands under a name in a module, below heuristics around it; None if there is none."""
    kernel: Any = importlib.import_module(module)
    for part in name.split("."):
        kernel = getattr(kernel, part, None)
    return decorated_in(kernel)


def decorated_in(target: Any) -> Any:
    """Kernel that a decorator of this package or of Triton has made, below heuristics; None if there is none."""
    return next((one for one in Layers.of(target) if hasattr(one, "configs") and hasattr(one, "prune_configs")), None)


def loaded(module: str, name: str) -> object:
    """As `named`; a KernelTypeError if there is none."""
    if (kernel := named(module, name)) is None:
        message = f"a pickle names the decorated kernel {module}:{name}, and there is none here"
        raise KernelTypeError(message, hint="load it with the same version of that module")
    return kernel


def by_name(kernel: Tuned) -> tuple[Callable[[str, str], object], tuple[str, str]]:
    """Pickled form of a decorated kernel; raises PicklingError if another object stands under its name."""
    function = kernel.base_fn
    if named(function.__module__, function.__qualname__) is not kernel:
        place = f"{function.__module__}:{function.__qualname__}"
        message = f"the decorated kernel {place} cannot be pickled: another object stands under that name"
        raise pickle.PicklingError(message)
    return loaded, (function.__module__, function.__qualname__)


def _from_main(name: str, content: bytes) -> object:
    """The kernel of a script: the one of this script if that is equal, as in a child of `multiprocessing`."""
    positional, others = Packed.loaded(content)
    kernel, own = Tuned(*positional, **others), named("__main__", name)
    return own if own is not None and own.base_fn.__code__ == kernel.base_fn.__code__ else kernel


class Tuned(AUTOTUNER):  # type: ignore[misc]
    """A kernel of `autotune`, whose configs are chosen by the ladder, and launched directly once they are known."""

    def __init__(self, fn: object, arg_names: Sequence[str], configs: object, key: Sequence[str] | None, *rest: object,
                 options: Options, **more: object) -> None:  # fmt: skip
        # Before Triton's constructor, which sets attributes that are properties here, such as `configs`.
        self.options, self._local = options, threading.local()
        self._made_of = (list(key or ()), *rest), {**more, "options": options}
        calls = Calls.of(fn, list(key or ()), options.mapper)
        self._in_compile = KernelInCompile(self, calls, interpreted=TritonProcess.is_interpreted(fn))
        super().__init__(fn, arg_names, configs, list(key or ()), *rest, **more)
        self.configs_top_k: Any = _checked_top_k(self.configs_top_k)
        if self.perf_model and isinstance(self.configs_top_k, float):  # torch would take it of what is left
            self.configs_top_k = max(1, int(len(self.configs) * self.configs_top_k))
        self._begin()

    def _begin(self) -> None:
        self._cache: Any = Winners(self._forget_known)
        names = {"autotuner": AUTOTUNER, "expected": Expected, "kind_of_owner": type(self), "own_run": _RUN}
        self.launches = Launches(self, self.options, Entrance(self._otherwise, _SOMEBODYS_RUN, names))
        register(self)

    def __copy__(self) -> Tuned:
        """A kernel that decides for itself, so that other configs of the one are never launched by the other."""
        kernel = type(self).__new__(type(self))
        kernel.__dict__.update(self.__dict__)
        kernel._local = threading.local()
        interpreted = TritonProcess.is_interpreted(self.fn)
        kernel._in_compile = KernelInCompile(kernel, self._in_compile.calls, interpreted=interpreted)
        kernel._begin()
        kernel._cache.update(self.launches.shown.others)
        kernel.early_config_prune = self._in_compile.own
        return kernel

    def __deepcopy__(self, memo: object) -> Tuned:
        """As `__copy__`: what surrounds a kernel may be copied, such as a module, and the kernel stays what it is."""
        return self.__copy__()

    def __reduce__(self) -> tuple[object, ...]:
        """A kernel is pickled by its name, as functions are, and by value if it is of a script, as cloudpickle does."""
        if self.base_fn.__module__ != "__main__":
            return by_name(self)
        positional, others = self._made_of
        given = (self.fn, self.arg_names, self.configs, *positional), others
        return _from_main, (self.base_fn.__qualname__, Packed.of(given).content)

    @property
    def configs(self) -> list[object]:
        """The `triton.Config`s; other ones may be set, and count from the next decision on."""
        return self._configs

    @configs.setter
    def configs(self, configs: list[object]) -> None:
        self._configs = configs
        self._forget_known()

    @property
    def cache(self) -> object:
        """The configs by Triton's key; an object that is put here is asked in its place, at each launch."""
        return self._cache

    @cache.setter
    def cache(self, winners: object) -> None:
        self._cache = winners
        self._forget_known()

    def _forget_known(self) -> None:
        """Have the next launch of each key look again at the cache and the configs, and compiled code made anew."""
        if (launches := self.__dict__.get("launches")) is not None:  # else the kernel is being made
            launches.fast.forget()
        self._in_compile.forget()

    @property
    def nargs(self) -> dict[str, object] | None:
        """The positional arguments of the call that this thread is about to decide."""
        return getattr(self._local, "nargs", None)

    @nargs.setter
    def nargs(self, named: dict[str, object] | None) -> None:
        # In Triton's own class all threads share `nargs`, and one that ends its tune takes it from the others:
        # triton-lang/triton#11494.
        self._local.nargs = named

    @property
    def own_pruning(self) -> Callable[..., object] | None:
        """The caller's own `early_config_prune`."""
        return self._in_compile.own

    @property
    def early_config_prune(self) -> Callable[..., object] | None:
        """Function that leaves the configs that fit a call: the caller's own, and while torch traces the ladder."""
        return self._in_compile.early_config_prune if "torch" in sys.modules else self._in_compile.own

    @early_config_prune.setter
    def early_config_prune(self, own: Callable[..., object] | None) -> None:
        self._in_compile.use(own)

    def forget(self) -> None:
        """Have every call decided again."""
        self.launches.forget()
        self._in_compile.forget()

    def begin_anew(self) -> None:
        """Forget every decision and every lock, in a forked child, whose other threads are gone."""
        self.launches.begin_anew()

    @property
    def decisions(self) -> list[Decision]:
        """Copies of the decisions so far, which share their counts of launches."""
        return self.launches.decisions

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """A function that launches with this grid."""
        if self._in_compile.outside is not None and type(self).run is _RUN:  # where no launch is to be told of instead
            return partial(self._in_compile.outside, grid)
        return partial(self.launches.fast.enter, grid)

    def _otherwise(self, grid: object, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Launch a call that is not known, or any while somebody's own function stands in the place of `run`."""
        if AUTOTUNER.run is not Expected.run or "run" in self.__dict__ or type(self).run is not _RUN:
            return self.run(*args, grid=grid, warmup=False, **kwargs)
        return self.launches.plainly(grid, args, kwargs)

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002 - whatever a call without a grid gives
        """Refuse a call without a grid: raises KernelTypeError."""
        name = self.base_fn.__name__
        message = f"{self.base_fn.__module__}:{name} is called without a grid"
        raise KernelTypeError(message, hint=f"write {name}[grid](...)")

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the config of the call; returns Triton's compiled kernel. With `warmup` only compile it."""
        if warmup:
            return self.launches.compiled(grid, *args, **kwargs)
        return (self._in_compile.outside or self.launched)(grid, *args, **kwargs)

    def launched(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch as `run` does, by what somebody has put in the place of Triton's `run`, if there is such a thing."""
        if AUTOTUNER.run is Expected.run:
            return self.launches.launched(grid, *args, **kwargs)
        return self.launches.by_another(AUTOTUNER.run, grid, args, kwargs)

    def why(self, /, *args: object, grid: object = (1,), **kwargs: object) -> Decision:
        """The config that a call with these arguments takes, the rung that it comes from, and why; nothing is launched.

        What is not known is not tuned: the decision of a miss is the default, and its reason says what a launch would
        do instead, such as to tune first.
        """
        return self.launches.why(grid, args, kwargs)


_RUN = Tuned.run
_SOMEBODYS_RUN = ("@autotuner.run is not @expected.run", "'run' in @state", "@kind_of_owner.run is not @own_run")


_PRUNING = ("early_config_prune", "perf_model", "top_k")


def autotune(
    configs: Any = None,
    key: Sequence[str] | None = (),
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
    *,
    reference: Callable[..., Any] | None = None,
    outputs: Sequence[str] = (),
    tolerance: float | Tolerance | None = None,
    check: Callable[[Any, Any], Any] | None = None,
    contents: values.Contents | Sequence[tuple[float, Any]] | None = None,
    effort: str | Effort | None = None,
    budget_s: float | None = None,
    memory_bytes: int | str | None = None,
    on_miss: str | None = None,
    buckets: Mapping[str, str | BucketRule | None] | Mapper | None = None,
    cache_dir: str | Path | None = None,
    isolate: bool | None = None,
    widen: bool = False,
    same_bits: bool | None = None,
) -> Callable[[Any], Tuned]:
    """Decorator that chooses the config of a `@triton.jit` kernel, in place of `triton.autotune`.

    The first launch of a problem looks for a known winner: in the lockfile, then in the records of earlier tunes.
    Where there is none, it does as `on_miss` says. Later launches of the problem go to the compiled kernel directly.

    Args:
        configs: A list of `triton.Config`s, as for Triton, or of mappings from names to values; or a `ConfigSpace`, or
            a mapping from names to lists of values. None reads them from the kernel: its tiles are tuned, as far as a
            call does not give them, and first shown to change no result.
        key: The arguments whose values decide the config. Dtypes always do.
        prune_configs_by: `early_config_prune`, `perf_model` and `top_k`, as for Triton.
        reset_to_zero: Arguments that are filled with zeros before every launch of a tune, and before a problem's first.
        restore_value: Arguments that the kernel changes in place. A tune never writes the caller's tensors, so that
            naming them is not needed.
        pre_hook: Called with all arguments by name before every launch of a tune, and with `reset_only=True` before the
            first launch of a problem, as by Triton.
        post_hook: Called after every launch where Triton's own loop tunes; else not needed, and not called.
        warmup: Accepted, and not used: how long is measured follows from the effort.
        rep: As `warmup`.
        use_cuda_graph: Accepted, and not used: short kernels are timed as CUDA graphs in any case.
        do_bench: A function that measures; with it Triton's own loop tunes, in this process, and keeps nothing.
        cache_results: As for Triton; records are kept in any case.
        reference: Called with the kernel's arguments by name; returns the right outputs in order. Needs `outputs`.
        outputs: Names of the arguments that the kernel writes.
        tolerance: As for `tune`.
        check: As for `tune`.
        contents: As for `tune`; a record that was not compared over them does not spare a tune.
        effort: As for `tune`.
        budget_s: As for `tune`.
        memory_bytes: As for `tune`; without so much memory a launch runs the default, and says so.
        on_miss: What a launch without a known winner does: `tune`, `race`, `expected`, `background`, `default`,
            `error` or `queue`. None takes `TRITON_OPS_ON_MISS`, else `tune`. `with triton_ops.on_miss(...)` is first.
        buckets: Rules by which values of key arguments share one winner, such as `{"n": "pow2"}`.
        cache_dir: Folder of records; None as for `tune`.
        isolate: As for `tune`.
        widen: Whether values of tiles and launch options that the configs lack are tried as well, after the configs.
        same_bits: Whether only configs are tuned and launched that give the same bits: those of the class that the
            lockfile in use names, else of the default's, as of `same_bits_as` of `tune`. Where a class cannot be told,
            the default runs, with one warning. None takes `TRITON_OPS_SAME_BITS`, and otherwise keeps to entries of the
            lockfile that say so; False keeps to none. There can be no buckets.

    Returns:
        A decorator. What it returns is a `triton.runtime.autotuner.Autotuner`.

    Raises:
        SettingsError: A name in `key`, `reset_to_zero` or `restore_value` is no argument, one in `prune_configs_by` is
            not known, or a policy, an effort or a bucket is none.
        KernelTypeError: What is decorated is no kernel, or a reference is given without outputs.
        SpaceError: The config space is not well defined, or there is none to be widened.
        UnknownTunableError: A config gives a value to what is neither a parameter nor a launch option.
        ConfigCollisionError: A decorator below tunes one of the names as well.
        MissingDependencyError: Triton is not installed.

    Cost: a known launch takes about half the host time of a plain launch of Triton's; the first launch of a problem
    reads one file; a tune costs what `effort` allows.
    """
    if hasattr(configs, "arg_names"):
        message = f"{Layers.unwrap(configs).__name__} stands in the place of the configs"
        raise SpaceError(message, hint="write @triton_ops.autotune(configs, key=[...]) above @triton.jit")
    listed = isinstance(configs, (list, tuple)) or configs is None
    space = None if listed else ConfigSpace.from_user(configs)
    if widen and not configs:
        raise SpaceError("there are no configs to be widened", hint="leave widen out: values are read anyway")
    _check_pruning(prune_configs_by)

    def decorate(kernel: Any) -> Tuned:
        parameters = _parameters(kernel)
        _check_names(kernel, {"key": key, "reset_to_zero": reset_to_zero, "restore_value": restore_value,
                              "outputs": outputs}, parameters)  # fmt: skip
        options = Options(
            space=space, listed=configs is not None, widen=widen, reference=reference, outputs=tuple(outputs),
            tolerance=tolerance, check=check, on_miss=on_miss,
            contents=None if contents is None else values.Contents.of(contents, parameters),
            mapper=_mapper_of(buckets, parameters, key or ()),
            tune=TuneOptions(
                effort=effort, budget_s=budget_s, cache_dir=cache_dir, isolate=isolate, memory_bytes=memory_bytes
            ),
            same_bits=same_bits,
        )  # fmt: skip
        offered = _offered(configs) if space is None else [to_triton(space.default_config, members=space.members)]
        tuned = space.tunables if space is not None else [name for one in offered for name in one.kwargs]
        _check_tunables(kernel, tuned, parameters)
        _check_nested(kernel, tuned)
        if (len(offered) != 1 or widen or not listed) and do_bench is None and not TritonProcess.is_interpreted(kernel):
            await_tune(kernel, on_miss, options.tune)
        return Tuned(
            kernel, kernel.arg_names, offered, key, reset_to_zero, restore_value, pre_hook=pre_hook,
            post_hook=post_hook, prune_configs_by=prune_configs_by, warmup=warmup, rep=rep,
            use_cuda_graph=use_cuda_graph, do_bench=do_bench, cache_results=cache_results, options=options,
        )  # fmt: skip

    return decorate


def _check_pruning(prune_configs_by: object) -> None:
    if not isinstance(prune_configs_by, (Mapping, type(None))):
        message = f"prune_configs_by is {prune_configs_by!r}, no mapping"
        raise SettingsError(message, hint='write {"early_config_prune": function}')
    if strange := [name for name in prune_configs_by or () if name not in _PRUNING]:
        message = f"prune_configs_by has {', '.join(map(repr, strange))}; it takes {', '.join(_PRUNING)}"
        raise SettingsError(message, hint="correct the name, or leave it out")


def _checked_top_k(top_k: Any) -> Any:
    """`top_k`, if it is a number or a share: Triton refuses some others when it prunes, and takes the rest."""
    if not (0 < top_k <= 1.0 if isinstance(top_k, float) else isinstance(top_k, int) and top_k >= 1):
        message = f"top_k of prune_configs_by is {top_k!r}; it takes a number from 1 on, or a share up to 1.0"
        raise SettingsError(message, hint="write 10 or 0.1, or leave it out to try all")
    return top_k


def _offered(configs: Sequence[Any] | None) -> list[Any]:
    offered = [to_triton(one) if isinstance(one, Mapping) else one for one in configs or ()]
    if strange := [one for one in offered if not hasattr(one, "all_kwargs")]:
        hint = 'write triton.Config({"BLOCK": 128}, num_warps=4), or {"BLOCK": 128, "num_warps": 4}'
        raise SpaceError(f"{strange[0]!r} in the list of configs is no triton.Config", hint=hint)
    return offered


def _parameters(kernel: object) -> list[str]:
    if not (hasattr(kernel, "arg_names") and hasattr(kernel, "run")):
        message = f"{kernel!r} is no Triton kernel"
        raise KernelTypeError(message, hint="write @triton_ops.autotune(...) above @triton.jit")
    return list(kernel.arg_names)


def _check_tunables(kernel: object, names: Iterable[str], parameters: Sequence[str]) -> None:
    options = TritonKernel.LAUNCH_OPTIONS
    if strange := list(dict.fromkeys(name for name in names if name not in parameters and name not in options)):
        raise UnknownTunableError(
            f"{Layers.unwrap(kernel).__name__} has no parameter {', '.join(map(repr, strange))} to be tuned; it has "
            f"{', '.join(parameters)}, and there are the launch options {', '.join(sorted(options))}",
            hint="correct the tunable's name",
        )


def _check_nested(kernel: object, names: Iterable[str]) -> None:
    """Raise if a decorator below tunes some of these names as well: its launches would be given them twice."""
    inner = {name for layer in Layers.of(kernel) for one in getattr(layer, "configs", ()) for name in one.kwargs}
    if both := sorted({*names} & inner):
        name, tunables = Layers.unwrap(kernel).__name__, ", ".join(both)
        message = f"{name} has two decorators that tune, one around the other, and both tune {tunables}"
        raise ConfigCollisionError(message, hint="leave one of them, with the configs of both")


def _check_names(kernel: object, named: Mapping[str, Sequence[str] | None], parameters: Sequence[str]) -> None:
    for what, names in named.items():
        if isinstance(names, str):
            raise SettingsError(f"{what} is the text {names!r}; it is a list of names", hint=f"write [{names!r}]")
        if not isinstance(names, (Iterable, type(None))):
            raise SettingsError(f"{what} is {names!r}; it is a list of names", hint='write ["n"]')
        if strange := [name for name in names or () if name not in parameters]:
            name, words = Layers.unwrap(kernel).__name__, ", ".join(map(repr, strange))
            message = f"{what} names {words}, which is no argument of {name}; it has {', '.join(parameters)}"
            raise SettingsError(message, hint="correct the name, or leave it out")


def _mapper_of(
    buckets: Mapping[str, str | BucketRule | None] | Mapper | None, parameters: Collection[str], key: Collection[str]
) -> Mapper:
    """The mapper that a decorator's `buckets` mean; raises SettingsError and UnknownTunableError."""
    mapper = buckets if isinstance(buckets, Mapper) else Mapper.of(buckets)
    mapper.check(parameters)
    if idle := [name for bucket, _ in mapper.buckets for name in bucket if name not in key]:
        message = f"the bucket of {', '.join(idle)} has no effect: the key is {', '.join(key) or 'empty'}"
        raise SettingsError(message, hint="add the argument to the key, or leave its bucket out")
    return mapper
