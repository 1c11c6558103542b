"""The meaning of a kernel as a fingerprint of its source and of everything of the user's that it calls or reads.

The fingerprint changes when the code's meaning can change. What counts:

- the function, its wrappers, its defaults, and the functions and classes that it refers to, by their syntax;
- the values of globals, closures, defaults, partials and bound objects: plain values by value, containers and objects
  by what they hold, to any depth; functions in them are read like any other;
- tensors and arrays by shape, dtype, strides and kind of device, as arguments are. What they contain does not count;
- what `torch.compile` was asked for: backend, mode, options, dynamic shapes, and the settings of Inductor that differ
  from their defaults;
- other packages by the names that are used of them, and by their versions.

What does not count: comments, docstrings, formatting, the line it stands on, the version of Python, the space that a
tuning decorator names, the state of locks, loggers and random generators, and a global or closed-over container that
the code itself changes (`CALLS.append(…)`, `CACHE[key] = …`), which is its working memory.

What is not seen: what the code looks up by name while it runs (`globals()[name]`, `sys.modules`, an import inside a
function), and settings of the process beside those of Inductor, such as torch's precision of float32 products.

What cannot be told apart makes the whole unknown, with the reason: an object of a C type that gives no account of its
state, such as an open file, or more than 20,000 values.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from triton_ops._hashing import fingerprint
from triton_ops.backend.reader import Reader, ReadValue
from triton_ops.backend.unwrap import unwrap

_MOST_KEPT = 256  # callables, which live as long as they are kept


@dataclass(frozen=True)
class Source:
    """What is known of a callable's meaning.

    Attributes:
        fingerprint: Names the callable and everything it refers to by content.
        unknown: What of it cannot be told apart, and why; None if all can.
        packages: The installed packages that it uses, with their versions.
        interpreted: Whether it refers to a Triton kernel that runs as Python.
    """

    fingerprint: str
    unknown: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    interpreted: bool = False


_kept: OrderedDict[int, tuple[Any, Source, list[ReadValue]]] = OrderedDict()


def source_of(function: Any) -> Source:
    """What `function` means, everything it refers to included.

    Cost: parses the source of every reached function once in a process, a millisecond for a typical kernel. After
    that a few microseconds, if nothing that can change in place is among what it refers to; else every value again.
    """
    found = _kept.get(id(function))
    if found is not None and found[0] is function and all(read.holds() for read in found[2]):
        return found[1]
    reader = Reader(str(getattr(unwrap(function), "__module__", "")).partition(".")[0])
    reader.read("root", function)
    source = Source(fingerprint(reader.parts), reader.unknown, reader.packages, reader.interpreted)
    if reader.fixed and reader.unknown is None:
        _kept[id(function)] = (function, source, reader.values_read)
        if len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)
    return source


def is_kept(function: Any) -> bool:
    """Whether `source_of` answers for this very function in microseconds, since nothing in it can change in place."""
    found = _kept.get(id(function))
    return found is not None and found[0] is function


def source_fingerprint(function: Any) -> str:
    """The fingerprint in `source_of(function)`."""
    return source_of(function).fingerprint
