"""Damaged and hostile files of every kind that this package reads: nothing may raise, hang, or be believed.

    TMPDIR=/dev/shm python -m benchmarks.robustness.hostile_files --files 25000 --seed 7

Each file is put in the place of a healthy one and read as a tune, a search or a command reads it. Counted are errors
other than the documented ones; reads that twice took 50 ms of CPU time more than the healthy file's, and those that
had to be ended after 10 s; values that were served and are not those of the healthy file; and how much memory grew.
Two thirds of the files are damaged blindly. One third are written by somebody who means harm, with checksums that fit:
these may be believed, and what is believed is then used as `show`, a hit and a search would. In the end every bit of
one file of each kind is flipped. A folder in memory saves half of the time.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import logging
import random
import re
import resource
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.document import headed, parser_of, save
from benchmarks.robustness.hostile_kinds import Kind, kinds
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


LATE_S = 0.05
HANG_S = 10


@dataclass
class Found:
    """What became of the files of one kind."""

    files: int = 0
    served: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    altered: list[str] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    hangs: int = 0
    slowest_ms: float = 0.0

    @property
    def bad(self) -> int:
        """How many files broke a promise."""
        return sum(self.errors.values()) + len(self.altered) + len(self.late) + self.hangs


class HangError(BaseException):
    """A read had to be ended."""


def _ended(*_: object) -> None:
    raise HangError


class Attack:
    """Puts hostile files of one kind in place, and reads each."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.healthy = kind.path.read_bytes()
        self.expected: dict[str, list[Any]] = {}
        for part in self._parts():
            kind.path.write_bytes(part)
            for name, value in self._timed()[1].items():
                self.expected.setdefault(name, []).append(value)
        self.healthy_s = max(self._timed()[0] for _ in range(5))
        self.found = Found()

    def _parts(self) -> list[bytes]:
        """The healthy file as it grew: where a later line of a config is left out, an earlier one counts."""
        if self.kind.path.suffix != ".jsonl":
            return [self.healthy]
        lines = self.healthy.splitlines(keepends=True)
        return [b"".join(lines[:count]) for count in range(1, len(lines) + 1)]

    def __call__(self, data: bytes, may_be_believed: bool = False) -> None:
        """Read `data` in place of the healthy file."""
        self.kind.path.write_bytes(data)
        counts = self.found
        counts.files += 1
        try:
            taken_s, served = self._timed()
            if taken_s > self.healthy_s + LATE_S:  # a collection of garbage may have fallen into it
                taken_s = min(taken_s, self._timed()[0])
        except HangError:
            counts.hangs += 1
            return
        except Exception as error:  # noqa: BLE001 - what must not happen is counted
            counts.errors[f"{type(error).__name__}: {error}"[:120]] += 1
            return
        finally:
            self.kind.path.write_bytes(self.healthy)
        counts.served += bool(served)
        counts.slowest_ms = max(counts.slowest_ms, taken_s * 1e3)
        if taken_s > self.healthy_s + LATE_S:
            counts.late.append(round(taken_s, 3))
        if self.kind.sealed and not may_be_believed:
            counts.altered += [name for name, value in served.items() if value not in self.expected.get(name, ())]

    def _timed(self) -> tuple[float, dict[str, Any]]:
        start = time.thread_time()
        signal.setitimer(signal.ITIMER_REAL, HANG_S)
        try:
            served = self.kind.read()
        except self.kind.refusals:
            served = {}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return time.thread_time() - start, served


@contextlib.contextmanager
def attacks() -> Iterator[list[Attack]]:
    """An attack for each kind of file, in a folder of their own, without the warnings."""
    log = logging.getLogger("triton_ops")
    before, handler = log.level, signal.signal(signal.SIGALRM, _ended)
    log.setLevel(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield [Attack(kind) for kind in kinds(Path(folder))]
    finally:
        signal.signal(signal.SIGALRM, handler)
        log.setLevel(before)


def attack(each: Iterable[Attack], files: int, seed: int, bit_step: int) -> dict[str, Found]:
    """Read `files` hostile files in all, and flip every `bit_step`-th bit of one file of each kind."""
    each = list(each)
    draw, others = random.Random(seed), [one.healthy for one in each]
    for number in range(files):
        one = each[number % len(each)]
        hostile_hand = draw.random() < 1 / 3
        one(rewritten(one.healthy, draw) if hostile_hand else damaged(one.healthy, others, draw), hostile_hand)
    for one in each:
        for data in every_bit(one.healthy, bit_step) if one.kind.bits else ():
            one(data)
    return {one.kind.name: one.found for one in each}


def main() -> None:
    """Read hostile files; the exit code is 1 if one broke a promise."""
    parser = parser_of(__doc__, Path("benchmarks/results/cpu/hostile_files.json"))
    parser.add_argument("--files", type=int, default=25_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--bit-step", type=int, default=1)
    options = parser.parse_args()
    with attacks() as each:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        row = attack(each, options.files, options.seed, options.bit_step)
        grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    rows = {
        name: {
            "files": one.files, "served": one.served, "altered": len(one.altered), "errors": dict(one.errors),
            "late": one.late[:20], "hangs": one.hangs, "slowest_ms": round(one.slowest_ms, 1),
        }
        for name, one in row.items()
    }  # fmt: skip
    command = f"python -m benchmarks.robustness.hostile_files --files {options.files} --seed {options.seed}"
    command += f" --bit-step {options.bit_step}" if options.bit_step != 1 else ""
    save(options.out, headed(command, options.commit, memory_grown_mib=round(grown_mib, 1), kinds=rows))
    print(json.dumps(rows, indent=2), f"memory grew by {grown_mib:.0f} MiB", sep="\n")
    sys.exit(any(one.bad for one in row.values()))


if __name__ == "__main__":
    main()
