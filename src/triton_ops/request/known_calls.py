"""Calls that are known: one look-up by what of their arguments counts, by a function that is written for them.

Of a tensor counts its class, shape, strides, dtype, device, alignment, and whether it has memory, and of anything else
its class and itself, or its description where it cannot be hashed. A function is written for each pattern of arguments:
which are tensors, and of which class, which have to be described, and which come by name. What does not fit has another
pattern. Tensors without memory, with which torch traces, are decided at each call.

Of the last calls of a pattern torch itself tells whether a call is like them, at once for all of its tensors, which
takes a tenth of a key's time. A key that was found is told so from then on.

Facts used, from torch 2.11 to 2.13: `Tensor.shape`, `dtype` and `device` hash and compare by value;
`torch._C._is_any_autocast_enabled()`. `torch._C._dynamo.guards.TensorGuards` is made of tensors with their sizes and
strides by name. Its `check` tells of as many tensors whether each is of the same class, dtype, device, sizes, strides
and `requires_grad`. It also compares dispatch keys with those of a like tensor here and now, which say whether one is
negated, wrapped or cast. It holds no tensor, and is false where a tensor comes twice.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from triton_ops.backend import Arguments
from triton_ops.base import BoundedDict, require
from triton_ops.request.request import spec_of
from triton_ops.values import ALIGNMENT_BYTES, is_fake

V = TypeVar("V")

_MOST = 4_096  # calls of one memory
_MOST_PATTERNS = 256
_MOST_IN_TURN = 4  # patterns
_MOST_RECENT, _SELDOM = 4, 16  # calls of a pattern that torch tells; of further ones one of so many takes a place
_VALUE, _DESCRIBED = "value", "described"
_COUNTS: dict[Any, tuple[str, ...]] = {
    _VALUE: ("{0}.__class__", "repr({0}) if {0}.__class__ is float and not {0} else {0}"),  # -0.0 equals 0.0
    _DESCRIBED: ("{0}.__class__", "description({0})"),
}
"""What counts of an argument of each kind, as expressions of its name."""
_OF_TENSORS = (
    "{0}.__class__", "{0}.dtype", "{0}.device",
    f"({{0}}_at := {{0}}.data_ptr()) & {ALIGNMENT_BYTES - 1} or {{0}}_at and {ALIGNMENT_BYTES}",  # 0 without memory
)  # fmt: skip
_SIZES = ("{0}.shape", "{0}.stride()")
_LENGTH = "{0}.numel().bit_length()"
_PLAIN = frozenset({bool, int, float, str, type(None)})
_code = lru_cache(_MOST_PATTERNS)(partial(compile, filename="<known calls>", mode="exec"))
_UNTOLD = (AttributeError, TypeError, RuntimeError)  # cannot be hashed, or a tensor has no strides or no address
MISS = type("Miss", (), {"__repr__": lambda _: "miss", "__slots__": ()})()
"""What `run` of a known call returns, with nothing done, where the call is not plainly the same as before."""


class KnownCall(NamedTuple):
    """What a known call comes to; `up` counts it. It holds while `ask()` gives `answer`, or if `ask` is None.

    `run` may return `MISS`: the call is then decided anew.
    """

    run: Callable[..., Any]
    up: Callable[[], Any] | None = None
    ask: Callable[[], Any] | None = None
    answer: Any = None
    decision: Any = None

    @property
    def holds(self) -> bool:
        """Tell whether a call now is decided alike."""
        return self.ask is None or self.ask() == self.answer


class KnownCalls(BoundedDict[Any, V], Generic[V]):
    """What is known of calls, by their places. Safe to share among threads.

    `call` runs the `KnownCall` of its arguments, or what `decide` gives for them and their place; a few patterns are
    asked in turn whether it is of theirs. `modes` of torch count beside tensors:
    `autocast`, by which it chooses dtypes, and `gradients`, that it records one for a tensor. `plain` takes only
    tensors, numbers and texts.
    With `in_order` what is known is run with the values of a call in order, whether they came by name or not.
    `counts` gives what else of a call's arguments counts, such as a distance between two of them.
    `general` has by `family` what is run for calls of new sizes, in order, until one returns no `MISS`.
    """

    def __init__(
        self, decide: Callable[[Sequence[Any], Mapping[str, Any], Any], KnownCall] | None = None,
        modes: Collection[str] = (), *, plain: bool = False, in_order: bool = False,
        counts: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(_MOST)
        self._decide, self._modes, self._plain, self._in_order, self._counts = decide, modes, plain, in_order, counts
        self._patterns = BoundedDict[Any, _Pattern](_MOST_PATTERNS)
        self._in_turn: list[_Pattern] = []
        self._recent: dict[int, tuple[tuple[Callable[..., bool], Any, Any, Any], ...]] = {}
        self._numbers, self._found = itertools.count(), itertools.count()
        self._locks: defaultdict[Any, threading.RLock] = defaultdict(threading.RLock)
        self._guard = threading.Lock()  # of who is asked in turn
        self.general: dict[Any, tuple[Callable[..., Any], ...]] = {}
        self._late: Any = None
        self.call: Callable[..., Any] = self._first

    def clear(self) -> None:
        """Forget every call."""
        super().clear()
        self._recent.clear()

    def pop(self, place: Any, *default: Any) -> Any:
        """Forget one call, and return what was known of it."""
        known = super().pop(place, *default)
        self._recent.clear()
        return known

    def begin_anew(self) -> None:
        """Forget every call and every lock, in a forked child, whose other threads are gone."""
        self._locks, self._guard = defaultdict(threading.RLock), threading.Lock()
        self.clear()

    def place(self, args: Sequence[Any], kwargs: Mapping[str, Any], *more: Any) -> Any:
        """The place of a call, and of whatever `more` decides; None where the call cannot be told from others."""
        values = (*args, *kwargs.values()) if self._plain else ()
        if any(type(value) not in _PLAIN and not Arguments.is_tensor(value) for value in values):
            return None
        try:
            key = self._pattern(args, kwargs).key(*args, **kwargs)
            place = (more, key) if more else key
            hash(place)
        except _UNTOLD:
            return None
        return place

    @staticmethod
    def family(place: Any, values: Sequence[Any]) -> Any:
        """What calls share that differ in sizes, up to a power of two of each tensor's elements."""
        return place[1], *(value.numel().bit_length() for value in values if Arguments.is_tensor(value))

    def keep(self, place: Any, value: V) -> None:
        """Remember what is known of a call; not of one without a place."""
        if place is None:
            return
        self[place] = value
        self._recent.clear()

    def of(self, place: Any, make: Callable[[], V], kept: Callable[[V], bool] = lambda _value: True) -> V:
        """What is known of a call, if its `holds` is true; else it is made anew, while other threads wait."""
        if place is None:
            return make()
        if (value := self.get(place)) is not None and cast(Any, value).holds:
            return value
        with self._locks[place]:
            if (value := self.get(place)) is None or not cast(Any, value).holds:
                try:
                    value = make()
                    if kept(value):
                        self.keep(place, value)
                finally:
                    self._locks.pop(place, None)  # who waits for it has it; later calls find the value
        return value

    def _promote(self, family: Any, run: Callable[..., Any]) -> None:
        """Have what was run be asked first from now on, if it was the one before that was not."""
        if self._late is run and run in (runs := self.general.get(family, ())):
            self.general[family] = (run, *(each for each in runs if each is not run))
        self._late = run

    def _learn(self, number: int, place: Any, known: Any, tensors: Sequence[Any], others: Any, family: Any) -> None:
        """Have torch tell calls like this one, of the pattern of this number, whose other values are these.

        What is known of a `family` tells sizes itself, but for those that the family has.
        """
        before = self._recent.get(number, ())
        if len(before) == _MOST_RECENT and next(self._found) % _SELDOM:
            return
        sizes, strides = [[*each.shape] for each in tensors], [[*each.stride()] for each in tensors]
        if family is not None:
            sizes = strides = [[None] * each.ndim for each in tensors]
        guards = require("torch", "a call with tensors")._C._dynamo.guards.TensorGuards
        check = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        self._recent[number] = ((check, others, family and family[1:], known), *before[: _MOST_RECENT - 1])
        stays = self.get(place) is known if family is None else known.run in self.general.get(family, ())
        if not stays:  # another thread has forgotten it meanwhile
            self._recent.clear()

    def _first(self, *args: Any, **kwargs: Any) -> Any:
        return self._otherwise(None, args, kwargs)

    def _otherwise(self, call: Any, args: Sequence[Any], kwargs: Mapping[str, Any], place: Any = None) -> Any:
        """The result of what `call`, which is written for one pattern, does not know: of another one, or not at all."""
        assert self._decide is not None
        own: _Pattern | None
        try:
            own = self._pattern(args, kwargs)
        except _UNTOLD:
            own = place = None
        if own is not None and own.call is not call:
            self._ask(own)
            return own.call(*args, **kwargs)
        known = self._decide(args, kwargs, place)
        result = known.run(*args, *kwargs.values()) if self._in_order else known.run(*args, **kwargs)
        if known.up is not None:
            known.up()
        return result

    def _ask(self, pattern: _Pattern) -> None:
        """Have a pattern asked after those that are asked in turn, or first where these are many."""
        with self._guard:
            if pattern in self._in_turn:
                return
            if 0 < len(self._in_turn) < _MOST_IN_TURN:
                self._in_turn[-1].after.insert(0, pattern.call)
            else:
                for each in self._in_turn:
                    del each.after[:-1]
                self._in_turn.clear()
                self.call = pattern.call
            self._in_turn.append(pattern)

    def _pattern(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Pattern:
        """The functions for calls like this one; raises TypeError for tensors without memory, with which torch traces.

        Such a one is not asked for its address, of which torch would warn.
        """
        values, names = (*args, *kwargs.values()), tuple(kwargs)
        classes = tuple(map(type, values))
        if (pattern := self._patterns.get((classes, names))) is not None:
            return pattern
        if any(map(is_fake, values)):
            raise TypeError("a tensor without memory has no pattern")
        kinds = tuple(map(_kind, values))
        told = all(kind is own or own in _PLAIN for kind, own in zip(kinds, classes, strict=True))
        form = (classes, names) if told else (classes, names, kinds)
        if (pattern := self._patterns.get(form)) is None:
            pattern = self._patterns[form] = self._written(kinds, classes, names)
        return pattern

    def _written(self, kinds: tuple[Any, ...], classes: tuple[type, ...], names: tuple[str, ...]) -> _Pattern:
        values = [f"value_{place}" for place in range(len(kinds))]  # no name of the caller's, which may be any
        count = len(kinds) - len(names)
        pairs = list(zip(values, kinds, strict=True))
        facts = [part.format(value) for value, kind in pairs for part in _COUNTS.get(kind, _OF_TENSORS)]
        sizes = [part.format(value) for value, kind in pairs if kind not in _COUNTS for part in _SIZES]
        tensors = [value for value, kind in pairs if kind not in _COUNTS]
        fixed = {value: own for value, own in zip(values, classes, strict=True) if value in tensors or own in _PLAIN}
        scope: dict[str, Any] = {
            "otherwise": self._otherwise, "get": self.get, "description": _description,
            "general": self.general.get, "promote": self._promote, "recent": self._recent.get, "learn": self._learn,
            "known_call": KnownCall,
            "no_key": _UNTOLD, "miss": MISS, "counts": self._counts,
            **{f"{value}_class": own for value, own in fixed.items()},
        }  # fmt: skip
        if tensors and self._modes:
            torch = require("torch", "a call with tensors")
            scope |= {"autocast": torch._C._is_any_autocast_enabled, "recording": torch.is_grad_enabled}
            facts += ["autocast()"] if "autocast" in self._modes else []
            needs = [f"{tensor}.requires_grad" for tensor in tensors]
            recorded = f"({' or '.join(needs)}) and recording() and ({', '.join(needs)},)"
            facts += [recorded] if "gradients" in self._modes else []
        facts += ["counts(*args, **kwargs)"] if self._counts is not None else []
        bindings = [f"{', '.join(values[:count])}, = args"] if count else []
        bindings += [f"{value} = kwargs[{name!r}]" for name, value in zip(names, values[count:], strict=True)]
        passed = "*args, **kwargs" if names and not self._in_order else ", ".join(values)
        told = {"last": "", "alike": "None", "learnt": "pass", "learnt_of_family": "pass"}
        if _can_be_told([fixed[tensor] for tensor in tensors]):
            others = [part.format(value) for value, kind in pairs for part in _COUNTS.get(kind, ())[value in fixed :]]
            others += [fact for fact in facts[-2:] if fact.startswith("counts(")]
            others += ["recording()"] if "gradients" in self._modes else []
            same = [f"{value}.__class__ is {value}_class" for value in fixed if value not in tensors]
            told = _told(next(self._numbers), tensors, same, _tuple(others), passed)
        source = _CALL.format(
            **told,
            known=_KNOWN.format(passed=passed, learnt=told["learnt"]),
            key=f"({_tuple(sizes)}, {_tuple([*([repr(names)] if names else []), *facts])})",
            family=", ".join(["place[1]", *map(_LENGTH.format, tensors)]),
            fits=f"len(args) == {count} and " + (f"tuple(kwargs) == {names!r}" if names else "not kwargs"),
            same=" and ".join(f"{value}.__class__ is {value}_class" for value in fixed) or "True",
            taken="; ".join(bindings) or "pass",
            passed=passed,
        )  # fmt: skip
        # Of the caller's own there are only names of arguments in it, each as the literal of a text.
        exec(_code(source), scope)
        for function in (scope["key"], scope["call"]):
            # A copy: CPython specialises a code object for the values that its names have, and `_code` shares this one.
            function.__code__ = function.__code__.replace()
        return _Pattern(scope["key"], scope["call"], scope["after"])


class _Pattern(NamedTuple):
    """The functions that are written for calls of one pattern: their key, the call itself, and who is asked next."""

    key: Callable[..., Any]
    call: Callable[..., Any]
    after: list[Callable[..., Any]]


_KNOWN = """    if known is not None:
        run, up, ask, answer, _ = known
        if ask is None or ask() == answer:
            result = run({passed})
            if result is not miss:
                if up is not None:
                    up()
                {learnt}
                return result
"""

_CALL = """
def key(*args, **kwargs):
    {taken}
    return {key}

def of_another(*args, **kwargs):
    return otherwise(call, args, kwargs)

after = [of_another]

def call(*args, **kwargs):
    if not ({fits}):
        return after[0](*args, **kwargs)
    {taken}
{last}    if not ({same}):
        return after[0](*args, **kwargs)
    try:
        place = {key}
        known, alike = get(place), {alike}
    except no_key:
        place = known = None
{known}    elif place is not None:
        family = {family},
        runs = general(family, ())
        for run in runs:
            result = run({passed})
            if result is not miss:
                if run is not runs[0]:
                    promote(family, run)
                {learnt_of_family}
                return result
    return otherwise(call, args, kwargs, place)
"""

_LAST = """    known = None
    try:
        for check, alike, lengths, found in recent({number}, ()):
            if {like}:
                known = found
                break
    except no_key:
        pass
{known}"""


def _told(number: int, tensors: Sequence[str], same: Sequence[str], others: str, passed: str) -> dict[str, str]:
    """Parts of calls of the pattern of this number, of which torch itself tells whether one is like one of the last.

    All `tensors` are aligned, have memory, and are other ones. `same` has conditions on the other values, of which
    `others` count.
    """
    addresses = [f"({tensor}_at := {tensor}.data_ptr())" for tensor in tensors]
    at, all_tensors = [f"{tensor}_at" for tensor in tensors], _tuple(tensors)
    aligned = f"not ({' | '.join(at)}) & {ALIGNMENT_BYTES - 1}"
    like = " and ".join([*same, f"check({', '.join(tensors)})", *addresses, aligned, f"{others} == alike"])
    like += f" and (lengths is None or lengths == {_tuple(list(map(_LENGTH.format, tensors)))})"
    distinct = [f"{one} is not {other}" for one, other in itertools.combinations(tensors, 2)]
    return {
        "last": _LAST.format(number=number, like=like, known=_KNOWN.format(passed=passed, learnt="pass")),
        "alike": f"{others} if {' and '.join([*at, aligned, *distinct])} else None",
        "learnt": f"alike is None or learn({number}, place, known, {all_tensors}, alike, None)",
        "learnt_of_family": f"alike is None or learn({number}, place, known_call(run), {all_tensors}, alike, family)",
    }


def _can_be_told(classes: Sequence[type]) -> bool:
    """Whether torch itself tells whether tensors of these classes are like others."""
    torch: Any = sys.modules.get("torch")
    if not classes or torch is None or not hasattr(torch._C._dynamo.guards, "TensorGuards"):
        return False
    return all(each in (torch.Tensor, torch.nn.Parameter) for each in classes)


def _tuple(parts: Sequence[str]) -> str:
    return f"({''.join(f'{part}, ' for part in parts)})"


def _description(value: Any) -> Any:
    """What an argument that cannot be hashed, such as a config, holds now."""
    if type(value) is dict and not {*map(type, value.values())} - {bool, int, str}:
        return tuple(value.items()), tuple(map(type, value.values()))  # which takes less than a text
    return str(spec_of(value))


def _kind(value: Any) -> Any:
    """The class of a tensor; of what else a call may hold how it counts."""
    if value.__class__ in _PLAIN:
        return _VALUE
    if Arguments.is_tensor(value):
        return value.__class__
    try:
        hash(value)
    except TypeError:
        return _DESCRIBED
    return _DESCRIBED if isinstance(value, MutableMapping) else _VALUE
