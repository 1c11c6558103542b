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
`get_current_device` of the driver for CUDA is torch's, which asks `torch._C._cuda_getDevice` once CUDA has started.

`lambda meta: (triton.cdiv(n, meta["BLOCK"]),)` costs the host as much as everything else before a launch, as `cdiv` is
made for kernels. Its result follows from its code, from the numbers that it closes over, and from those that it looks
up in `meta`. A grid function that names anything else is called each time.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, cast

from triton_ops.backend import Arguments, Layers
from triton_ops.base import BoundedDict
from triton_ops.dispatch.calls import Heuristics, Variants, computed, runs_of
from triton_ops.dispatch.decision import Decision, values_now
from triton_ops.dispatch.direct_launch import (
    KERNEL_DOUBTS,
    globals_changed,
    kernel_space,
    launch_of,
    process_doubts,
    process_space,
    runs_as_triton,
    triton_driver,
    values_of_knobs,
)

MISSING = type("Missing", (), {"__repr__": lambda _: "missing", "__slots__": ()})()
"""The place of a parameter for which a call gives no value."""
_MOST_ENTRIES = 4_096  # of one kernel; a call with a new value costs one look-up by the ladder


@dataclass(frozen=True)
class Entrance:
    """How a launch by brackets begins, which has no frame around it.

    `otherwise(grid, args, kwargs)` launches what is not known, and is asked for a known call too under the conditions
    `doubts`, which are source; `names` is what their names stand for.
    """

    otherwise: Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]
    doubts: Sequence[str]
    names: Mapping[str, Any]


@dataclass(eq=False)
class FastLaunch:
    """The launches of one kernel that are known; `keys` are the parameters whose values decide the config.

    `call(grid, *args, **kwargs)` launches and returns the compiled kernel; None, with nothing done, if the call is not
    known or not plainly the same. `enter` launches that by the entrance. Each launch sets the owner's `best_config`,
    and reads its `configs` and its `cache`.
    """

    function: Any
    keys: tuple[str, ...]
    owner: Any
    entrance: Entrance | None = None

    def __post_init__(self) -> None:
        self._jit = Layers.of(self.function)[-1]
        self._entries = BoundedDict[Any, Any](_MOST_ENTRIES)
        self._key: Callable[..., Any] | None = None
        self._driver: Any = None
        self._knobs: Any = None
        self.changes = 0  # how often `forget` was called
        self.call: Callable[..., Any] = lambda *_args, **_kwargs: None
        self.enter: Callable[..., Any] = self._otherwise

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
            return triton_driver().active is not None
        except RuntimeError:  # there are none, or several
            return False

    @property
    def possible(self) -> bool:
        """Whether the kernel is compiled, and its heuristics give constexpr values only."""
        if not self.compiled or not runs_as_triton(self.function):
            return False
        return not {param.name for param in self._jit.params if not param.is_constexpr}.intersection(self._heuristics)

    @property
    def _heuristics(self) -> Heuristics:
        return Layers.heuristics(self.function)

    def forget(self) -> None:
        """Forget every launch, so that the next of each key is decided again."""
        self.changes += 1
        self._entries.clear()

    def _otherwise(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        return None if self.entrance is None else self.entrance.otherwise(grid, args, kwargs)

    def learn(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any, compiled: Any, decision: Decision,
        place: Any, shown: Any, *, told: bool, changes: int,
    ) -> None:  # fmt: skip
        """Launch calls like this one as Triton's `compiled` kernel from now on, unless `changes` are others by now.

        `place` is where the owner's cache shows the decision's config, None if it is the owner's only one, and `shown`
        stands there: the cache is asked at each launch, unless it is `told`, which means that it has the launches
        forgotten when others change it. Heuristics are given `grid`, as it stood in the brackets.
        """
        if not self.possible or not hasattr(compiled, "packed_metadata"):
            return
        if place is not None and shown is None:  # nothing is shown: each launch is decided
            return
        if self._key is None or self._driver is not triton_driver().active or self._knobs != values_of_knobs():
            self._generate(len(args))
        try:
            key = None if self._key is None else self._key(*args, **kwargs)
            if key is None or any(Arguments.is_tensor(part) for part in key):  # a key must keep no tensor alive
                return
            given = {**dict(zip(self._jit.arg_names, args, strict=False)), **kwargs}
            asked = place is None or not told
            self._keep(key, tuple(given), self._bound(given, grid, decision), compiled, decision, (asked, place, shown))
        except (TypeError, KeyError):  # an argument that cannot be hashed, or a constexpr without a value
            return
        if self.changes != changes:  # another thread has changed what was looked up
            self._entries.clear()

    def _keep(
        self, key: Any, given: Sequence[str], values: Mapping[str, Any], compiled: Any, decision: Decision,
        standing: tuple[bool, Any, Any],
    ) -> None:  # fmt: skip
        constexprs = tuple(values[param.name] for param in self._jit.params if param.is_constexpr)
        config = decision.config
        run, added, in_one = launch_of(compiled)
        entry = (in_one, run, compiled.function, added, compiled, config, values_now(config),
                 len(self.owner.configs) == 1, *standing, decision.count, decision.ask, decision.within,
                 self._jit.device_caches[self._driver.get_current_device()], constexprs)  # fmt: skip
        if self.function is self._jit:
            self._entries[key] = entry
            return
        variants, runs = self._entries.get(key), runs_of(self.function)
        if variants is None or variants.config is not config or variants.runs != runs:
            variants = Variants(self.function, config, config.all_kwargs(), given, runs)
            self._entries[key] = variants
        variants.entries[tuple((name, values[name]) for name in self._heuristics)] = entry

    def _bound(self, given: Mapping[str, Any], grid: Any, decision: Decision) -> dict[str, Any]:
        """The values of a launch by name, as Triton binds them."""
        values = {**given, **decision.config.all_kwargs()}
        values.update(computed(self._heuristics, values, grid))
        return {**{param.name: param.default for param in self._jit.params if param.has_default}, **values}

    def _generate(self, positional: int) -> None:
        """Write the key of a call, and its launch, most of which have so many positional arguments."""
        self._entries.clear()
        self._driver, self._knobs = triton_driver().active, values_of_knobs()
        space = self._namespace()
        names = [param.name for param in self._jit.params]
        doubts = [f"{_place_of(self.owner, 'fn')} is not @kernel", *KERNEL_DOUBTS, *process_doubts(space)]
        parts = self._parts(names, positional)
        heads = [_KEY.format(doubts=" or ".join(["@options", *doubts]), **parts), _BIND.format(**parts)]
        launches = [_launch("launch", "None", doubts, parts)]
        if self.entrance is not None:
            space.update(self.entrance.names, otherwise=self.entrance.otherwise)
            doubts = [*self.entrance.doubts, *doubts]
            launches.append(_launch("enter", "@otherwise(@grid, @args, @kwargs)", doubts, parts))
        prefix = _prefix(names)
        scope = {prefix + name: value for name, value in space.items()}
        source = "".join([*heads, *launches]).replace("@", prefix)
        # Written out for this kernel: a loop over its parameters would take longer than the rest of the launch.
        exec(compile(source, f"<launch of {self._jit.__name__}>", "exec"), scope)
        scope[f"{prefix}bind"].__qualname__ = self._jit.__name__  # by which a call with too many arguments is told
        self._key, self.call = scope["key_of"], scope["launch"]
        self.enter = scope.get("enter", self._otherwise)

    def _parts(self, names: Sequence[str], positional: int) -> dict[str, str]:
        params, defaults = self._jit.params, {param.name for param in self._jit.params if param.has_default}
        values = [name for name in self.keys if name in names]
        asked = [name for name in names if name in defaults and (name in values or self.function is not self._jit)]
        absent = {name: f"@default_{name}" if name in defaults.difference(asked) else "@MISSING" for name in names}
        meta = "{" + ", ".join(f"{name!r}: {name}" for name in names) + "}"
        first = names[:positional]
        return {
            "head": ", ".join(f"{name}={value}" for name, value in absent.items()),
            "positional": str(len(first)), "first": ", ".join(first),
            "rest": "".join(f"        {name} = {absent[name]}\n" for name in names[positional:]),
            "left_out": "".join(_LEFT_OUT.format(name=name) for name in asked),
            "key": ", ".join(["@device", *map(_part, params), *values, *(f"@left_out_{name}" for name in asked)]),
            **{name: _place_of(self.owner, name) for name in ("configs", "cache", "best_config")},
            "variant": _VARIANT.format(meta=meta) if self.function is not self._jit else "",
            "constexprs": "".join(f"{param.name}, " for param in params if param.is_constexpr),
            "meta": meta, "names": ", ".join(names),
        }  # fmt: skip

    def _namespace(self) -> dict[str, Any]:
        jit = self._jit
        return {
            **{f"default_{param.name}": param.default for param in jit.params if param.has_default},
            **process_space(self._driver, self._knobs), **kernel_space(jit),
            "MISSING": MISSING, "backend": jit.device_caches[self._driver.get_current_device()][-2],
            "entries": self._entries, "changed": globals_changed, "owner": self.owner, "state": vars(self.owner),
            "specialize": importlib.import_module("triton._C.libtriton").native_specialize_impl,
            "plain": _plain(type(self.owner.cache)), "get": dict.get, "type": type, "tuple": tuple, "next": next,
            "kernel": self.function, "grid_of": KnownGrids(tuple(jit.arg_names)).of, "callable": callable, "len": len,
            "no_key": (TypeError, RuntimeError, KeyError), "no_extents": TypeError,
        }  # fmt: skip


_KEY = """
def key_of({head}, **@options):
    if {doubts}:
        return None
{left_out}    @device = @driver.active.get_current_device()
    return ({key},)
"""

_BIND = """
def @bind({head}, **@options):
    return None if @options else ({names},)
"""

_LAUNCH = """
def {launch}(@grid, *@args, **@kwargs):
    if @kwargs or @len(@args) != {positional}:
        @bound = @bind(*@args, **@kwargs)
        if @bound is None:
            return @miss
        ({names},) = @bound
    else:
        [{first}] = @args
{rest}    @active = @driver.active
    if @active is not @seen_driver or {doubts}:
        return @miss
{left_out}    try:
        @device = @device_of()
        @entry = @entries.get(({key},))
    except @no_key:
        return @miss
    if @entry is None:
        return @miss
{variant}    (@in_one, @run, @function, @added, @compiled, @config, @values, @lone,
     @asked, @place, @shown, @count, @ask, @answer, @cached, ({constexprs})) = @entry
    @configs = {configs}
    if @caches[@device] is not @cached or @config.__dict__ != @values or (@len(@configs) == 1) is not @lone:
        return @miss
    if @asked:
        try:
            if @place is None:
                if @configs[0] is not @config:
                    return @miss
            else:
                @cache = {cache}
                if @type(@cache) is @plain:
                    if @get(@cache, @place) is not @shown:
                        return @miss
                elif @place not in @cache or @cache[@place] is not @shown:
                    return @miss
        except @no_key:
            return @miss
    if @ask is not None and @ask() != @answer:
        return @miss
    if @used_globals and @changed(@used_globals):
        return @miss
    @extent = @grid
    if @type(@extent) is not @tuple and @callable(@extent):
        @extent = @grid_of(@extent, {meta})
    try:
        @extents = @len(@extent)
    except @no_extents:
        return @miss
    if @extents == 1:
        @x, @y, @z = @extent[0], 1, 1
    elif @extents == 2:
        @x, @y, @z = @extent[0], @extent[1], 1
    elif @extents == 3:
        @x, @y, @z = @extent[0], @extent[1], @extent[2]
    else:
        return @miss
    {best_config} = @config
    if @in_one:
        @run(@x, @y, @z, @active.get_current_stream(@device), @function, *@added, ({names},))
    else:
        @run(@x, @y, @z, @active.get_current_stream(@device), @function, *@added, {names})
    @next(@count)
    return @compiled
"""
"""Names that are no parameters of the kernel follow an @, for which a beginning is put that no parameter has."""


def _launch(name: str, miss: str, doubts: Sequence[str], parts: Mapping[str, str]) -> str:
    return _LAUNCH.format(launch=name, doubts=" or ".join(doubts), **parts).replace("@miss", miss)


_LEFT_OUT = """    @left_out_{name} = {name} is @MISSING
    if @left_out_{name}:
        {name} = @default_{name}
"""
"""A default that is given is another key of Triton's than one that is left out, and heuristics see which it is."""

_VARIANT = """    try:
        @entry = @entry.of(@grid, {meta})
    except @no_key:
        @entry = None
    if @entry is None:
        return @miss
"""


def _prefix(names: Sequence[str]) -> str:
    prefix = "_"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


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


def _part(param: Any) -> str:
    """What of an argument the compiled kernel depends on, as an expression."""
    if param.is_constexpr:
        return str(param.name)
    align = not param.do_not_specialize_on_alignment
    return f"@specialize(@backend, {param.name}, {bool(param.is_const)}, {not param.do_not_specialize}, {align})"


_MODULES = ("triton", "math")
_FUNCTIONS = frozenset({"cdiv", "next_power_of_2", "ceil", "floor", "min", "max", "abs", "int"})
_BUILTINS = frozenset({"min", "max", "abs", "int"})
_GRID_RESULTS_MOST = 1_024  # pieces of code, and results of each


@dataclass(frozen=True)
class _Plan:
    """The results of a piece of code that are known, by the numbers that they follow from.

    The code is held, so that no other one gets its place. `numbers` gives None where these are no plain numbers, or
    where a name of the module around it means something else.
    """

    code: CodeType
    numbers: Callable[[Mapping[str, Any], FunctionType], tuple[int, ...] | None]
    known: dict[tuple[int, ...] | None, Any]


class KnownGrids:
    """Grids by what they follow from, of a kernel with these parameters. Safe to share among threads."""

    def __init__(self, parameters: tuple[str, ...]) -> None:
        self._parameters = parameters
        self._plans = BoundedDict[int, _Plan | None](_GRID_RESULTS_MOST)

    def of(self, grid: Callable[[Mapping[str, Any]], Any], meta: Mapping[str, Any]) -> Any:
        """What `grid(meta)` returns."""
        if type(grid) is not FunctionType:
            return grid(meta)
        if (plan := self._plans.get(id(grid.__code__), _UNSEEN)) is _UNSEEN:
            plan = self._plans[id(grid.__code__)] = self._plan_of(grid)
        if plan is None:
            return grid(meta)
        numbers = plan.numbers(meta, grid)
        if (result := plan.known.get(numbers)) is None:
            result = grid(meta)
            if numbers is not None:
                plan.known[numbers] = result
        return result

    def _plan_of(self, grid: FunctionType) -> _Plan | None:
        code = grid.__code__
        # A docstring is one of the constants, and no name that is looked up in `meta`.
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
        numbers = _numbers_of(tuple(dict.fromkeys(texts)), len(code.co_freevars), meanings)
        return _Plan(code, numbers, BoundedDict(_GRID_RESULTS_MOST))


def _numbers_of(
    names: Sequence[str], cells: int, meanings: Mapping[str, Any]
) -> Callable[[Mapping[str, Any], FunctionType], tuple[int, ...] | None]:
    """The function `numbers` of a plan, written out: a loop over the names would take twice as long.

    `names` are looked up in `meta`, so many `cells` are closed over, and each name of the module around must mean what
    `meanings` says: None for a builtin that nothing there hides.
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
