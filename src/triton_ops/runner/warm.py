"""Calls of `tune` whose winner this process has found before: the same call finds it again without asking everything.

A call is the same if its target, arguments as a key tells them, space and options are. What may have changed meanwhile
is asked at every call: the record's file, the identity of the kernel and of the functions that check it, the variables
of the environment that name a folder or an effort, the current GPU, and the number of CPU threads. Anything that is not
plainly the same takes the whole way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops._cpus import cpu_threads
from triton_ops.backend import Kernel, Operation, is_tensor, source_of
from triton_ops.backend.source import is_kept
from triton_ops.hardware import current_index
from triton_ops.problem import Problem
from triton_ops.space import ConfigSpace
from triton_ops.task.task import NamedProblem
from triton_ops.tensors import ALIGNMENT_BYTES, is_fake
from triton_ops.trial import TuningResult

_MOST = 1_024
_PLAIN = frozenset({bool, int, float, str, type(None)})
_COPIED = ("best_config", "guard", "totals", "all_results")  # that a caller may change


class _OtherwiseError(Exception):
    """Something in a call that cannot be told in a moment."""


@dataclass(frozen=True)
class _Hit:
    """What a call found, and what must be as it was."""

    holds: Any
    kernel: Kernel
    identity: dict[str, str]
    checks: tuple[tuple[Callable[..., Any], str], ...]
    path: Path
    stamp: tuple[int, int, int]
    threads: int
    result: TuningResult
    by_shape: tuple[NamedProblem, Problem] | None


_hits: dict[Any, _Hit] = {}
_refused: set[Any] = set()


def call_of(target: Any, args: Any, kwargs: Any, space: Any, options: Mapping[str, Any]) -> Any:
    """What names a call in this process; None if it cannot be told in a moment."""
    try:
        given = tuple(map(_told, args)), tuple([(name, _told(value)) for name, value in (kwargs or {}).items()])
        where = (*settings.named_folder_and_effort(), current_index())
        call = (id(target), given, _space(space), *options.values(), where)
        hash(call)
    except (_OtherwiseError, TypeError, AttributeError, RuntimeError):  # such as a tensor without an address
        return None
    return call


def hit(call: Any, start: float) -> TuningResult | None:
    """The result of an equal call before; None if there is none that holds."""
    found = _hits.get(call)
    if found is None:
        return None
    if (
        _stamp(found.path) != found.stamp
        or found.kernel.identity != found.identity
        or any(source_of(check).fingerprint != known for check, known in found.checks)
        or cpu_threads() != found.threads
        or _another_problem(found.by_shape)
    ):
        del _hits[call]
        return None
    result = object.__new__(TuningResult)
    result.__dict__.update(found.result.__dict__)
    for name in _COPIED:
        result.__dict__[name] = found.result.__dict__[name].copy()
    result.__dict__["elapsed_s"] = time.monotonic() - start
    return result


def remember(
    call: Any,
    target: Any,
    space: Any,
    kernel: Kernel,
    checks: Sequence[Callable[..., Any]],
    path: Path,
    result: TuningResult,
    by_shape: tuple[NamedProblem, Problem] | None,
) -> None:
    """Keep what a call has found on disk.

    Args:
        call: What names the call.
        target: Kept as long as the hit, so that no other object gets its place.
        space: Likewise.
        kernel: Its identity must stay equal.
        checks: Functions whose meaning must stay equal.
        path: The record's file.
        result: The result.
        by_shape: The shape of a call, and the problem that the operation made of it; None for the caller's arguments,
            which are not kept.
    """
    stamp = _stamp(path)
    if stamp is None:
        return
    if len(_hits) >= _MOST:
        _hits.clear()
    if call in _refused:
        return
    sources = [(check, source_of(check)) for check in checks]
    if not all(map(is_kept, checks)):  # to read them again at each call takes longer than the whole way
        if len(_refused) >= _MOST:
            _refused.clear()
        _refused.add(call)
        return
    known = tuple((check, source.fingerprint) for check, source in sources)
    _hits[call] = _Hit(
        (target, space), kernel, dict(kernel.identity), known, path, stamp, cpu_threads(), result, by_shape
    )


def _another_problem(by_shape: tuple[NamedProblem, Problem] | None) -> bool:
    """Whether the operation makes another problem of a shape than it did."""
    if by_shape is None:
        return False
    named, problem = by_shape
    return named.operation.problem(named.shape, named.dtype) != problem


def _told(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if is_tensor(value) and not is_fake(value):
        return value.shape, value.dtype, value.stride(), value.data_ptr() % ALIGNMENT_BYTES == 0, value.device
    raise _OtherwiseError


def _space(space: Any) -> Any:
    if space is None or isinstance(space, ConfigSpace):
        return id(space)
    if type(space) is dict:
        values = [space[name] for name in space]
        if all(type(each) in (list, tuple) and _PLAIN.issuperset(map(type, each)) for each in values):
            return repr(space)
    raise _OtherwiseError


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - a third of the time of `Path.stat`
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def checked_of(target: Any, *checks: Callable[..., Any] | None) -> list[Callable[..., Any]]:
    """The functions beside the kernel that must stay equal: checks, and what makes an operation's space."""
    own = (target.space,) if isinstance(target, Operation) else ()
    return [each for each in (*checks, *own) if each is not None and not isinstance(each, ConfigSpace)]
