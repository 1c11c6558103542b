"""Problems of the calls of a decorated kernel: values that decide the config, and classes of the other arguments.

The key of a decorator says which values decide. Beside them a problem holds the dtypes of all tensors, and, under
`NAME:class`, what Triton specialises code on: alignment, being 1 or a multiple of 16, and the values of other constexpr
parameters. A winner may be borrowed over another class; it is never taken for an exact one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_ops.backend import Arguments, parameters_of, unwrap
from triton_ops.base import canonical_json
from triton_ops.dispatch.fast_launch import FastLaunch
from triton_ops.exceptions import ConfigCollisionError, DeviceError
from triton_ops.request import spec_of
from triton_ops.values import ALIGNMENT_BYTES, Argument, Key, Mapper, Problem, TensorSpec, is_fake

FARTHEST = 1.0  # |log2| of the ratios of all extents together: a winner is borrowed over a factor of two
OTHER_VERSIONS = FARTHEST / 1024  # of two winners for equal problems that of these versions is nearer


def distance(key: Key, other: Key, loose: Collection[str], *, near: bool) -> float | None:
    """Distance of the problem of `other` from that of `key`, a winner's; None if its winner cannot be borrowed.

    It is |log2| of the ratios of all extents together: 1 for a factor of two. Problems may differ in the `loose` names,
    and, if `near`, in extents and versions.
    """
    if other.device.get("name") != key.device.get("name") or other.device.get("arch") != key.device.get("arch"):
        return None
    if other.identity.get("source") != key.identity.get("source") or other.problem.keys() != key.problem.keys():
        return None
    strict = dict(other.identity) == dict(key.identity) and dict(other.device) == dict(key.device)
    strict = strict and (other.cache_state, dict(other.held_to)) == (key.cache_state, dict(key.held_to))
    if not (strict or near):
        return None
    pairs: set[tuple[int, int]] = set()  # equal pairs count once: M is an argument, and an extent of two tensors
    for name, mine in key.problem.items():
        numbers = set() if name in loose else _pairs(mine, other.problem[name])
        if numbers is None or (numbers and not near):
            return None
        pairs |= numbers
    total = sum(abs(math.log2(mine / theirs)) for mine, theirs in pairs)
    total += 0.0 if strict else OTHER_VERSIONS
    return total if total <= FARTHEST + 2 * OTHER_VERSIONS else None


def _pairs(mine: Any, theirs: Any) -> set[tuple[int, int]] | None:
    """The numbers in which two arguments differ; None if they differ in anything else, or in 0 or 1."""
    if type(mine) is type(theirs) and mine == theirs:
        return set()
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping) and mine.keys() == theirs.keys():
        each = [_pairs(mine[name], theirs[name]) for name in mine if name != "stride"]
        each.append(None if _steps(mine) != _steps(theirs) else set())
    elif isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)) and len(mine) == len(theirs):
        each = [_pairs(one, other) for one, other in zip(mine, theirs, strict=True)]
    else:
        numbers = all(type(value) is int and value > 1 for value in (mine, theirs))
        return {(mine, theirs)} if numbers else None
    return None if None in each else set().union(*(pairs for pairs in each if pairs is not None))


def _steps(facts: Mapping[str, Any]) -> list[Any]:
    return [step if step in (0, 1) else None for step in facts.get("stride", ())]


_STEP = 16  # Triton specialises integers on being a multiple of this
_SHOWN = 6


@dataclass(frozen=True, kw_only=True)
class CalledWith:
    """The problem of one call: `problem` as it stands in a key, and in short as `label`.

    A borrowed winner may differ in the names `loose`. `given` are the kernel's arguments by name, without what is no
    parameter; `asked` is the problem with its own values: no range of a bucket, and what is ignored as well.
    """

    problem: Mapping[str, Argument]
    loose: frozenset[str]
    label: str
    given: Arguments = field(compare=False)
    asked: Mapping[str, Argument] = field(default_factory=dict, compare=False)

    @property
    def text(self) -> str:
        """Equal for equal problems."""
        return canonical_json(dict(self.problem))

    @property
    def own_text(self) -> str:
        """Equal for calls that are equal in every value that a bucket may take together."""
        return canonical_json(dict(self.asked))

    def check(self, *, launched: bool = True) -> None:
        """Check that kernels can take the tensors of the call, and, where it is launched, that they have memory."""
        checked = TensorSpec.check_memory if launched else TensorSpec.check_strided
        for name, value in self.given.keyword.items():
            if Arguments.is_tensor(value):
                checked(value, name)

    def explain(self, error: Exception, launches: FastLaunch) -> None:
        """Raise as `check` or DeviceError if the tensors of the call are why its launch failed.

        Triton raises of a sparse tensor that it has no storage, of one on the CPU a `ValueError`, or without a GPU that
        there is no driver.
        """
        self.check()
        if launches.compiled:
            Arguments.check_no_arrays(launches.name, self.given.keyword)
        if launches.compiled and self.device == "cpu" and (isinstance(error, ValueError) or not launches.driven):
            raise DeviceError(
                "the tensors are on the CPU, and a Triton kernel runs on a GPU", "cuda", "cpu",
                hint="move them to a GPU: tensor.cuda(); or run it as Python with TRITON_INTERPRET=1",
            ) from error  # fmt: skip

    @property
    def device(self) -> str:
        """The torch name of the first tensor's device; empty without tensors."""
        return next((str(tensor.device) for tensor in self.given.tensors()), "")


@dataclass(frozen=True)
class Calls:
    """The rule by which calls of one kernel become problems: the values of `keys` decide, or as `mapper` has it."""

    parameters: Mapping[str, inspect.Parameter]
    constexprs: frozenset[str]
    keys: tuple[str, ...]
    mapper: Mapper

    @classmethod
    def of(cls, function: Any, keys: Sequence[str], mapper: Mapper) -> Calls:
        """The calls of a JIT function, or of one with heuristics around it."""
        parameters = parameters_of(unwrap(function))
        constexprs = frozenset(name for name, each in parameters.items() if "constexpr" in _annotation(each))
        return cls(parameters, constexprs, tuple(name for name in keys if name in parameters), mapper)

    def problem(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CalledWith:
        """The problem of a call."""
        values = {**dict(zip(self.parameters, args, strict=False)), **kwargs}
        named = {name: values[name] for name in self.parameters if name in values}
        defaults = {name: each.default for name, each in self.parameters.items() if each.default is not each.empty}
        facts: dict[str, Argument] = {}
        for name, value in {**defaults, **named}.items():
            facts.update(self._facts(name, value))
        keyed = self.mapper.keyed(facts) if self.mapper.buckets or self.mapper.ignored else facts
        ranged = {name for bucket in self.mapper.buckets for name in bucket.extents}
        classes = {f"{name}:class": _class_of_integer(named[name]) for name in ranged.intersection(named)}
        keyed = {**keyed, **classes}
        loose = frozenset(name for name in keyed if name.endswith(":class"))
        return CalledWith(
            problem=keyed,
            loose=loose,
            label=self._label(named),
            given=Arguments(keyword=named),
            asked={**facts, **classes},
        )

    def _facts(self, name: str, value: Any) -> dict[str, Argument]:
        if Arguments.is_tensor(value):
            return self._facts_of_tensor(name, value)
        if name in self.keys:
            return {name: _plain(value)}
        if name in self.constexprs:
            return {f"{name}:class": _plain(value)}
        if isinstance(value, int) and not isinstance(value, bool):
            return {f"{name}:class": _class_of_integer(value)}
        if value is None or isinstance(value, (bool, float)):
            return {name: type(value).__name__}
        return {name: _plain(value)}

    def _facts_of_tensor(self, name: str, tensor: Any) -> dict[str, Argument]:
        try:
            aligned = is_fake(tensor) or tensor.data_ptr() % ALIGNMENT_BYTES == 0
            shape = f" {'x'.join(map(str, tensor.shape))}" if name in self.keys else ""
        except RuntimeError:  # there is no such address, or no shape
            TensorSpec.check_strided(tensor, name)
            raise
        dtype = str(tensor.dtype).removeprefix("torch.")
        return {name: f"{dtype}{shape}", f"{name}:class": "aligned" if aligned else "not aligned"}

    def _label(self, named: Mapping[str, Any]) -> str:
        parts = [
            f"{name}={named[name]}" for name in self.keys if name in named and not Arguments.is_tensor(named[name])
        ]
        dtypes = dict.fromkeys(str(v.dtype).removeprefix("torch.") for v in named.values() if Arguments.is_tensor(v))
        return " ".join([*parts[:_SHOWN], *dtypes])


def refuse_tuned(names: Collection[str], tuned: Collection[str], kernel: str) -> None:
    """Raise ConfigCollisionError if a call gives a value to a parameter that is tuned."""
    if clash := sorted({*names}.intersection(tuned)):
        raise ConfigCollisionError(
            f"{', '.join(clash)} is tuned, and a call of {kernel} gives it as well",
            hint="leave it out of the call, or call the kernel below the decorator: kernel.fn[grid](...)",
        )


def _annotation(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _plain(value: Any) -> Any:
    spec = spec_of(value)
    return str(spec) if isinstance(spec, TensorSpec) else Problem.plain(spec)


def _class_of_integer(value: Any) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return type(value).__name__
    wide = "" if -(1 << 31) <= value < 1 << 31 else " of 64 bits"
    return "1" if value == 1 else f"{'a multiple of 16' if value % _STEP == 0 else 'no multiple of 16'}{wide}"
