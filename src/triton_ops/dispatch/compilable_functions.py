"""Public functions inside compiled code: a call is one operator of torch, or its launches where a compiler writes them.

A function decorated with `compilable` runs as it is. While torch traces, its call becomes one operator, as
`torch_operators` has it. Where no size may change, the function is run on tensors without memory. If all its launches
are such that Inductor can write them, the config becomes a constant of the graph, and the launches stand in the
compiled code. The operator stays, and chooses when it runs, where a size is dynamic, the program is exported, a thread
is inside of `tuning` or `on_miss`, a miss does more than to run the default, or a launch has what compiled code does
not keep.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from numbers import Number
from operator import index
from threading import RLock
from typing import Any, ClassVar, NamedTuple, ParamSpec, TypeVar

from triton_ops.backend import Arguments, TritonKernel
from triton_ops.base import ForkSafeLock, canonical_json, require
from triton_ops.dispatch.decision import EXPLICIT, Decision, Found, for_compiled, register
from triton_ops.dispatch.direct_launch import launch_with
from triton_ops.dispatch.in_compile import OPEN, constant
from triton_ops.dispatch.ladder import DEFAULT, ERROR, MAY_MEASURE, on_miss, policy_of
from triton_ops.dispatch.plans import PlannedCalls, forgets_with_plans, planned
from triton_ops.dispatch.recorder import recording
from triton_ops.dispatch.torch_operators import Gradient, Operator, recorded, written_by, written_text
from triton_ops.exceptions import KernelTypeError, SettingsError
from triton_ops.request import MISS
from triton_ops.space import Config

_OPTIONS = ("config", "tune")
_KEPT = ("num_warps", "num_stages")  # options of a launch that Inductor takes from `wrap_triton`
_P = ParamSpec("_P")
_T = TypeVar("_T")
_guard = ForkSafeLock(RLock)
_log = logging.getLogger("triton_ops")


class _UnwrittenError(Exception):
    """A call does what does not stand in compiled code; the message says what."""


class _Launches:
    """What a call that is only traced launches, and what has decided its config; a miss does as the policy says."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.kernels: list[str] = []
        self.decisions: list[Decision] = []
        self.passed: set[int] = set()  # storages of tensors that kernels are given
        self.written: set[int] = set()  # those that torch sees them write

    def launched(self, decision: Decision, _asked: Any) -> None:
        """Take note of a decision; refuse a miss on which more is done than to run the default."""
        self.decisions.append(decision)
        if decision.unmeasured and self.policy in (*MAY_MEASURE, ERROR):
            raise _UnwrittenError(f"no winner is known, and on_miss is {self.policy}")

    def ask(self, read: Any, tensors: Sequence[Any], _answer: Any) -> None:
        """Refuse what a call reads of tensors."""
        if tensors:
            raise _UnwrittenError(f"{read.__name__} is asked of tensors at each call")

    def launch(self, _run: Any, kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:  # noqa: ARG002
        """Take note of a launch, if Inductor can write it."""
        if not hasattr(kernel, "device_caches"):
            raise _UnwrittenError("a kernel runs as Python")
        if kernel.is_gluon():
            raise _UnwrittenError("a kernel is in Gluon")
        launch = launch_with(kernel, args, kwargs, grid)
        if any(map(Arguments.is_descriptor, launch.values.values())):  # an operator keeps what they are encoded to
            raise _UnwrittenError("compiled code would encode a kernel's descriptors at each call")
        options = [(name, value) for name, value in launch.options.items() if name not in _KEPT]
        if strange := [f"{name}={value}" for name, value in options if OPEN.get(name, MISS) != value]:
            raise _UnwrittenError(f"torch.compile does not keep {', '.join(strange)}")
        self.passed |= _storages(launch.values.values())
        self.written |= _storages(launch.values[name] for name in written_by(kernel, launch))
        self.kernels.append(kernel.cache_key)


class _Way(NamedTuple):
    """How a call stands in compiled code: with what config, which was decided so, and by launches of which kernels.

    `why_not` is why its launches do not stand there; empty if they do.
    """

    config: Any
    decisions: Sequence[Decision]
    kernels: Sequence[str]
    why_not: str = ""

    @property
    def text(self) -> str:
        """A sentence without its subject."""
        if self.why_not:
            return f"is an operator in compiled code: {self.why_not}"
        return "is launched by compiled code itself"


class FunctionInCompile:
    """One public function, as torch sees it while it traces."""

    decisions: ClassVar[Sequence[Decision]] = ()

    def __init__(self, function: Callable[..., Any], operator: Operator, *, trains: bool) -> None:
        self._function, self.operator, self.name = function, operator, operator.name
        takes_config = "config" in operator.names
        may_stand = takes_config and "!" not in operator.schema  # what is given to write to is checked then
        self.kinds = takes_config, may_stand, trains
        register(self)
        forgets_with_plans(self)

    def begin_anew(self) -> None:
        """Nothing: what a forked child inherits, its compiled code holds too."""

    def forget(self) -> None:
        """Have compiled code that holds a choice compiled anew at its next call."""
        for_compiled.generation = str(int(for_compiled.generation) + 1)

    def text(self, config: Any, facts: Sequence[Any], names: Sequence[str]) -> str:
        """The text of a call's config, with what launches may stand in compiled code; only the former without facts.

        The last facts are those of arguments that came by `names`.
        """
        _check_options({"config": config})
        text = "" if config is None else canonical_json(dict(_plain(config)))
        if not facts or require("torch", "torch.compile").compiler.is_exporting():
            return text
        way = self._way(facts, names, json.loads(text) if text else None)
        _log.info("%s %s%s", self.name, way.text, "" if way.why_not else f", with {way.config}")
        return text if way.why_not else written_text(text, way.config, way.kernels)

    def why(self, *args: Any, **kwargs: Any) -> Decision:
        """The decision of a call; the last that it `passed` says how such a call stands in compiled code.

        Nothing is launched, tuned or noted. Raises KernelTypeError if such a call decides nothing, as for bad input.
        """
        _check_options(kwargs)
        config, values = kwargs.get("config"), (*args, *kwargs.values())
        way = self._way([*map(_facts, values)], (*kwargs,), None if config is None else _plain(config))
        if not way.decisions and config is None:
            raise KernelTypeError(f"{self.name} decides nothing for such a call: {way.why_not}")
        own = Decision(found=Found(config=Config(way.config or {}), rung=EXPLICIT, why="the call gives it"),
                       kernel=self.name, problem="")  # fmt: skip
        decision = way.decisions[0] if way.decisions else own
        return replace(decision, passed=(*decision.passed, f"{self.name} {way.text}"))

    def _way(self, facts: Sequence[Any], names: Sequence[str], config: Any) -> _Way:
        """How a call stands in compiled code; `config` is the caller's own."""
        fakes, policy = require("torch._subclasses.fake_tensor", "torch.compile"), policy_of(None, DEFAULT)
        first, second = _Launches(policy), _Launches(policy)
        with fakes.FakeTensorMode(), on_miss(DEFAULT):
            args, places = [_fake(each) for each in facts], range(len(facts) - len(names), len(facts))
            kwargs = {each: args[place] for each, place in zip(names, places, strict=True) if each not in _OPTIONS}
            args = args[: places.start]
            try:
                if config is None:
                    self._follow(first, args, kwargs)
                    if len(first.decisions) != 1:
                        raise _UnwrittenError(f"{len(first.decisions)} configs are chosen for a call")
                    config = first.decisions[0].found.config
                self._follow(second, args, {**kwargs, "config": config})
                if second.decisions:
                    raise _UnwrittenError("several configs are chosen for a call")
            except Exception as why:  # noqa: BLE001 - torch's own code runs here; the operator says what is wrong
                return _Way(config, first.decisions, [], str(why) or type(why).__name__)
        return _Way(config, first.decisions, second.kernels)

    def _follow(self, launches: _Launches, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        with recording(launches):
            self._function(*args, **kwargs)
        if not launches.kernels:
            raise _UnwrittenError("nothing is launched")
        given = [each for each in (*args, *kwargs.values()) if Arguments.is_tensor(each)]
        floats = _storages(each for each in given if each.is_floating_point())
        # Torch may take whole numbers for written that addresses follow from, which costs nothing.
        if launches.passed - _storages(given) - launches.written or launches.written & floats:
            raise _UnwrittenError("torch does not see what its kernels write")


_functions: dict[str, FunctionInCompile] = {}
_Tensor: Any  # what traced code reads of torch, from when it is traced on: torch guards at each call all that it reads
_operators: Any
_is_static: Callable[[Any], bool]
_records: Callable[[], bool]


@constant
def _always() -> bool:
    return True


_may_be_traced: Callable[[], bool] = getattr(
    getattr(sys.modules.get("torch"), "compiler", None), "is_dynamo_compiling", _always
)
"""Whether Dynamo traces the caller, which takes torch's own function for true, and Python for false."""


@constant
def _kinds(name: str) -> tuple[bool, bool, bool] | None:
    """Whether a function takes a config, its launches may stand in compiled code, and it has `training`.

    None unless torch traces the call: it is torch's own code that asks for a constant then, and not this file's.
    """
    global _Tensor, _operators, _is_static, _records
    torch: Any = sys.modules.get("torch")
    if torch is None or not (torch.compiler.is_compiling() or sys._getframe(1).f_globals is not globals()):
        return None
    with _guard:
        # One thread defines the operator: torch refuses a second definition of a name.
        assert _functions[name].operator.library is not None
    _Tensor, _operators, _records = torch.Tensor, torch.ops.triton_ops, torch.is_grad_enabled
    _is_static = require("torch.fx.experimental.symbolic_shapes", "torch.compile").has_static_value
    return _functions[name].kinds


@constant
def _text(name: str, _generation: str, *call: Any) -> str:
    return _functions[name].text(*call)


def _traced(name: str, kinds: tuple[bool, bool, bool], training: Any, args: Any, kwargs: Any) -> Any:
    """The call of an operator; torch traces this code."""
    takes_config, may_stand, trains = kinds
    fixed = may_stand and not for_compiled.asked and not kwargs.get("tune", False)
    facts: list[Any] = []
    for value in (*args, *kwargs.values()):
        if not isinstance(value, _Tensor):
            fixed = fixed and (not isinstance(value, Number) or _is_static(value))
            facts.append((value,))
            continue
        if trains and value.requires_grad and _records():
            return training(*args, **kwargs)[0]
        for extent in value.shape:
            fixed = fixed and _is_static(extent)
        if fixed:
            sizes = [index(extent) for extent in value.shape], [index(step) for step in value.stride()]
            facts.append((*sizes, value.dtype, value.device, value.requires_grad))
    if takes_config:
        text = _text(name, for_compiled.generation, kwargs.get("config"), facts if fixed else (), (*kwargs,))
        kwargs = {**kwargs, "config": text}
    return getattr(_operators, name)(*args, **kwargs)


def _storages(values: Iterable[Any]) -> set[int]:
    """The storages of the tensors among values."""
    return {each.untyped_storage()._cdata for each in values if Arguments.is_tensor(each)}


def _facts(value: Any) -> Sequence[Any]:
    """What a trace would know of an argument."""
    if not Arguments.is_tensor(value):
        return (value,)
    return [*value.shape], [*value.stride()], value.dtype, value.device, value.requires_grad


def _fake(facts: Sequence[Any]) -> Any:
    """The argument of which a trace knows these facts: a value, or what a tensor is made of."""
    if len(facts) == 1:
        return facts[0]
    shape, strides, dtype, device, requires_grad = facts
    made = require("torch", "torch.compile").empty_strided(shape, strides, dtype=dtype, device=device)
    return made.requires_grad_(requires_grad)


def compilable(
    schema: str, *, gradient: Gradient | None = None, training: Any = None, counts: Callable[..., Any] | None = None
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorator of a public function, whose call is one operator while torch traces it.

    `schema` are the function's arguments with their defaults, and its results, as torch writes them; `config` is a
    text. `training` is another such function of the same arguments, whose first result is that of this one: called
    where a gradient will be asked for. `counts` is as for `KnownCalls`.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        checked = _with_options(function)
        name, repeats = function.__name__.strip("_"), partial(planned, counts=counts)
        operator = Operator(name=name, schema=schema, run=checked, gradient=gradient, repeats=repeats)
        calls = PlannedCalls(lambda *args, **kwargs: unknown(*args, **kwargs), operator.attached, counts)
        _functions[name] = FunctionInCompile(checked, operator, trains=training is not None)

        def unknown(*args: Any, **kwargs: Any) -> Any:
            kinds = _kinds(name)
            return checked(*args, **kwargs) if kinds is None else _traced(name, kinds, training, args, kwargs)

        @wraps(function)
        def public(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            if _may_be_traced() and (kinds := _kinds(name)) is not None:
                return _traced(name, kinds, training, args, kwargs)  # type: ignore[no-any-return]
            if training is not None and recorded((*args, *kwargs.values())):
                return training(*args, **kwargs)[0]  # type: ignore[no-any-return]
            if kwargs and hasattr(kwargs.get("config"), "all_kwargs"):
                kwargs["config"] = _plain(kwargs["config"])  # may be changed in place
            return calls.call(*args, **kwargs)  # type: ignore[no-any-return]

        own: Any = public
        own.__code__ = own.__code__.replace()  # torch tells functions apart by their code
        own.calls, own.why = calls, _functions[name].why
        return public

    return decorate


def _with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose options are checked before it is called."""

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        _check_options(kwargs)
        if kwargs.get("config") is not None:
            kwargs["config"] = _plain(kwargs["config"])
        return function(*args, **kwargs)

    return checked


def _check_options(options: Mapping[str, Any]) -> None:
    """Check the two options that every public function with a config has; ConfigValueError, SettingsError."""
    config, tune = options.get("config"), options.get("tune", False)
    if config is not None:
        TritonKernel.values_of(config)
    if type(tune) is not bool:
        raise SettingsError(f"tune is {tune!r}; it must be True or False")


def _plain(config: Any) -> Mapping[str, Any]:
    """A config as a mapping, a `triton.Config` too, without those of Triton's options that ask for nothing."""
    values = TritonKernel.values_of(config)
    left_open = {name for name, value in OPEN.items() if name in values and values[name] == value}
    return {name: value for name, value in values.items() if name not in left_open} if left_open else values
