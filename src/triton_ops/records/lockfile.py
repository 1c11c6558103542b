"""A lockfile: one file, kept in git, that pins the config of each kernel for each problem and device.

It is read strictly: what was damaged or edited by hand is refused, and `accept_edits` takes it over. Nothing here
launches, measures or imports torch; a look-up says which entry answers a key, or why none does.

Schema history:
    1  first form
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from triton_ops import records, settings
from triton_ops.base import DamagedError, Folder, NamedFile, Sealed, StoredFile, cached_property, canonical_json, warn
from triton_ops.exceptions import CacheError, LockfileError, SpaceError, TritonKernelError
from triton_ops.records.lock_entry import EntryOrigin, LockedDevice, LockEntry, OriginKind
from triton_ops.records.record import Record, with_defaults
from triton_ops.records.store import check_kind
from triton_ops.settings import expanded, is_url, shown
from triton_ops.space import Config, why_not_of_a_file
from triton_ops.values import Key

_LINES = (
    ("kernel", "device", "label"), ("config",), ("default",), ("measured",), ("problem",), ("ranges",), ("ignored",),
    ("identity",), ("bits", "same_bits"), ("origin",), ("call",), (Sealed.CHECKSUM,),
)  # fmt: skip
_MARK = re.compile(r"^(<<<<<<< [^\n]*\n|>>>>>>> ?[^\n]*\n)", re.MULTILINE)
_BETWEEN = re.compile(r"^(?:=======|\|\|\|\|\|\|\| [^\n]*|\|\|\|\|\|\|\|)\n", re.MULTILINE)
_SEAL = re.compile(rf'\s*"{Sealed.CHECKSUM}": "[0-9a-f]*"\s*')


def text_of(content: Mapping[str, Any]) -> str:
    """The JSON text of a lockfile's content, with the fields of each entry in the same lines."""
    lines = ["{", *(f"  {_pair(content, name)}," for name in ("kind", "schema_version"))]
    lines += _block("devices", [f"    {_json(device)}" for device in content["devices"]])
    lines += _block("entries", [_entry(entry) for entry in content["entries"]])
    lines += [f"  {_pair(content, Sealed.SIGNATURE)},"] if Sealed.SIGNATURE in content else []
    return "\n".join([*lines, f"  {_pair(content, Sealed.CHECKSUM)}", "}"]) + "\n"


def without_conflicts(text: str) -> str:
    """The text in which conflicts about the checksum of the whole are settled; LockfileError if others are left."""
    outside, *rest = _MARK.split(text)
    parts = [outside]
    conflict: list[str] = []  # what has come of one, from its first mark on
    for mark, after in zip(rest[::2], rest[1::2], strict=True):
        if conflict and mark.startswith(">"):
            parts += [_settle("".join(conflict[1:])), after]
            conflict = []
        elif conflict or mark.startswith("<"):
            conflict += [mark, after]
        else:
            parts += [mark, after]
    return "".join([*parts, *conflict])


def _settle(conflict: str) -> str:
    sides = _BETWEEN.split(conflict)
    if not all(_SEAL.fullmatch(side) for side in sides):
        message = "a merge left a conflict between entries"
        raise LockfileError(message, hint="keep the entries that you want, remove the marks, then run this again")
    return sides[0]


def _block(name: str, items: list[str]) -> list[str]:
    return [f'  "{name}": [', ",\n".join(items), "  ],"] if items else [f'  "{name}": [],']


def _entry(entry: Mapping[str, Any]) -> str:
    rows = [", ".join(_pair(entry, name) for name in names if name in entry) for names in _LINES if names[0] in entry]
    return "    {" + ",\n     ".join(rows) + "}"


def _pair(content: Mapping[str, Any], name: str) -> str:
    return f"{_json(name)}: {_json(content[name])}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


KIND = "triton-ops lock"
SCHEMA_VERSION = 1
_LARGEST_BYTES = 64 << 20  # 30,000 entries
_STILL_S = 0.05  # a file that no writer has changed for so long is not being written
_LOOK_S = 0.005
_BUSY_S = 2.0  # a file that is refused and goes on changing is read again for so long
_EDITED_S = 60.0  # another writer is waited for; reading and writing the largest lockfile takes seconds
_REFRESH = "`triton-ops lock --refresh` accepts edits by hand; else take the file from where it came"

Rung = Literal["exact", "range"]


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """The answer of a lockfile."""

    entry: LockEntry
    rung: Rung  # `exact` if it was found for this very problem, `range` if that lies in one of its ranges
    borrowed_from: LockedDevice | None = None  # the entry's device, where it is another one and that was asked for
    drift: tuple[str, ...] = ()  # versions and the driver that changed since, each as `name: then | now`

    def __str__(self) -> str:
        origin, label = self.entry.origin, self.entry.label or self.entry.problem
        how = "expected" if origin.expected else "found"
        parts = [f"lockfile, {self.rung}: ({self.entry.config}) {how} for {label}"]
        if origin.expected:
            parts.append(origin.detail)
        if self.borrowed_from is not None:
            parts.append(f"borrowed from {self.borrowed_from.name}")
        parts += map(str, self.entry.ranges)
        parts += [f"raced in the step {origin.step}"] if origin.step else []
        parts += [f"unproven: {origin.unproven}"] if origin.unproven else []
        return "; ".join([*parts, *self.drift])


@dataclass(frozen=True)
class Lockfile:
    """The content of a lockfile: devices by alias, and entries in a stable order.

    LockfileError: two devices have one alias, an entry names none of them, or two entries answer the same problems.
    """

    DEFAULT_NAME: ClassVar[str] = "triton-ops.lock.json"

    devices: tuple[LockedDevice, ...] = ()
    entries: tuple[LockEntry, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(sorted(self.devices, key=lambda device: device.alias)))
        object.__setattr__(self, "entries", tuple(sorted(self.entries, key=lambda entry: entry.place)))
        aliases = [device.alias for device in self.devices]
        if twice := ", ".join(sorted({alias for alias in aliases if aliases.count(alias) > 1})):
            raise LockfileError(f"two devices have the alias {twice}", hint="give each device an alias of its own")
        if unknown := ", ".join(sorted({entry.device for entry in self.entries} - {*aliases})):
            raise LockfileError(f"entries name the devices {unknown}, which are not listed", hint="list these, too")
        for one, other in pairwise(self.entries):
            if one.place == other.place:
                message = f"two entries of {one.kernel} on {one.device} are for one problem: {one.label or one.problem}"
                raise LockfileError(message, hint="keep one of the two, and run `triton-ops lock --refresh`")

    @staticmethod
    def read(path: str | os.PathLike[str], *, or_empty: bool = False) -> Lockfile:
        """The lockfile in a file, as of `loads`, whose error names it; with `or_empty` a missing file is an empty one.

        A file that is refused while it changes, or that is put there just then, is read again: some programs write in
        place, or remove a file before they put another one there. The path may be a URL, whose content is judged first.
        Cost: a file that is refused is watched for 50 ms, and read again for 2 s as long as it changes.
        """
        if is_url(path):
            return _read_url(path, or_empty=or_empty)
        where = expanded(path)
        until_s, still = time.monotonic() + _BUSY_S, None  # what the file was when nobody had changed it for a while
        while True:
            before = StoredFile(where).state
            try:
                return loads(_text_in(where))
            except LockfileError as error:
                if before != still and time.monotonic() < until_s:
                    still = None if _changes(where, before) else before
                    continue
                if or_empty and not os.path.exists(where):  # noqa: PTH110 - False, too, where it cannot be told
                    return Lockfile()
                raise LockfileError(f"{where}: {error.message}", hint=error.hint) from error

    @cached_property
    def digest(self) -> str:
        """The checksum of the content: equal files have equal digests, so that processes can compare what they pin."""
        return str(_contents(self)[Sealed.CHECKSUM])

    @cached_property
    def _of_kernel(self) -> dict[str, tuple[LockEntry, ...]]:
        by_kernel: dict[str, list[LockEntry]] = {}
        for entry in self.entries:
            by_kernel.setdefault(entry.kernel, []).append(entry)
        return {kernel: tuple(entries) for kernel, entries in by_kernel.items()}

    @cached_property
    def _device(self) -> dict[str, LockedDevice]:
        return {device.alias: device for device in self.devices}

    def find(self, key: Key, *, borrow: bool = False) -> Pinned | None:
        """The entry that answers `key`; None if none does. `why_not` has the reason.

        An entry for the very problem comes first, then the one whose problem is nearest, by the ratios of the extents,
        among those with a range around it; entries that are only expected come after all others. Ranges are compared
        with the problem as it is, cache state and tolerances not at all. With `borrow` an entry of another device may
        answer, after all of this one. Cost: 6 µs for each entry of the kernel, which is not for each launch.
        """
        answers = []
        for entry in self._of_kernel.get(key.kernel, ()):
            if entry.why_not(key) is not None:
                continue
            device = self._device[entry.device]
            other = None if device.why_not(key.device) is None else device
            if borrow or other is None:
                rung: Rung = "exact" if entry.is_exact(key) else "range"
                answers.append(Pinned(entry=entry, rung=rung, borrowed_from=other, drift=entry.drift(key)))
        return min(answers, key=lambda pinned: _rank(pinned, key), default=None)

    def pinning(self, key: Key, *, named: bool = False) -> LockEntry | None:
        """The entry to whose class of bits calls of `key` keep, or, if it is `named`, may keep; None without one.

        It may be of any device, versions and extents: that which answers first, then one of this device, the nearest.
        """

        def rank(entry: LockEntry) -> tuple[Any, ...]:
            elsewhere = self._device[entry.device].why_not(key.device) is not None
            return entry.why_not(key) is not None, elsewhere, entry.apart(key), entry.place

        entries = (each for each in self._of_kernel.get(key.kernel, ()) if each.bits and (named or each.same_bits))
        return min((each for each in entries if each.apart(key) is not None), key=rank, default=None)

    def why_not(self, key: Key) -> str:
        """The reason why no entry of this device answers `key`, as one sentence; what the nearest entries lack."""
        if not (entries := self._of_kernel.get(key.kernel)):
            return f"the lockfile has no entry of {key.kernel}"
        if not (here := self._here(key)):
            device = self._device[entries[0].device]
            return f"the lockfile has no entry of {key.kernel} for this device: {device.why_not(key.device)}"
        expected = "its config is expected, and nobody has measured it"
        whys = (entry.why_not(key) or (entry.origin.expected and expected) for entry in here)
        reasons = [why for why in dict.fromkeys(whys) if why]
        more = f", and {len(reasons) - 1} further reasons" if len(reasons) > 1 else ""
        return f"none of {len(here)} entries of {key.kernel} answers: {reasons[0]}{more}" if reasons else "one answers"

    def _here(self, key: Key) -> list[LockEntry]:
        """The entries of the kernel and the device of a key, whatever their problem."""
        entries = self._of_kernel.get(key.kernel, ())
        return [entry for entry in entries if self._device[entry.device].why_not(key.device) is None]

    @property
    def text(self) -> str:
        """The text of the file: one entry per few lines, so that changes can be read and merged."""
        return text_of(_contents(self))

    def without(self, leaves: Callable[[LockEntry], bool]) -> Lockfile:
        """The lockfile without the entries that leave it, and without devices of which none stays; itself for none."""
        entries = tuple(entry for entry in self.entries if not leaves(entry))
        return self if entries == self.entries else lock_for(self.devices, entries)

    def write(self, path: str | os.PathLike[str], sign: str | os.PathLike[str] | None = None) -> None:
        """Write the lockfile; an existing file is replaced and keeps its permissions. Equal content gives equal bytes.

        The path may be a URL, and `sign` names the file of a private key, whose signature the file then has. What
        others have written since it was read is replaced too; inside of `editing`, nobody has. LockfileError: the file
        cannot be written. SettingsError: the key cannot be used.
        """
        text = text_of(_contents(self, sign))
        with LockfileError.when(f"{shown(path)} cannot be written", "name another file", OSError, CacheError):
            records.write_at(path, text)

    @staticmethod
    @contextmanager
    def editing(path: str | os.PathLike[str]) -> Iterator[None]:
        """Let nobody else edit a lockfile meanwhile, so that nothing is lost between its reading and its writing.

        It holds for those who use it too, as the commands do, in other threads and processes of this machine. The lock
        is that of the file's folder: who holds it edits no other lockfile there. A lock that cannot be had within a
        minute is a warning. What a URL serves has no lock.
        """
        if is_url(path):
            yield
            return
        folder = Path(os.path.realpath(Path(path).expanduser())).parent
        with Folder(folder).locked(None, wait_s=_EDITED_S, poll_s=_LOOK_S):
            yield

    @staticmethod
    def accept_edits(path: str | os.PathLike[str]) -> tuple[Lockfile, tuple[LockEntry, ...]]:
        """The content of an edited or merged lockfile, and the entries that were edited, whose origin now says so.

        Conflicts that a merge left in the checksum of the whole file are settled; others are for a person, as a
        LockfileError, and so is an edit that gives a compiler a file or an option a value that it cannot have. Nothing
        is written.
        """
        where = expanded(path)
        with LockfileError.when(f"{where}", "", LockfileError):
            content = _object(without_conflicts(_text_in(where).decode("utf-8", "replace")))
            entries = [entry if _damage(entry) is None else _by_hand(entry) for entry in content["entries"]]
            lock = _build({**content, "entries": entries})
        by_hand = tuple(entry for entry in lock.entries if entry.origin.kind is OriginKind.BY_HAND)
        for entry in by_hand:
            if why := why_not_of_a_file(entry.config) or why_not_of_a_file(entry.default or {}):
                hint = "correct the entry, or tune the kernel with a space that has the option"
                raise LockfileError(f"{where}: {entry.kernel} {entry.label}: {why}", hint=hint)
        return lock, by_hand

    @staticmethod
    def merged(locks: Iterable[Lockfile]) -> Lockfile:
        """The entries of several lockfiles, for one problem the first; LockfileError if an alias means two devices."""
        devices: dict[str, LockedDevice] = {}
        entries: dict[tuple[Any, ...], LockEntry] = {}
        for lock in locks:
            for device in lock.devices:
                first = devices.setdefault(device.alias, device)
                if replace(first, also=()) != replace(device, also=()):
                    why = first.why_not(vars(device)) or device.why_not(vars(first)) or "it is spelled differently"
                    message = f"{device.alias} is {first.name} in one lockfile and {device.name} in another: {why}"
                    hint = "give it another alias in one of them, then run `triton-ops lock --refresh`"
                    raise LockfileError(message, hint=hint)
                devices[device.alias] = replace(first, also=tuple(dict.fromkeys((*first.also, *device.also))))
            for entry in lock.entries:
                entries.setdefault(entry.place, entry)
        return Lockfile(tuple(devices.values()), tuple(entries.values()))


def _rank(pinned: Pinned, key: Key) -> tuple[bool, bool, bool, float, bool]:
    entry, borrowed = pinned.entry, pinned.borrowed_from is not None
    # Of equal ones an entry for this source of the kernel goes before one that answers any, as imported ones do.
    return borrowed, entry.origin.expected, pinned.rung != "exact", entry.distance(key), not entry.source


def lock_for(devices: Iterable[LockedDevice], entries: Sequence[LockEntry]) -> Lockfile:
    """The lockfile of some entries, with those of the devices that they are of."""
    aliases = {entry.device for entry in entries}
    return Lockfile(tuple(device for device in devices if device.alias in aliases), tuple(entries))


def loads(text: str | bytes) -> Lockfile:
    """The lockfile in a text; LockfileError if it is of no such form, or was damaged or edited by hand."""
    content = _object(text)
    edited = [entry for entry in content["entries"] if _damage(entry) is not None]
    if edited:
        names = ", ".join(f"{entry.get('kernel')} {entry.get('label') or ''}".rstrip() for entry in edited[:3])
        more = f" and {len(edited) - 3} more" if len(edited) > 3 else ""
        raise LockfileError(f"entries were damaged or edited by hand: {names}{more}", hint=_REFRESH)
    if (damage := _damage(content)) is not None:
        raise LockfileError(f"{damage}, though each entry is whole: some were removed or added", hint=_REFRESH)
    return _build(content)


def _changes(path: Path, before: tuple[int, ...]) -> bool:
    """True if a file is another one than it was, or becomes one within a moment."""
    until_s = time.monotonic() + _STILL_S
    while StoredFile(path).state == before:
        if time.monotonic() > until_s:
            return False
        time.sleep(_LOOK_S)
    return True


def _contents(lock: Lockfile, sign: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """The lockfile as plain JSON values. It is turned into text and back, since readers take the checksum of that."""
    whole = {"devices": lock.devices, "entries": [entry.in_file for entry in lock.entries]}
    plain = json.loads(canonical_json(msgspec.to_builtins(whole, enc_hook=Config.encode)))
    for entry in plain["entries"]:
        for name in ("call", "bits", "same_bits"):  # only entries of decorated kernels have the first
            if not entry[name]:
                del entry[name]
    entries = [Sealed(entry) for entry in plain["entries"]]
    head = {"kind": KIND, "schema_version": SCHEMA_VERSION, "devices": plain["devices"]}
    content = {**head, "entries": entries}
    return Sealed(content if sign is None else records.signed(content, sign))


def _read_url(url: str, *, or_empty: bool) -> Lockfile:
    with LockfileError.when(shown(url), "", CacheError):
        try:
            return Lockfile.read(records.local_path(url))
        except CacheError as error:
            if or_empty and isinstance(error.__cause__, FileNotFoundError):
                return Lockfile()
            raise


def _text_in(path: Path) -> bytes:
    with LockfileError.when("it cannot be read", hint="name a lockfile"):
        try:
            return NamedFile(path).read(_LARGEST_BYTES)
        except FileNotFoundError as error:
            hint = "`triton-ops lock` writes one from the records of this machine; or name yours"
            raise LockfileError(f"it cannot be read: {path.absolute().parent} has no such file", hint=hint) from error


def _object(text: str | bytes) -> dict[str, Any]:
    """The JSON object of a lockfile of this version; its checksums are not judged."""
    lines = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if re.search(rb"^<<<<<<< ", lines, re.MULTILINE):  # no value begins a line: in JSON's texts line ends are escaped
        raise LockfileError("a merge left conflicts in it", hint="settle them, then run `triton-ops lock --refresh`")
    with LockfileError.when("it is no lockfile", "`triton-ops lock` writes one", DamagedError):
        content = Sealed.unambiguous(text)
    check_kind(content, KIND, SCHEMA_VERSION, "write it again with `triton-ops lock`", LockfileError)
    entries = content.get("entries")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise LockfileError("it has no list of entries", hint="`triton-ops lock` writes one")
    return content


def _damage(content: Mapping[str, Any]) -> str | None:
    try:
        Sealed.opened(content)
    except DamagedError as error:
        return str(error)
    return None


def _by_hand(entry: Mapping[str, Any]) -> dict[str, Any]:
    origin = entry["origin"] if isinstance(entry.get("origin"), dict) else {}
    # Nobody has told the class of another config.
    return {**entry, "bits": "", "same_bits": False, "origin": {**origin, "source": OriginKind.BY_HAND.value}}


def _build(content: Mapping[str, Any]) -> Lockfile:
    _only(content, {"kind", "schema_version", Sealed.SIGNATURE, Sealed.CHECKSUM, "devices", "entries"}, "it")
    plain = [{name: value for name, value in entry.items() if name != Sealed.CHECKSUM} for entry in content["entries"]]
    for entry in plain:
        _only(entry, set(LockEntry.__dataclass_fields__), f"the entry of {entry.get('kernel')}")
    errors = DamagedError, SpaceError, TypeError, ValueError, RecursionError
    with LockfileError.when("it is not well formed", "`triton-ops lock` writes one", *errors):
        for entry in plain:
            if isinstance(origin := entry.get("origin"), dict):
                entry["origin"] = EntryOrigin.fields_of(origin)
        lock = Sealed.typed({"devices": content.get("devices"), "entries": plain}, Lockfile, Config.decode)
    return with_defaults(lock)


def _only(content: Mapping[str, Any], names: set[str], what: str) -> None:
    if unknown := sorted(map(str, set(content) - names)):
        message = f"{what} has the unknown fields {', '.join(unknown)}; known are {', '.join(sorted(names))}"
        raise LockfileError(message, hint="remove them, or upgrade triton-ops")


_FIRST_LOOK_S = 0.1
_MOST_LOOK_S = 1.0  # between two looks at a file that stays as it was refused


class FollowedLockfile:
    """The lockfile at a path. A file that is refused is one warning for each time that it was changed."""

    SHARED: ClassVar[dict[str, FollowedLockfile]] = {}
    """Those of packages, by their paths."""

    def __init__(self, path: str | os.PathLike[str], warning: str) -> None:
        self._path, self._warning = path, warning
        self._lockfile: Lockfile | None = None
        self._refused_state: tuple[int, ...] | None = None
        self._follower: threading.Thread | None = None
        self.refused = ""  # why there is no lockfile; empty if it was read, or not tried yet

    def read(self) -> Lockfile | None:
        """The lockfile, read once; None if it is refused. Cost: one `stat` where it is as it was when refused."""
        if self._lockfile is None and (state := StoredFile(self._path).state) != self._refused_state:
            try:
                self._lockfile, self.refused = Lockfile.read(self._path), ""
            except LockfileError as error:
                self._refused_state, self.refused = state, str(error)
                warn("%s is not used: %s", self._warning, error)
        return self._lockfile

    @staticmethod
    def shared() -> tuple[Lockfile, ...]:
        """The lockfiles of packages, in the order in which they were shared."""
        # Another thread may import a package that shares one meanwhile.
        return tuple(lock for each in tuple(FollowedLockfile.SHARED.values()) if (lock := each.read()) is not None)

    @staticmethod
    def shared_entries(key: Key) -> Iterator[LockEntry]:
        """The measured entries of packages for the kernel and the device of a key, whatever their problem.

        Those that keep to a class of bits, which holds for their own problem alone, are left out.
        """
        entries = (entry for lock in FollowedLockfile.shared() for entry in lock._here(key))
        return (entry for entry in entries if not (entry.origin.expected or entry.same_bits))

    def follow(self, on_reading: Callable[[], object]) -> None:
        """While the file is refused and somebody holds this object, have a thread look at it; then call `on_reading`.

        In a forked child, where the thread is not, a further call starts another.
        """
        if self._lockfile is None and (self._follower is None or not self._follower.is_alive()):
            look = partial(_follow, weakref.ref(self), on_reading)
            self._follower = threading.Thread(target=look, name="triton-ops lockfile", daemon=True)
            try:
                self._follower.start()
            except RuntimeError:  # the system has no thread left; the next call tries again
                self._follower = None


@dataclass(frozen=True)
class LockfileInUse:
    """A lockfile that launches of this process use, or one that is followed, and whether they use nothing else."""

    NOW: ClassVar[LockfileInUse | None] = None
    """What was asked for; None until then, where the environment decides."""

    lockfile: Lockfile | FollowedLockfile | None = None
    only: bool = False

    @staticmethod
    def now() -> LockfileInUse:
        """What launches use from now on until something else is asked for."""
        if LockfileInUse.NOW is None:
            LockfileInUse.NOW = _environments()
        return LockfileInUse.NOW

    @property
    def content(self) -> Lockfile | None:
        """The lockfile; None if there is none, or it is refused."""
        return self.lockfile.read() if isinstance(self.lockfile, FollowedLockfile) else self.lockfile


def _environments() -> LockfileInUse:
    for name, right_name in settings.misspelt().items():
        warn("the variable %s is not read; %s is meant?", name, right_name)
    replay = settings.replay()
    path = settings.lockfile() if replay is None else replay
    if path is None:
        return LockfileInUse()
    name = "TRITON_OPS_LOCKFILE" if replay is None else "TRITON_OPS_REPLAY"
    return LockfileInUse(FollowedLockfile(path, f"the lockfile that {name} names"), only=replay is not None)


def winners_of(key: Key, records: Iterable[Record]) -> Iterator[tuple[Key, Config]]:
    """Every winner of the key's kernel on its device, with the key of its problem: of records, then of packages."""
    for record in records:
        if record.undecided or record.key.unknown is not None:
            continue
        if record.key.kernel == key.kernel and record.key.device.get("name") == key.device.get("name"):
            yield record.key, record.winner
    for entry in FollowedLockfile.shared_entries(key):
        yield replace(key, problem=entry.problem), entry.config


def _follow(followed: weakref.ref[FollowedLockfile], on_reading: Callable[[], object]) -> None:
    pause_s = _FIRST_LOOK_S
    while (here := followed()) is not None:
        if here.read() is not None:
            warn("%s is used now", here._warning)
            on_reading()
            return
        # The thread holds no reference while it sleeps, so that the object can go, and the thread ends.
        del here
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _MOST_LOOK_S)


def share_lockfile(path: str | os.PathLike[str]) -> None:
    """Let the launches of this process also take configs from the lockfile at `path`, after records of their problem.

    A package calls it with a lockfile of its own kernels when it is imported. The file is read when a launch first asks
    for it. One that cannot be read is one warning, and counts as empty until it is changed.

    Args:
        path: The lockfile, as `triton-ops lock` writes it, or its URL. An entry answers on its device only.

    Cost: a URL is waited for, at most two seconds, unless a copy of it is on this machine. One that cannot be had is a
    warning.
    """
    try:
        path = records.Fetch.begun(path).at_start() if is_url(path) else path
    except TritonKernelError as error:
        warn("a package's lockfile is not used: %s", error)
        return
    where = os.path.abspath(os.fspath(path))  # noqa: PTH100 - text, as the folders of records
    FollowedLockfile.SHARED.setdefault(where, FollowedLockfile(where, "a package's lockfile"))
