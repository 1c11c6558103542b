"""Options of a decorated kernel beyond those of `triton.autotune`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_ops import settings
from triton_ops.exceptions import KernelTypeError, SettingsError
from triton_ops.request import Effort, TuneOptions
from triton_ops.values import BucketRule, Mapper, Tolerance, as_callable


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for tuning a decorated kernel, and for its launches before that, as of `triton_ops.autotune`.

    A `space` of None takes the list of configs. `strict` makes a name in the key that is no argument an error; Triton
    itself ignored it up to 3.8.
    """

    space: Any = None
    reference: Callable[..., Any] | None = None
    outputs: tuple[str, ...] = ()
    tolerance: float | Tolerance | None = None
    check: Callable[[Any, Any], Any] | None = None
    tune: TuneOptions = field(default_factory=TuneOptions)
    on_miss: str | None = None
    mapper: Mapper = field(default_factory=Mapper)
    strict: bool = True

    def __post_init__(self) -> None:
        if self.on_miss is not None:
            settings.checked_on_miss(self.on_miss)
        if self.tolerance is not None:
            object.__setattr__(self, "tolerance", Tolerance.of(self.tolerance))
        as_callable("check", self.check)
        self._check_kinds()
        if self.tune != TuneOptions():
            Effort.of(self.tune)  # a word that is no effort is told now
        if self.reference is not None and not self.outputs:
            raise KernelTypeError(
                "a reference is given, and no outputs: the kernel's results would have no names",
                hint='name the arguments that the kernel writes: outputs=("out_ptr",)',
            )

    def _check_kinds(self) -> None:
        folder, reference = self.tune.cache_dir, self.reference
        if not isinstance(folder, (str, os.PathLike, type(None))):
            raise SettingsError(f"cache_dir is {folder!r}; it must be a path", hint="or leave it out")
        if reference is not None and not callable(reference):
            raise SettingsError(f"reference is {reference!r}; it must be a function", hint="or leave it out")


def mapper_of(
    buckets: Mapping[str, str | BucketRule | None] | Mapper | None, parameters: Collection[str], key: Collection[str]
) -> Mapper:
    """The mapper that a decorator's `buckets` mean; raises SettingsError and UnknownTunableError."""
    mapper = buckets if isinstance(buckets, Mapper) else Mapper.of(buckets)
    mapper.check(parameters)
    if idle := [name for bucket in mapper.buckets for name in bucket.extents if name not in key]:
        raise SettingsError(
            f"the bucket of {', '.join(idle)} has no effect: the key is {', '.join(key) or 'empty'}",
            hint="add the argument to the key, or leave its bucket out",
        )
    return mapper
