"""Damage to files, drawn from a seed: flipped bits, cuts, pieces of other files, and JSON that means harm."""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from triton_ops.base import Sealed

_DEEP = b"[" * 100_000
_BOMB = gzip.compress(b"\0" * (64 << 20), mtime=0)  # 64 KB
_SCALAR = re.compile(rb'(?<=[:\[,] )(?:-?\d[\d.eE+-]*|"(?:[^"\\]|\\.)*"|true|false|null)(?=[,\]}\s])|(?<=": )\S')
HOSTILE = (
    b"1e999", b"-1e999", b"NaN", b"-1", b"-1.0", b"0", b"1" * 5000, b"1" * 400, b"1e308", b"-0.0", b"null", b"true",
    b"[]", b"{}", b'""', b'"x"', b'["a"]', b'[[1]]', b'{"shape": ["a"]}', b'{"shape": null}',
    b'"\\ud800"', b'"\\u0000"',
    b'"\\u001b]0;title\\u0007"', b'"\xff\xfe"', b'"\xed\xa0\x80"', b"18446744073709551616", b"9" * 30, b"[" * 600,
    b"[" * 400 + b"]" * 400, b'{"a":' * 400 + b"1" + b"}" * 400, _DEEP, b'"' + b"x" * 100_000 + b'"',
)  # fmt: skip
HOSTILE_VALUES: tuple[Any, ...] = (
    -1, -1.0, 0, 0.0, 1e308, 2**64, 10**300, None, True, [], {}, "", "x", ["a"], [[1]], {"shape": ["a"]},
    {"shape": None}, {"shape": [-1]}, {"shape": [10**300]}, "\x1b]0;title\x07", "\u202e", "x" * 10_000, [None] * 1000,
    {"a": {"b": {"c": {}}}},
)  # fmt: skip


def flipped(data: bytes, bit: int) -> bytes:
    """`data` with one bit changed."""
    place, which = divmod(bit, 8)
    return data[:place] + bytes([data[place] ^ (1 << which)]) + data[place + 1 :]


def every_bit(data: bytes, step: int = 1) -> Iterator[bytes]:
    """`data` with each bit changed in turn, or each `step`-th."""
    return (flipped(data, bit) for bit in range(0, 8 * len(data), step))


def damaged(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """`data` with one to three kinds of damage that know nothing of its checksum."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        data = _spliced(data, draw.choice(others), draw) if draw.random() < 0.1 else draw.choice(_DAMAGE)(data, draw)
    return data


def rewritten(data: bytes, draw: random.Random) -> bytes:
    """A file of JSON in which one to three values are hostile and the checksums fit, as a person could write it."""
    packed = data[:2] == b"\x1f\x8b"
    text = gzip.decompress(data) if packed else data
    whole = text.startswith(b"{\n") or text.count(b"\n") < 2
    lines = [text] if whole else text.splitlines()
    at = draw.randrange(len(lines))
    content = json.loads(lines[at])
    for _ in range(draw.choice((1, 1, 2, 3))):
        _replace_one(content, draw)
    lines[at] = json.dumps(_resealed(content), ensure_ascii=False).encode("utf-8", "replace")
    text = b"\n".join(lines) + b"\n"
    return gzip.compress(text, mtime=0) if packed else text


def _resealed(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    rest = {name: _inner(value) for name, value in content.items() if name != Sealed.CHECKSUM}
    return Sealed(rest) if Sealed.CHECKSUM in content else rest


def _inner(value: Any) -> Any:
    return [_resealed(item) for item in value] if isinstance(value, list) else value


def _replace_one(content: Any, draw: random.Random) -> None:
    """Put a hostile value in place of one value somewhere in `content`, or remove it, or rename it."""
    holder = content
    while True:
        names = [n for n in (holder if isinstance(holder, dict) else range(len(holder))) if n != Sealed.CHECKSUM]
        if not names:
            return
        name = draw.choice(names)
        inner = holder[name]
        if isinstance(inner, (dict, list)) and inner and draw.random() < 0.8:
            holder = inner
            continue
        if draw.random() < 0.1:
            del holder[name]
        else:
            holder[name] = copy.deepcopy(draw.choice(HOSTILE_VALUES))
        return


def _flip(data: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.randint(1, 8)):
        data = flipped(data, draw.randrange(8 * len(data))) if data else data
    return data


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _remove(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data) + 1)
    return data[:start] + data[start + draw.randint(1, 200) :]


def _repeat(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data) + 1)
    piece = data[start : start + draw.randint(1, 500)]
    return data[:start] + piece * draw.randint(2, 50) + data[start:]


def _insert(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data) + 1)
    return data[:start] + draw.randbytes(draw.randint(1, 50)) + data[start:]


def _spliced(data: bytes, other: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)] + other[draw.randrange(len(other) + 1) :]


def _value(data: bytes, draw: random.Random) -> bytes:
    scalars = list(_SCALAR.finditer(data))
    if not scalars:
        return data
    place = draw.choice(scalars)
    return data[: place.start()] + draw.choice(HOSTILE) + data[place.end() :]


def _unpacked(data: bytes, draw: random.Random) -> bytes:
    """Damage inside a gzipped file, which is packed again; other files get a hostile value."""
    if data[:2] != b"\x1f\x8b" or data == _BOMB:
        return _value(data, draw)
    try:
        text = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return data
    return gzip.compress(_value(text, draw), mtime=0)


def _whole(data: bytes, draw: random.Random) -> bytes:
    return draw.choice((
        b"", b"\n", b"{}", b"[]", b"null", b"\xef\xbb\xbf" + data, b"\0" * len(data), _DEEP, data * 2, data[::-1],
        data.replace(b"\n", b"\r\n"), _BOMB, b'{"type": "run"}\n', data.decode("latin-1").encode("utf-16"),
    ))  # fmt: skip


_DAMAGE: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip, _flip, _cut, _remove, _repeat, _insert, _value, _value, _value, _unpacked, _whole,
)  # fmt: skip
