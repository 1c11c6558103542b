"""Plain values as files hold them: canonical JSON, whose digest is a fingerprint, and their types.

The types of numbers have the range in which they are believed, which is checked when a file is read. JSON has no
infinite numbers, so that a float that was read is finite.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from numbers import Real
from typing import Annotated, Any, ClassVar, NoReturn, TypeAlias, TypeVar

from msgspec import Meta, ValidationError, convert

from triton_ops.base.folders import ForkSafeLock

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]  # every JSON reader has these
Extent: TypeAlias = Annotated[int, Meta(ge=0, le=2**62)]

Plain: TypeAlias = bool | int | float | str | None
Flat: TypeAlias = bool | int | float | str | list[Plain] | dict[str, Plain] | None
Nested: TypeAlias = bool | int | float | str | list[Flat] | dict[str, Flat] | None
"""A fact in clear, nested two deep at most: what is nested without limit could not be walked."""

# Made once, since `json.dumps` would make an encoder at each call.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> str:
    """`value` as JSON text that depends on its content only: sorted keys, no spaces, no NaN; tuples as lists."""
    return _ENCODER.encode(value)


def fingerprint(value: Any, length: int = 32) -> str:
    """The first `length` hexadecimal digits of the SHA-256 of `canonical_json(value)`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


def _refuse(_self: Any, *_: Any, **__: Any) -> NoReturn:
    raise TypeError("this value is frozen and cannot be changed; change a copy, made by copy.deepcopy")


class Frozen(dict[str, Any]):
    """A dict that refuses changes, and whose dicts and lists do as well; it equals a dict of the same content."""

    def __init__(self, content: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__({name: _frozen(value) for name, value in dict(content).items()})

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew from its content, since it takes no item later."""
        return Frozen, (dict(self),)

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        """A dict that its owner may change."""
        return deepcopy(dict(self), memo)

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    @staticmethod
    def fields(owner: Any, *names: str) -> None:
        """Make the mappings in these fields of a frozen dataclass frozen ones, as it is made."""
        for name in names:
            value = getattr(owner, name)
            object.__setattr__(owner, name, value if type(value) is Frozen else Frozen(value))


class BoundedDict(dict[K, V]):
    """A dict that is emptied before it would take one more entry than `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self._most and key not in self:
            self.clear()
        super().__setitem__(key, value)


class _FrozenList(list[Any]):
    """A list that refuses changes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _FrozenList, (list(self),)

    def __deepcopy__(self, memo: Any) -> list[Any]:
        return deepcopy(list(self), memo)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse


def _frozen(value: Any) -> Any:
    if type(value) is dict:
        return Frozen(value)
    return _FrozenList(map(_frozen, value)) if type(value) is list else value


_MOST_CONTAINERS = 2_000_000  # lists and objects in one text, which take about 200 MB; a record has ten


class DamagedError(OSError):
    """A text is no JSON object, not the one that was written, or of another type: its file cannot be read."""


class Sealed(dict[str, Any]):
    """A JSON object with its checksum: the `fingerprint` of its content, whose errors are those of `canonical_json`.

    A file that was damaged, cut, mixed up or edited does not have the checksum of its content, and is not believed. The
    checksum protects from accidents: whoever means to deceive can compute it.
    """

    CHECKSUM: ClassVar[str] = "checksum"
    SIGNATURE: ClassVar[str] = "signature"
    TYPES: ClassVar[ForkSafeLock] = ForkSafeLock(threading.RLock)  # held by the thread in which msgspec looks at a type

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self[self.CHECKSUM] = fingerprint(content)

    @classmethod
    def read(cls, text: bytes | str) -> dict[str, Any]:
        """The content of a sealed text, as `parsed` and `opened` give it."""
        return cls.opened(cls.parsed(text))

    @classmethod
    def opened(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content without its checksum; DamagedError if there is none, or it is that of another content."""
        rest = {name: value for name, value in content.items() if name != cls.CHECKSUM}
        try:
            actual = fingerprint(rest)
        except (ValueError, RecursionError) as error:
            raise DamagedError(f"it has no canonical form: {error}") from error
        if cls.CHECKSUM not in content:
            raise DamagedError("it has no checksum")
        if content[cls.CHECKSUM] != actual:
            raise DamagedError("its checksum is not that of its content: it was damaged, or edited by hand")
        return rest

    @classmethod
    def parsed(cls, text: bytes | str) -> dict[str, Any]:
        """The JSON object in a text of valid Unicode with finite numbers only, sealed or not; else DamagedError."""
        import msgspec  # its import takes 30 ms, and most of what needs this module reads no JSON

        # The decoder refuses lone surrogates, as it does in bytes.
        encoded = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        cls.check_size(encoded)
        try:
            content = msgspec.json.decode(encoded)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise DamagedError(f"it is not JSON: {error}") from error
        if not isinstance(content, dict):
            raise DamagedError(f"it holds a {type(content).__name__} instead of a JSON object")
        return content

    @classmethod
    def unambiguous(cls, text: bytes | str) -> dict[str, Any]:
        """The object of `parsed`; refused if one in it has a name twice: people read the first, programs the last.

        Cost: several times that of `parsed`; for files that people write or review.
        """

        def once(pairs: list[tuple[str, Any]]) -> None:
            names = [name for name, _ in pairs]
            if len({*names}) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise DamagedError(f"an object in it has the name {twice!r} twice")

        content = cls.parsed(text)
        with suppress(json.JSONDecodeError, RecursionError):
            json.loads(text, object_pairs_hook=once)
        return content

    @classmethod
    def typed(cls, content: Any, kind: type[T], decode: Callable[[type, Any], Any] | None = None) -> T:
        """Plain values as a type, as of `msgspec.convert` with this hook; DamagedError if they are of another type.

        The first conversion to a dataclass tells msgspec of its fields, and ends the process of a thread that converts
        to it before all are told. One thread at a time therefore converts.
        """
        # A second thread that meets the half of a dataclass ends by SIGSEGV (msgspec 0.22.0).
        try:
            with cls.TYPES:
                return convert(content, kind, dec_hook=decode)
        except ValidationError as error:
            raise DamagedError(str(error)) from error

    @staticmethod
    def check_size(text: bytes) -> None:
        """Refuse, as damaged, a JSON text of over two million lists and objects, which would take hundreds of MB."""
        if text.count(b"[") + text.count(b"{") > _MOST_CONTAINERS:
            raise DamagedError(f"it has more than {_MOST_CONTAINERS} lists and objects")


def is_positive(value: Any) -> bool:
    """True for a positive finite number that is no truth value."""
    return not isinstance(value, bool) and isinstance(value, Real) and 0 < float(value) < math.inf
