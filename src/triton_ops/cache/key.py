"""The whole identity of a stored winner, in clear: what must be equal for the winner to hold.

The config space is not in it: a winner stays the winner of what was tried, and the record says which space that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from triton_ops._hashing import fingerprint
from triton_ops.hardware import DeviceSpec
from triton_ops.tensors import TensorSpec
from triton_ops.trial import Problem


@dataclass(frozen=True)
class Key:
    """What a record is about.

    Attributes:
        kernel: The kernel family's name.
        problem: Argument name to scalar, or to `{shape, dtype, stride, aligned}`.
        identity: Source fingerprint of the kernel and versions of what compiles it.
        device: Name, architecture, units and driver of the device.
        mode: Clock and cache state of the measurement; times of different modes never mix.
        label: The problem in short, for people; not part of the identity.
    """

    kernel: str
    problem: Mapping[str, Any]
    identity: Mapping[str, str]
    device: Mapping[str, Any]
    mode: str
    label: str = ""

    @classmethod
    def of(cls, problem: Problem, identity: Mapping[str, str], device: DeviceSpec, mode: str) -> Key:
        """The key of a problem on a device."""
        arguments = {name: _described(given) for name, given in problem.arguments}
        where = {name: getattr(device, name) for name in ("kind", "name", "arch", "units", "driver")}
        return cls(problem.kernel, arguments, dict(identity), where, mode, problem.label)

    @cached_property
    def id(self) -> str:
        """32 hexadecimal digits that name this key's content."""
        return fingerprint(self._content())

    def differences(self, other: Key) -> list[str]:
        """Every field in which `other` differs, as `field: this | other`; empty if they are the same key."""
        mine, theirs = _flattened(self._content()), _flattened(other._content())
        return [
            f"{name}: {mine.get(name, '(absent)')} | {theirs.get(name, '(absent)')}"
            for name in sorted({*mine, *theirs})
            if mine.get(name) != theirs.get(name)
        ]

    def _content(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "problem": dict(self.problem),
            "identity": dict(self.identity),
            "device": dict(self.device),
            "mode": self.mode,
        }


def _described(given: Any) -> Any:
    if isinstance(given, TensorSpec):
        return {
            "shape": list(given.shape), "dtype": given.dtype, "stride": list(given.strides), "aligned": given.aligned,
        }  # fmt: skip
    return given


def _flattened(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            flat.update(_flattened(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = list(value) if isinstance(value, tuple) else value
    return flat
