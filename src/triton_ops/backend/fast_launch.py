"""Launches of kernels that are compiled already: one look-up by what the arguments are, then the launch itself.

Triton binds, specialises and looks up the compiled kernel at every launch, and `triton.autotune` builds its own key
before that. Here both keys are one: the device, what Triton specialises each argument on, and the values that decide
the config. A launch whose key was seen before calls the compiled kernel directly. Whatever is not plainly the same as
when it was seen goes the plain way: other options, compiled kernels that Triton was told to drop, hooks of profilers,
hooks before a run, changed globals or knobs, another driver, arguments that cannot be hashed, tensors without an
address or of a dtype that Triton does not know, a config that was changed in place, a list of configs that has become
one config or no longer is, another entry in the cache, another kernel or another function in the place of its `run`.

Facts used, from Triton 3.6 to 3.9: `native_specialize_impl(backend, argument, is_const, specialise, align)` gives what
a compiled kernel depends on, and `JITFunction.params` with which of these flags; `JITFunction.run` returns the compiled
kernel, whose `run` takes grid, stream, `function`, `packed_metadata`, launch metadata, two hooks and all bound
arguments; metadata and hooks may be None. `device_caches[device]` ends in the backend and the binder. A
`HookChain` without `calls` does nothing. `used_global_vals` holds the globals that a kernel has been compiled with.

`lambda meta: (triton.cdiv(n, meta["BLOCK"]),)` costs the host as much as everything else before a launch, as `cdiv` is
made for kernels. Its result follows from its code, from the numbers that it closes over, and from those that it looks
up in `meta`. A grid function that names anything else is called each time.
"""

from __future__ import annotations

import importlib
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, cast

from triton_ops.backend.compiled_kernel import direct_launch
from triton_ops.backend.containers import is_tensor
from triton_ops.backend.heuristics import Heuristics, Variants, computed, runs_of, taken_apart

_MODULES = ("triton", "math")
_FUNCTIONS = frozenset({"cdiv", "next_power_of_2", "ceil", "floor", "min", "max", "abs", "int"})
_BUILTINS = frozenset({"min", "max", "abs", "int"})
_MOST = 1_024  # pieces of code, and results of each


@dataclass(frozen=True)
class _Plan:
    """What the result of a piece of code follows from, and the results that are known.

    Attributes:
        code: The code; held, so that no other one gets its place.
        numbers: Gives, of `meta` and a function of this code, the numbers that its result follows from; None if they
            are no plain numbers, or a name of the module around it means something else.
        known: The results by these numbers.
    """

    code: CodeType
    numbers: Callable[[Mapping[str, Any], FunctionType], tuple[int, ...] | None]
    known: dict[tuple[int, ...] | None, Any]


class KnownGrids:
    """Grids by what they follow from. Safe to share among threads.

    Args:
        parameters: The kernel's parameters, which `meta` holds.
    """

    def __init__(self, parameters: tuple[str, ...]) -> None:
        self._parameters = parameters
        self._plans: dict[int, _Plan | None] = {}

    def of(self, grid: Callable[[Mapping[str, Any]], Any], meta: Mapping[str, Any]) -> Any:
        """What `grid(meta)` returns."""
        if type(grid) is not FunctionType:
            return grid(meta)
        plan = self._plans.get(id(grid.__code__), _UNSEEN)
        if plan is _UNSEEN:
            plan = self._planned(grid)
        if plan is None:
            return grid(meta)
        numbers = plan.numbers(meta, grid)
        found = plan.known.get(numbers)
        if found is None:
            found = grid(meta)
            if numbers is not None:
                _keep(plan.known, numbers, found)
        return found

    def _planned(self, grid: FunctionType) -> _Plan | None:
        """The plan of a function's code; None if it is called each time."""
        plan = self._plan_of(grid)
        _keep(self._plans, id(grid.__code__), plan)
        return plan

    def _plan_of(self, grid: FunctionType) -> _Plan | None:
        code = grid.__code__
        texts = [each for each in code.co_consts if isinstance(each, str) and each != grid.__doc__]
        plain = all(each is None or isinstance(each, (int, str)) for each in code.co_consts)
        strange = {*code.co_names} - {*_MODULES} - _FUNCTIONS
        if not plain or strange or code.co_cellvars or code.co_argcount != 1 or code.co_kwonlyargcount:
            return None
        if grid.__defaults__ or code.co_flags & _STARRED or not {*texts} <= {*self._parameters}:
            return None
        used = [name for name in code.co_names if name in grid.__globals__]
        modules = {"triton": importlib.import_module("triton"), "math": math}
        if any(grid.__globals__[name] is not modules.get(name) for name in used):
            return None
        shadowed = [name for name in code.co_names if name in _BUILTINS and name not in used]
        meanings = {name: modules.get(name) for name in (*used, *shadowed)}
        return _Plan(code, _numbers_of(tuple(dict.fromkeys(texts)), len(code.co_freevars), meanings), {})


def _keep(kept: dict[Any, Any], place: Any, found: Any) -> None:
    if len(kept) >= _MOST:
        kept.clear()
    kept[place] = found


def _numbers_of(
    names: Sequence[str], cells: int, meanings: Mapping[str, Any]
) -> Callable[[Mapping[str, Any], FunctionType], tuple[int, ...] | None]:
    """The function `numbers` of a plan, written out: a loop over the names would take twice as long.

    Args:
        names: What the code looks up in `meta`.
        cells: How many variables it closes over.
        meanings: What each name of the module around it must mean; None for a builtin that nothing there hides.
    """
    read = [f"meta[{name!r}]" for name in names] + [f"grid.__closure__[{cell}].cell_contents" for cell in range(cells)]
    lines = [f"    n{place} = {text}" for place, text in enumerate(read)]
    plain = [f"n{place}.__class__ is int" for place in range(len(read))]
    meant = [f"grid.__globals__.get({name!r}) is m{place}" for place, name in enumerate(meanings)]
    numbers = "".join(f"n{place}, " for place in range(len(read)))
    test = " and ".join([*plain, *meant]) or "True"
    source = ["def numbers(meta, grid):", *lines, f"    return ({numbers}) if {test} else None"]
    scope: dict[str, Any] = {f"m{place}": meaning for place, meaning in enumerate(meanings.values())}
    exec(compile("\n".join(source), "<numbers of a grid>", "exec"), scope)
    return cast(Callable[[Mapping[str, Any], FunctionType], tuple[int, ...] | None], scope["numbers"])


_UNSEEN: Any = object()
_STARRED = 0x04 | 0x08  # `*args` and `**kwargs`


MISSING = type("Missing", (), {"__repr__": lambda _: "missing", "__slots__": ()})()
"""The place of a parameter for which a call gives no value."""
_COUNTED_FROM = 1 << 62
_ONE_BY_ONE, _IN_ONE = False, True  # how what launches takes the kernel's arguments
_MOST_ENTRIES = 4_096  # of one kernel; a call with a new value costs one look-up by the ladder


class LaunchCount(itertools.repeat):  # type: ignore[type-arg]
    """A number that any thread may raise by one without a lock, in a few nanoseconds.

    Attributes:
        at_end: Told the number when nobody can raise it any more; None tells nobody.
    """

    __slots__ = ("__weakref__", "at_end")
    at_end: Callable[[int], object] | None
    up = itertools.repeat.__next__  # one step of an iterator written in C is never torn; to hold it keeps the number

    def __new__(cls) -> LaunchCount:
        """A number that is 0."""
        count = super().__new__(cls, None, _COUNTED_FROM)
        count.at_end = None
        return count

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, as in a copied module, counts for itself."""
        return LaunchCount, ()

    def __del__(self) -> None:
        if self.at_end is not None:
            self.at_end(self.value)

    @property
    def value(self) -> int:
        """How often `up` was called."""
        return _COUNTED_FROM - operator.length_hint(self)


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is launched for one key.

    Attributes:
        compiled: Triton's compiled kernel, loaded.
        brings: What the config brings to a call: parameters and launch options.
        config: The `triton.Config`; a launch whose config has other values by then goes the plain way.
        count: Counts the launches.
        place: Where the owner's cache shows the config; None if it is the owner's only config.
        shown: What stands there. The cache is asked at each launch.
        holds: Says at each launch whether this is still what is launched; None if it always is.
        grid: What stood in the brackets, which heuristics are given.
    """

    compiled: Any
    brings: Mapping[str, Any]
    config: Any
    count: LaunchCount
    place: Any = None
    shown: Any = None
    holds: Callable[[], bool] | None = None
    grid: Any = None


@dataclass(eq=False)
class FastLaunch:
    """The launches of one kernel that are known.

    Attributes:
        function: The kernel: a `JITFunction`, with or without `Heuristics` around it.
        keys: The parameters whose values decide the config.
        owner: Its `best_config` is set to the config of every launch, its `configs` and its `cache` are read at each.
        call: Launches `call(grid, *args, **kwargs)` and returns the compiled kernel; None, with nothing done, if the
            call is not known or not plainly the same.
    """

    function: Any
    keys: tuple[str, ...]
    owner: Any

    def __post_init__(self) -> None:
        self._jit, _ = taken_apart(self.function)
        self._entries: dict[Any, Any] = {}
        self._key: Callable[..., Any] | None = None
        self._driver: Any = None
        self.call: Callable[..., Any] = _unknown

    @property
    def name(self) -> str:
        """The kernel's name."""
        return str(self._jit.__name__)

    @property
    def compiled(self) -> bool:
        """Whether the kernel is compiled for a GPU; else it runs as Python."""
        return hasattr(self._jit, "device_caches")

    @property
    def driven(self) -> bool:
        """Whether Triton has a driver here, by which compiled kernels are launched."""
        try:
            return _driver().active is not None
        except RuntimeError:  # there are none, or several
            return False

    @property
    def possible(self) -> bool:
        """Whether the kernel is compiled, and its heuristics give constexpr values only."""
        if not self.compiled or not self._runs_as_triton:
            return False
        return not {param.name for param in self._jit.params if not param.is_constexpr}.intersection(self._heuristics)

    @property
    def _heuristics(self) -> Heuristics:
        return taken_apart(self.function)[1]

    @property
    def _runs_as_triton(self) -> bool:
        """Whether nobody has put something in the place of a `run`, which direct launches pass by."""
        modules = ("triton.runtime.jit", "triton.runtime.autotuner")
        own = [vars(importlib.import_module(name)) for name in modules]
        return all(
            put is None and any(getattr(run, "__globals__", scope) is scope for scope in own)
            for _, run, put in runs_of(self.function)
        )

    def forget(self) -> None:
        """Forget every launch, so that the next of each key is decided again."""
        self._entries.clear()

    def learn(self, args: Sequence[Any], kwargs: Mapping[str, Any], known: Known) -> bool:
        """Launch calls like this one as `known` from now on; returns whether that can be done.

        Args:
            args: The call's positional arguments.
            kwargs: Its keyword arguments, without what the config brings.
            known: What the plain way launched for them.
        """
        if not self.possible or not hasattr(known.compiled, "packed_metadata"):
            return False
        if self._key is None or self._driver is not _driver().active:
            self._generate()
        try:
            key = None if self._key is None else self._key(*args, **kwargs)
            if key is None or any(is_tensor(part) for part in key):  # a key must keep no tensor alive
                return False
            given = (*self._jit.arg_names[: len(args)], *kwargs)
            return self._keep(key, given, self._constexprs(args, kwargs, known), known)
        except (TypeError, KeyError):  # an argument that cannot be hashed, or a constexpr without a value
            return False

    def _keep(self, key: Any, given: Sequence[str], values: Mapping[str, Any], known: Known) -> bool:
        constexprs = tuple(values[param.name] for param in self._jit.params if param.is_constexpr)
        compiled = known.compiled
        run, packed = compiled.run, compiled.packed_metadata
        if (direct := direct_launch(run, packed)) is not None:
            way, run, added = (_IN_ONE if direct.packed else _ONE_BY_ONE), direct.function, direct.between
        else:
            way, added = _ONE_BY_ONE, (packed, None, None, None)
        lone = len(self.owner.configs) == 1
        shown = MISSING if known.shown is None else known.shown  # where nothing is shown, each launch is decided
        entry = (way, run, compiled.function, added, compiled, known.config, values_now(known.config), lone,
                 known.place, shown, known.count.up, known.holds,
                 self._jit.device_caches[self._driver.get_current_device()], constexprs)  # fmt: skip
        if len(self._entries) >= _MOST_ENTRIES:
            self._entries.clear()
        if self.function is self._jit:
            self._entries[key] = entry
            return True
        variants, runs = self._entries.get(key), runs_of(self.function)
        if variants is None or variants.config is not known.config or variants.runs != runs:
            variants = Variants(self.function, known.config, dict(known.brings), given, runs)
            self._entries[key] = variants
        variants.entries[tuple((name, values[name]) for name in self._heuristics)] = entry
        return True

    def _constexprs(self, args: Sequence[Any], kwargs: Mapping[str, Any], known: Known) -> dict[str, Any]:
        """The values of a launch by name, as Triton binds them."""
        given = {**dict(zip(self._jit.arg_names, args, strict=False)), **kwargs, **known.brings}
        given.update(computed(self._heuristics, given, known.grid))
        return {**{param.name: param.default for param in self._jit.params if param.has_default}, **given}

    def _generate(self) -> None:
        """Write the two functions of this kernel: the key of a call, and its launch."""
        self._entries.clear()
        self._driver = _driver().active
        space = self._namespace()
        params, defaults = self._jit.params, {param.name for param in self._jit.params if param.has_default}
        names = [param.name for param in params]
        values = [name for name in self.keys if name in names]
        told = [name for name in names if name in defaults and (name in values or self.function is not self._jit)]
        meta = "{" + ", ".join(f"{name!r}: {name}" for name in names) + "}"
        source = _TEMPLATE.format(
            head=", ".join(
                f"{name}=@{f'default_{name}' if name in defaults.difference(told) else 'MISSING'}" for name in names
            ),
            left_out="".join(_LEFT_OUT.format(name=name) for name in told),
            key=", ".join(["@device", *map(_part, params), *values, *(f"@left_out_{name}" for name in told)]),
            doubts=" or ".join([f"{_place_of(self.owner, 'fn')} is not @kernel", *_doubts(space)]),
            **{name: _place_of(self.owner, name) for name in ("configs", "cache", "best_config")},
            variant=_VARIANT.format(meta=meta) if self.function is not self._jit else "",
            constexprs="".join(f"{param.name}, " for param in params if param.is_constexpr),
            meta=meta,
            names=", ".join(names),
        )
        prefix = _prefix(names)
        scope = {prefix + name: value for name, value in space.items()}
        exec(compile(source.replace("@", prefix), f"<launch of {self._jit.__name__}>", "exec"), scope)
        self._key, self.call = scope["key_of"], scope["launch"]
        self.call.__qualname__ = self._jit.__name__  # a call with too many arguments is told by the kernel's name

    def _namespace(self) -> dict[str, Any]:
        """What the generated functions refer to."""
        jit, knobs = self._jit, importlib.import_module("triton.knobs")
        runtime, compilation = knobs.runtime, knobs.compilation
        backend = jit.device_caches[self._driver.get_current_device()][-2]
        return {
            **{f"default_{param.name}": param.default for param in jit.params if param.has_default},
            "MISSING": MISSING, "backend": backend, "driver": _driver(), "seen_driver": self._driver,
            "entries": self._entries, "specialize": _specialize(), "runtime": runtime, "compilation": compilation,
            "used_globals": jit.used_global_vals, "changed": _changed, "owner": self.owner, "state": vars(self.owner),
            "plain": _plain(type(self.owner.cache)), "get": dict.get, "type": type,
            "kind": type(jit), "run_of_kind": type(jit).run, "own": vars(jit), "kernel": self.function,
            "jit": jit, "jit_debug": jit.debug, "caches": jit.device_caches,
            "hooks_before": jit.pre_run_hooks, "enter": runtime.launch_enter_hook, "exit": runtime.launch_exit_hook,
            "debug": runtime.debug, "mode": compilation.instrumentation_mode,
            "grid_of": KnownGrids(tuple(jit.arg_names)).of,
            "casts": getattr(compilation, "fpsan_homomorphic_casts", None), "callable": callable, "len": len,
            "no_key": (TypeError, RuntimeError, KeyError), "no_extents": TypeError,
        }  # fmt: skip


def values_now(config: Any) -> dict[str, Any]:
    """What a `triton.Config` holds now, to be compared with its `__dict__` later."""
    return {**config.__dict__, "kwargs": dict(config.kwargs)}


_TEMPLATE = """
def key_of({head}, **@options):
    if @options or {doubts}:
        return None
{left_out}    @device = @driver.active.get_current_device()
    return ({key},)

def launch(@grid, {head}, **@options):
    @active = @driver.active
    if @options or @active is not @seen_driver or {doubts}:
        return None
{left_out}    @device = @active.get_current_device()
    try:
        @entry = @entries.get(({key},))
    except @no_key:
        return None
    if @entry is None:
        return None
{variant}    (@in_one, @run, @function, @added, @compiled, @config, @values, @lone,
     @place, @shown, @count, @holds, @cached, ({constexprs})) = @entry
    if @caches.get(@device) is not @cached:
        return None
    @configs = {configs}
    if @config.__dict__ != @values or (@len(@configs) == 1) is not @lone:
        return None
    try:
        if @place is None:
            if @configs[0] is not @config:
                return None
        else:
            @cache = {cache}
            if @type(@cache) is @plain:
                if @get(@cache, @place) is not @shown:
                    return None
            elif @place not in @cache or @cache[@place] is not @shown:
                return None
    except @no_key:
        return None
    if @holds is not None and not @holds():
        return None
    if @used_globals and @changed(@used_globals):
        return None
    if @callable(@grid):
        @grid = @grid_of(@grid, {meta})
    try:
        @extents = @len(@grid)
    except @no_extents:
        return None
    if not 0 < @extents < 4:
        return None
    {best_config} = @config
    @x, @y, @z = @grid[0], @grid[1] if @extents > 1 else 1, @grid[2] if @extents > 2 else 1
    if @in_one:
        @run(@x, @y, @z, @active.get_current_stream(@device), @function, *@added, ({names},))
    else:
        @run(@x, @y, @z, @active.get_current_stream(@device), @function, *@added, {names})
    @count()
    return @compiled
"""
"""Names that are no parameters of the kernel follow an @, for which a beginning is put that no parameter has."""

_LEFT_OUT = """    @left_out_{name} = {name} is @MISSING
    if @left_out_{name}:
        {name} = @default_{name}
"""
"""A default that is given is another key of Triton's than one that is left out, and heuristics see which it is."""

_VARIANT = """    try:
        @entry = @entry.of(@grid, {meta})
    except @no_key:
        return None
    if @entry is None:
        return None
"""


def _prefix(names: Sequence[str]) -> str:
    """A beginning of identifiers that none of these names has."""
    found = "_"
    while any(name.startswith(found) for name in names):
        found += "_"
    return found


def _place_of(owner: Any, name: str) -> str:
    """Where a launch reads and writes an attribute of the owner: its own dictionary, past proxies and our properties.

    A class that says otherwise, such as a subclass with a property of that name, is asked for the attribute.
    """
    kind = owner.__class__
    put, kept = getattr(kind, name, None), f"_{name}"
    if getattr(getattr(put, "fget", None), "__module__", "").startswith("triton_ops.") and kept in vars(owner):
        return f"@state[{kept!r}]"
    plain = put is None and kind.__setattr__ is object.__setattr__ and not hasattr(kind, "__getattr__")
    return f"@state[{name!r}]" if plain and kind.__getattribute__ is object.__getattribute__ else f"@owner.{name}"


def _plain(kind: type) -> Any:
    """The class of a cache that answers as a dict does, which is asked once; else None."""
    same = all(getattr(kind, name, None) is getattr(dict, name) for name in ("__getitem__", "__contains__", "get"))
    return kind if same and not hasattr(kind, "__missing__") else None


def _doubts(space: Mapping[str, Any]) -> list[str]:
    """Conditions under which a launch goes the plain way."""
    found = [
        "@kind.run is not @run_of_kind", "'run' in @own", "@hooks_before",
        "@runtime.launch_enter_hook is not @enter", "@runtime.launch_exit_hook is not @exit",
        "@runtime.debug is not @debug", "@jit.debug is not @jit_debug", "@compilation.instrumentation_mode != @mode",
    ]  # fmt: skip
    found += [f"@{name}.calls" for name in ("enter", "exit") if hasattr(space[name], "calls")]
    found += [f"@{name}" for name in ("enter", "exit") if space[name] is not None and not hasattr(space[name], "calls")]
    if hasattr(space["runtime"], "add_stages_inspection_hook"):
        found.append("@runtime.add_stages_inspection_hook is not None")
    if hasattr(space["compilation"], "fpsan_homomorphic_casts"):
        found.append("@compilation.fpsan_homomorphic_casts != @casts")
    return found


def _part(param: Any) -> str:
    """What of an argument the compiled kernel depends on, as an expression."""
    if param.is_constexpr:
        return str(param.name)
    align = not param.do_not_specialize_on_alignment
    return f"@specialize(@backend, {param.name}, {bool(param.is_const)}, {not param.do_not_specialize}, {align})"


def _changed(used: Mapping[Any, tuple[Any, Mapping[str, Any]]]) -> bool:
    """Whether a global that the kernel was compiled with has another value now; the plain way then raises."""
    return any(scope.get(name, MISSING) != value for (name, _), (value, scope) in list(used.items()))


def _unknown(*_args: Any, **_kwargs: Any) -> None:
    """The launch before anything is known."""


def _driver() -> Any:
    return importlib.import_module("triton.runtime.driver").driver


def _specialize() -> Any:
    return importlib.import_module("triton._C.libtriton").native_specialize_impl
