"""What memory a tune takes at least, and how it gets on with less."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from triton_ops.backend import Arguments, Protection
from triton_ops.exceptions import UntunedError
from triton_ops.request import KernelProblem
from triton_ops.values import TensorSpec


@dataclass(frozen=True, kw_only=True)
class TuneMemory:
    """The bytes that a tune takes on its device by what takes them.

    These are the private arguments; what inputs are compared with, and restored from; what outputs are compared with;
    and what is written to empty L2. Further arguments, golden results and copies of results are made only where there
    is room for them. `on_host` says whether copies may be on the host instead, as on a GPU with memory of its own.
    """

    arguments: int
    inputs: int
    results: int
    flush: int
    on_host: bool = False

    @classmethod
    def of(cls, problem: KernelProblem) -> TuneMemory:
        """The memory of a tune of a problem; results that are returned, and not written to arguments, are not known."""
        gpu, given = not problem.device.is_cpu, problem.arguments_or_specs
        outputs = _bytes_of({name: given.keyword.get(name) for name in problem.kernel.outputs}.values())
        whole = _bytes_of((*given.positional, *given.keyword.values()))
        changed = (
            outputs if problem.kernel.outputs or not gpu else whole
        )  # a kernel changes some, and nobody says which
        times = 2 if problem.reference is not None else 1  # its own results, and a copy of them
        flush = (problem.device.l2_bytes or 0) if gpu and problem.cold else 0
        return cls(arguments=whole, inputs=whole - outputs, results=times * changed, flush=flush, on_host=gpu)

    @property
    def total(self) -> int:
        """The sum."""
        return self.arguments + self.inputs + self.results + self.flush

    def within(self, most_bytes: int) -> TuneMemory | None:
        """The parts that are taken within so many bytes; None where they are too many."""
        if self.total <= most_bytes:
            return self
        fewer = replace(self, inputs=0) if self.on_host else self
        return fewer if fewer.total <= most_bytes else None

    def refusal(self, problem: KernelProblem, most_bytes: int, why: str = "") -> UntunedError:
        """The error that says why a problem is not tuned within so many bytes, and how many it takes at least."""
        least = replace(self, inputs=0) if self.on_host else self
        parts = {"arguments": least.arguments, "copies of inputs": least.inputs, "results": least.results,
                 "emptying L2": least.flush}  # fmt: skip
        told = ", ".join(f"{name} {count:,}" for name, count in parts.items() if count)
        what, name = why or f"that takes at least {least.total:,} bytes: {told}", problem.problem
        message = f"{name} is not tuned within {most_bytes:,} bytes, and the default config is used: {what}"
        hint = "allow more: memory_bytes, or TRITON_OPS_MEMORY"
        return UntunedError(message, name.kernel, name.label, hint=hint)


def _bytes_of(values: Iterable[Any]) -> int:
    """The bytes of arguments: of storages and arrays, each once, and of specs."""
    values = tuple(values)
    specs = Arguments.tensors_in(values, lambda each: isinstance(each, TensorSpec))
    storages = (each.untyped_storage() for each in Arguments.tensors_in(values))
    each_once: dict[int, int] = {each.data_ptr(): each.nbytes() for each in storages}
    on_host = filter(Arguments.is_array, Protection.host_values(values))
    arrays: dict[int, int] = {id(each): each.nbytes for each in on_host}
    return sum((int(each.nbytes) for each in specs), sum(each_once.values()) + sum(arrays.values()))
