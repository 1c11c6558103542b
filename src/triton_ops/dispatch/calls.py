"""What a call of a decorated kernel is as a problem: values that decide the config, and classes of the other arguments.

The key of a decorator says which values decide. Beside them a problem holds the dtypes of all tensors, and, under
`NAME:class`, what Triton specialises code on: alignment, being 1 or a multiple of 16, and the values of other constexpr
parameters. A winner may be borrowed over another class; it is never taken for an exact one.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_ops._hashing import canonical_json
from triton_ops.backend import Arguments, is_tensor
from triton_ops.backend.fast_launch import FastLaunch
from triton_ops.backend.host_values import check_no_arrays
from triton_ops.backend.signatures import parameters_of
from triton_ops.backend.unwrap import unwrap
from triton_ops.buckets import Mapper
from triton_ops.cache.key import Argument
from triton_ops.exceptions import ConfigCollisionError, DeviceError
from triton_ops.problem import plain
from triton_ops.task.request import spec_of
from triton_ops.tensors import ALIGNMENT_BYTES, TensorSpec, check_memory, check_strided, is_fake

_STEP = 16  # Triton specialises integers on being a multiple of this
_SHOWN = 6


@dataclass(frozen=True, kw_only=True)
class CalledWith:
    """The problem of one call.

    Attributes:
        problem: Name to value, dtype or class, as it stands in a key.
        loose: The names in it that a borrowed winner may differ in.
        label: The problem in short.
        given: The kernel's arguments by name, without what is no parameter.
        asked: The problem with its own values: no range of a bucket, and what is ignored as well.
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
        """Check the tensors of the call: that kernels can take them and, where it is launched, that they have memory.

        Raises:
            KernelTypeError, UnsupportedDtypeError, DeviceError: A tensor is sparse, nested or quantised; or is fake, or
                on the device `meta`.
        """
        checked = check_memory if launched else check_strided
        for name, value in self.given.keyword.items():
            if is_tensor(value):
                checked(value, name)

    def explain(self, error: Exception, launches: FastLaunch) -> None:
        """Say what is wrong with the tensors of the call, if that is why its launch failed.

        Args:
            error: What Triton raised: of a sparse tensor that it has no storage, of one on the CPU a `ValueError`, or
                without a GPU that there is no driver.
            launches: Those of the kernel.

        Raises:
            KernelTypeError, UnsupportedDtypeError, DeviceError: A tensor is nothing that could be launched on.
        """
        self.check()
        if launches.compiled:
            check_no_arrays(launches.name, self.given.keyword)
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
    """How the calls of one kernel become problems.

    Attributes:
        parameters: The kernel's parameters, in order.
        constexprs: Those that are constants of the compiled code.
        keys: Those whose values decide the config.
        mapper: Which values share one winner.
    """

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
        given = {**dict(zip(self.parameters, args, strict=False)), **kwargs}
        named = {name: given[name] for name in self.parameters if name in given}
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
        """What an argument adds to the problem."""
        if is_tensor(value):
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
            check_strided(tensor, name)
            raise
        dtype = str(tensor.dtype).removeprefix("torch.")
        return {name: f"{dtype}{shape}", f"{name}:class": "aligned" if aligned else "not aligned"}

    def _label(self, named: Mapping[str, Any]) -> str:
        parts = [f"{name}={named[name]}" for name in self.keys if name in named and not is_tensor(named[name])]
        dtypes = dict.fromkeys(str(v.dtype).removeprefix("torch.") for v in named.values() if is_tensor(v))
        return " ".join([*parts[:_SHOWN], *dtypes])


def refuse_tuned(given: Collection[str], tuned: Collection[str], kernel: str) -> None:
    """Raise if a call gives a value to a parameter that is tuned.

    Raises:
        ConfigCollisionError: It does.
    """
    if clash := sorted({*given}.intersection(tuned)):
        raise ConfigCollisionError(
            f"{', '.join(clash)} is tuned, and a call of {kernel} gives it as well",
            hint="leave it out of the call, or call the kernel below the decorator: kernel.fn[grid](...)",
        )


def _annotation(parameter: inspect.Parameter) -> str:
    found = parameter.annotation
    return found if isinstance(found, str) else getattr(found, "__name__", str(found))


def _plain(value: Any) -> Any:
    found = spec_of(value)
    return str(found) if isinstance(found, TensorSpec) else plain(found)


def _class_of_integer(value: Any) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return type(value).__name__
    wide = "" if -(1 << 31) <= value < 1 << 31 else " of 64 bits"
    return "1" if value == 1 else f"{'a multiple of 16' if value % _STEP == 0 else 'no multiple of 16'}{wide}"
