"""The look-up of a stored winner: one key names one file, and one function says whether its record holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_ops import request, settings
from triton_ops.base import Folder, warn_once
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records.record import Record
from triton_ops.records.store import RECORDS, DirectoryStore, Store, open_store, shared_folders
from triton_ops.values import Key

if TYPE_CHECKING:
    from triton_ops.backend import Kernel, Operation
    from triton_ops.space import ConfigSpace
    from triton_ops.values import Tolerance


def recall(
    target: Operation | Kernel | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    space: Any = None,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    device: str | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: float | Tolerance | None = None,
    check: Callable[[Any, Any], Any] | None = None,
    cold: bool = True,
    cache_dir: str | Path | None = None,
) -> Record | None:
    """The record of an earlier `tune` of this problem; None if there is none that holds. Nothing is run or compiled.

    Args:
        target: As for `tune`.
        args: Positional arguments of every call of the kernel.
        kwargs: Keyword arguments of every call of the kernel.
        space: The space in which the winner must have been found; None takes the winner of any space, whose members of
            an `Enum` are then given by their names.
        shape: Extents of an operation's problem; None takes its defaults.
        dtype: Dtype of an operation's problem; None takes its default.
        device: `cpu`, `cuda` or `cuda:N`; None as for `tune`.
        reference: What the record must have been checked against; None takes the operation's, if it has one.
        tolerance: The tolerance with which the winner was found, as for `tune`.
        check: The comparison with which the winner was found, as for `tune`.
        cold: Whether the winner was measured with cold caches.
        cache_dir: Folder of records; None takes `TRITON_OPS_CACHE_DIR`, else the user's cache folder. A missing folder
            is not made.

    Returns:
        The record with its winner, times and what it was checked against; None if none holds.

    Raises:
        KernelTypeError, ShapeMismatchError, UnsupportedDtypeError, DeviceError, SpaceError, CacheError: As for `tune`.

    Cost: reads one file.
    """
    problem = request.TuneProblem(
        target=target, args=args, kwargs=kwargs, space=space, shape=shape, dtype=dtype, device=device,
        reference=reference, tolerance=tolerance, check=check, cold=cold,
    ).request()  # fmt: skip
    folder = settings.cache_folder(cache_dir)
    if not may_have_records(folder):
        return None
    searched = None if space is None else problem.space
    record = recalled(problem.key, store_in(folder), space=searched, reference=problem.reference_fingerprint)
    if record is None or searched is None or not searched.members:
        return record
    return replace(record, winner=record.winner.with_members(searched.members))


def recalled(
    key: Key, store: Store[Record], *, space: ConfigSpace | None = None, reference: str | None = None,
    contents: str | None = None,
) -> Record | None:  # fmt: skip
    """The stored record of a key; None if none holds for this space and reference, or a part is unknown.

    The winner was found in that space, which still allows it. The reference that it was checked against and the
    contents that it raced over are given by their fingerprints; None takes any.
    """
    if key.unknown is not None:
        warn_once(f"{key.kernel}: {key.unknown_note}")
        return None
    record = store.get(key.id)
    if record is None or (reference is not None and record.verified.reference != reference):
        return None
    if not record.raced_over(contents):
        return None
    if space is not None and (record.space != space.fingerprint or space.why_not(record.winner) is not None):
        return None
    return record


def may_have_records(folder: str) -> bool:
    """True if a look-up has anything to look at: the folder of records, or a shared one."""
    return os.path.isdir(folder) or bool(shared_folders())  # noqa: PTH112 - as text: a path object takes longer


def store_in(folder: str) -> Store[Record]:
    """The store of a folder, one for each process: records that a read-only folder does not take stay in its memory.

    After the folder the shared ones are asked, which are never changed. A folder that is missing is not made, and
    counts as empty, as long as there are shared ones.
    """
    others = shared_folders()
    return _store(folder, *others, read_only=bool(others) and not os.path.isdir(folder))  # noqa: PTH112 - as above


_store = lru_cache(maxsize=32)(open_store)


def matching(which: str | None, cache_dir: str | Path | None) -> list[Record]:
    """The records whose kernel is `which`, else those whose id starts with `which`; all for None; newest first.

    A kernel without a name of its own is found by its file too: `work.py:norm` is `work:norm`. Nothing is made or
    changed in the folder. SettingsError: `which` is empty, as after an unset shell variable.
    """
    if which is not None and not which.strip():
        raise SettingsError("KERNEL|ID is empty", hint="leave it out for every record")
    records = _all(Path(settings.cache_folder(cache_dir)))
    if which is not None:
        by_name = [record for record in records if record.key.kernel in kernel_names(which)]
        records = by_name or [record for record in records if record.id.startswith(which)]
    return sorted(records, key=lambda record: (record.created, record.id), reverse=True)


def kernel_names(which: str) -> set[str]:
    """The names that a kernel may have in records: `work.py:norm` is `work:norm` as well."""
    file, colon, name = which.rpartition(":")
    return {which, f"{Path(file).stem}:{name}"} if colon and file.endswith(".py") else {which}


def _all(folder: Path) -> list[Record]:
    Folder(folder).check_home()
    store = DirectoryStore(folder, RECORDS, read_only=True)
    with CacheError.when(f"{folder} cannot be read", "name a folder that you may read"), suppress(FileNotFoundError):
        os.listdir(f"{folder}/.")  # noqa: PTH208 - a Path drops the dot, for which the folder must be searchable too
        return list(store)
    return []
