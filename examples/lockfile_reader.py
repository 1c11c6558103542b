"""A reader of triton-ops lockfiles for projects that take no dependency: copy this file, which needs Python 3.8 alone.

It answers as `triton_ops.records.Lockfile.find` does, and refuses what the package refuses. It borrows no entry from
another device, runs and writes nothing. What it cannot tell stands in `Answer.unchecked`, or is a NoAnswerError:

- Without an `identity` from the package the kernel's source, the assembler and hooks are not compared, and where
  entries for several sources differ in the config there is no answer. `triton-ops lock verify --static` compares them.
- Arguments `NAME:class` of decorated kernels are not made here; write them as the entry has them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping  # noqa: UP035 - Python 3.8

KIND, SCHEMA_VERSION, LARGEST_BYTES, MOST_CONTAINERS = "triton-ops lock", 1, 64 << 20, 2_000_000
Facts = Mapping[str, Any]


class RefusedError(ValueError):
    """The file is no lockfile of this version, or was damaged or edited by hand."""


class NoAnswerError(LookupError):
    """No entry answers, or only the kernel's source decides which one does, and no identity was given."""


@dataclass(frozen=True)
class Answer:
    """A config, and how far it holds."""

    config: dict[str, Any]
    rung: str  # `exact` if it was found for this very problem, `range` if that lies in one of its ranges
    entry: Facts  # as in the file; its origin's `source` says if the winner is unproven
    drift: tuple[str, ...] = ()  # versions and the driver that changed since, each as `name: then | now`
    unchecked: tuple[str, ...] = ()  # what was not compared, since it is not known here


@dataclass(frozen=True)
class Lockfile:
    """The devices of a lockfile by alias, and its entries in the order in which they answer."""

    devices: Mapping[str, Facts]
    entries: tuple[Facts, ...]

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Lockfile:
        """The lockfile in a file; OSError if it cannot be read, RefusedError if it is none."""
        with Path(path).expanduser().open("rb") as file:
            return Lockfile.loads(file.read(LARGEST_BYTES + 1))

    @staticmethod
    def loads(text: bytes) -> Lockfile:
        """The lockfile in a text; RefusedError if it is none."""
        content = _parsed(text)
        file = {"kind", "schema_version", "devices", "entries", "signature", "checksum"}
        names = file, {name.rstrip("?") for name in _ENTRY}
        for what in (*content["entries"], content):
            title = "the file" if what is content else f"the entry {what.get('kernel')} {what.get('label') or ''}"
            rest = _canonical({name: value for name, value in what.items() if name != "checksum"})
            if what.get("checksum") != hashlib.sha256(rest.encode()).hexdigest()[:32]:
                raise RefusedError(f"{title} was damaged or edited by hand; `triton-ops lock --refresh` accepts edits")
            if unknown := what.keys() - names[what is not content]:
                raise RefusedError(f"{title} has the unknown fields {', '.join(sorted(unknown))}")
            if not _fits(what, {"devices?": [_DEVICE]} if what is content else _ENTRY):
                raise RefusedError(f"{title} is not well formed; `triton-ops lock` writes one")
        listed = content.get("devices", [])
        devices, entries = {device["alias"]: device for device in listed}, sorted(content["entries"], key=_place)
        if len(devices) != len(listed) or len(set(map(_place, entries))) != len(entries):
            raise RefusedError("two devices have one alias, or two entries are for one problem")
        if unknown := {entry["device"] for entry in entries} - devices.keys():
            raise RefusedError(f"entries name the devices {', '.join(sorted(unknown))}, which are not listed")
        return Lockfile(devices, tuple(entries))

    def find(self, kernel: str, device: Facts, arguments: Facts, identity: Facts | None = None) -> Answer:
        """The config for a call of `kernel` on a device; NoAnswerError, with the reason, if no entry answers.

        `arguments` are as of `arguments_of`, `device` has the fields of a lockfile's and the `driver`. `identity` is
        the kernel's, as the package makes it; without it the source is not compared, versions are of `installed`.
        """
        if not (named := [entry for entry in self.entries if entry["kernel"] == kernel]):
            raise NoAnswerError(f"the lockfile has no entry of {kernel}")
        if not (here := [entry for entry in named if not _other_device(self.devices[entry["device"]], device)]):
            reason = _other_device(self.devices[named[0]["device"]], device)
            raise NoAnswerError(f"the lockfile has no entry of {kernel} for this device: {reason}")
        reasons = [_outside(entry, arguments, entry.get("ranges", []), identity) for entry in here]
        fitting = [entry for entry, reason in zip(here, reasons) if not reason]  # noqa: B905 - Python 3.8
        if not fitting:
            more = f", and {len(set(reasons)) - 1} further reasons" if len(set(reasons)) > 1 else ""
            raise NoAnswerError(f"none of {len(here)} entries of {kernel} answers: {reasons[0]}{more}")

        def rank(entry: Facts) -> tuple[bool, bool, float, bool]:
            mine, theirs = _extents(entry["problem"]), _extents(arguments)
            names = [each["extents"][0] for each in entry.get("ranges", [])]
            distance = sum(abs(math.log2(max(mine[name], 1) / max(theirs[name], 1))) for name in names)
            expected = str(entry.get("origin", {}).get("source")).startswith("expected: ")  # not measured
            return expected, bool(_outside(entry, arguments, [], None)), distance, not _source(entry)

        # What each source that may be the kernel's would get; with an identity the entries that fit are for one source.
        sources = [_source(entry) for entry in fitting] if identity is None else [identity]
        best, *others = [min((e for e in fitting if _source(e).items() <= own.items()), key=rank) for own in sources]
        if any(_canonical(other["config"]) != _canonical(best["config"]) for other in others):
            raise NoAnswerError(f"entries of {kernel} for several sources differ in the config; give the identity")
        config = {name: _as_tuples(value) for name, value in best["config"].items()}
        return Answer(config, "range" if rank(best)[1] else "exact", best, *_staleness(best, device, identity))


def arguments_of(**arguments: Any) -> dict[str, Any]:
    """Arguments as a lockfile has them: of a tensor its shape, dtype, strides and alignment; others as they are."""
    plain = dict(arguments)
    for name, value in arguments.items():
        if hasattr(value, "data_ptr"):
            plain[name] = {"shape": list(value.shape), "dtype": str(value.dtype).rpartition(".")[2]}
            aligned = value.element_size() >= 16 or value.data_ptr() % 16 == 0
            plain[name].update(stride=list(value.stride()), aligned=aligned)
        elif isinstance(value, float) and not math.isfinite(value):
            plain[name] = {"float": repr(value)}
    return plain


def installed(names: Facts) -> dict[str, str | None]:
    """The versions here of what an identity names; without what the standard library cannot tell, such as hooks."""
    versions: dict[str, str | None] = {name: None for name in names if name in ("triton", "torch")}
    for name in (name for name, text in names.items() if not re.fullmatch("[0-9a-f]{32}", text)):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError):
            versions[name] = platform.python_version() if name == "python" else importlib.metadata.version(name)
    return versions


def _staleness(entry: Facts, device: Facts, identity: Facts | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What changed since the config was found, and what is not known here."""
    then = {name: text for name, text in entry.get("identity", {}).items() if name not in _source(entry)}
    now: dict[str, Any] = dict(installed(then) if identity is None else identity)
    unchecked = [] if identity is not None else [*_source(entry), *(name for name in then if name not in now)]
    if (driver := entry.get("origin", {}).get("driver")) is not None:
        then["driver"], now["driver"] = str(driver), str(device.get("driver"))
        unchecked += ["driver"] if identity is None and "driver" not in device else []
    changed = [name for name in sorted(then) if name not in unchecked and now.get(name) != then[name]]
    return tuple(f"{name}: {then[name]} | {now.get(name)}" for name in changed), tuple(unchecked)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _parsed(text: bytes) -> dict[str, Any]:
    if re.search(rb"^<<<<<<< ", text, re.MULTILINE):
        raise RefusedError("a merge left conflicts in it")
    if len(text) > LARGEST_BYTES or text.count(b"[") + text.count(b"{") > MOST_CONTAINERS:
        raise RefusedError(f"it has more than {LARGEST_BYTES} bytes, or {MOST_CONTAINERS} lists and objects")
    try:
        content: dict[str, Any] = json.loads(text.decode("utf-8"), object_pairs_hook=_once)
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()  # ValueError: half a character, infinity
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"it is not JSON: {error}") from error
    if not _fits(content, {"kind": str, "schema_version": (int, float), "entries": [{}]}) or content["kind"] != KIND:
        raise RefusedError(f"it is not of the kind {KIND!r}, or has no list of entries")
    if content["schema_version"] != SCHEMA_VERSION:
        raise RefusedError(f"it has schema version {content['schema_version']}; this reader reads {SCHEMA_VERSION}")
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) == len(pairs):
        return dict(pairs)
    raise ValueError("an object in it has a name twice")


# A form is a type, None, a range, a test, a tuple of alternatives, a list with one form for all items, or an object
# with forms by name, in which a name with `?` may be missing and `*` stands for every name.
_COUNT, _EXTENT, _PLAIN = (range(2**53 + 1), None), range(2**62 + 1), (bool, int, float, str, None)
_SIZES = {"shape?": [_EXTENT], "stride?": [(int, None)], "range?": ()}  # a bucket stands in `ranges`
_FACTS = {**_SIZES, "dtype?": str, "aligned?": bool, "float?": str, "any?": bool}
_UNITS = {"units?": _COUNT, "threads?": _COUNT}
_DEVICE = {"alias": str, "kind": str, "name": str, "arch?": (str, None), "also?": [str], **_UNITS}
_TIME = (lambda time: type(time) in (int, float) and 0 <= time <= 1.7976931348623157e308, None)
_VALUE: Any = (bool, range(-(2**63), 2**64), float, str, None)
for _ in range(16):  # levels of lists in a value of a config
    _VALUE = (*_VALUE[:5], [_VALUE])
_CONFIG = {"*": _VALUE}
_TIMES = {"cache_state": str, "mode": str, "median_ms": _TIME[0], "default_ms?": _TIME, "gain?": _TIME}
_ORIGIN = {"source?": str, "record?": str, "run?": str, "created?": str, "driver?": _PLAIN, "versions?": {"*": str}}
_SPAN = {"extents": [str], "low": _EXTENT, "high": _EXTENT}
_CALL = {
    "arguments": {"*": (*_PLAIN, {**_FACTS, "shape?": [(_EXTENT, [_EXTENT])], "range?": [_EXTENT]})},
    "grids": [([_EXTENT], str)], "configs": lambda configs: configs != [] and _fits(configs, [{"*": _PLAIN}]),
}  # fmt: skip
_ENTRY = {
    "kernel": str, "device": str, "label?": str, "config": _CONFIG, "default?": (_CONFIG, None),
    "measured?": (_TIMES, None), "problem": {"*": (*_PLAIN, _FACTS)}, "ignored?": [str], "identity?": {"*": str},
    "ranges?": [lambda span: _fits(span, _SPAN) and span["extents"] != [] and span["low"] <= span["high"]],
    "bits?": str, "same_bits?": bool, "origin?": _ORIGIN, "call?": (_CALL, str, None), "checksum": str,
}  # fmt: skip


def _fits(value: Any, form: Any) -> bool:
    if isinstance(form, tuple):
        return any(_fits(value, each) for each in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(_fits(item, form[0]) for item in value)
    if isinstance(form, dict) and isinstance(value, dict):
        if "*" in form:
            return all(_fits(item, form["*"]) for item in value.values())
        pairs = [(name.rstrip("?"), each, name.endswith("?")) for name, each in form.items()]
        return all(_fits(value[name], each) if name in value else optional for name, each, optional in pairs)
    if isinstance(form, (range, types.FunctionType)):
        return bool(form(value)) if callable(form) else type(value) is int and value in form
    return value is form or form in (object, type(value))


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _place(entry: Facts) -> tuple[str, str, tuple[int, ...], str]:
    sizes = tuple(extent for _, extent in sorted(_extents(entry["problem"]).items()))
    rest = _canonical([_known(entry["problem"]), entry.get("ignored", []), _source(entry)])
    return entry["kernel"], entry["device"], sizes, rest


def _known(problem: Facts) -> dict[str, Any]:
    """A problem without the facts of tensors that no lockfile of this version has."""
    return {n: {k: v[k] for k in v if f"{k}?" in _FACTS} if isinstance(v, dict) else v for n, v in problem.items()}


def _source(entry: Facts) -> dict[str, str]:
    return {name: text for name, text in entry.get("identity", {}).items() if name in ("source", "grid")}


def _other_device(known: Facts, device: Facts) -> str:
    """The reason why `device` is another one than a lockfile's; empty if it is this one."""
    name, *names = (
        "".join(filter(str.isalnum, str(each).casefold()))
        for each in (device.get("name", ""), known["name"], *known.get("also", []))
    )
    if device.get("kind") != known["kind"]:
        return f"it is of kind {device.get('kind')}, not {known['kind']}"
    if known.get("arch") is not None and device.get("arch") != known["arch"]:
        return f"its architecture is {device.get('arch')}, not {known['arch']}"
    if name not in names:
        return f"it is {device.get('name')}, not {' or '.join((known['name'], *known.get('also', [])))}"
    for what in ("units", "threads"):
        if name not in names[1:] and known.get(what) is not None and device.get(what) != known[what]:
            return f"it has {device.get(what)} {what}, not {known[what]}"
    return ""


def _extents(problem: Facts) -> dict[str, int]:
    extents: dict[str, int] = {}
    for name, value in problem.items():
        if isinstance(value, dict):
            extents.update({f"{name}[{axis}]": extent for axis, extent in enumerate(value.get("shape", ()))})
        elif type(value) is int and ":" not in name:
            extents[name] = value
    return extents


def _outside(entry: Facts, arguments: Facts, ranges: list[Facts], identity: Facts | None) -> str:
    """The reason why an entry with these ranges does not hold for `arguments`; empty if it does."""
    own = {} if identity is None else _source(entry)
    if changed := [name for name in ("source", "grid") if name in own and (identity or {}).get(name) != own[name]]:
        return f"the kernel's {' and '.join(changed)} changed since"
    ignored, problem = entry.get("ignored", []), _known(entry["problem"])
    mine, theirs = ({n: v for n, v in each.items() if n not in ignored} for each in (problem, arguments))
    if mine.keys() != theirs.keys():
        return f"its arguments are {', '.join(theirs) or 'none'}, not {', '.join(mine) or 'none'}"
    extents = _extents(theirs)
    for each in ranges:
        first, values = each["extents"][0], {extents.get(name) for name in each["extents"]}
        if len(values) != 1 or None in values:
            texts = " and ".join(sorted("missing" if value is None else str(value) for value in values))
            return f"{', '.join(each['extents'])} are not one whole number, but {texts}"
        if not each["low"] <= extents[first] <= each["high"]:
            span = f"{'='.join(each['extents'])} from {each['low']} to {each['high']}"
            return f"{first} is {extents[first]}, and the range goes {span}"
    free = {extent for each in ranges for extent in each["extents"]} & _extents(mine).keys()
    for name in mine:
        one, other = _rest(name, mine[name], free), _rest(name, theirs[name], free)
        both = isinstance(one, dict) and isinstance(other, dict)
        if _canonical(one) != _canonical(other) if both else type(one) is not type(other) or one != other:
            return f"{name} is {other}, not {one}"
    return ""


def _rest(name: str, value: Any, free: set[str]) -> Any:
    """An argument without the extents in `free`; of the strides of such a tensor remains whether they are 0 or 1."""
    if not isinstance(value, dict):
        return None if name in free else value
    shape = [None if f"{name}[{axis}]" in free else extent for axis, extent in enumerate(value.get("shape", ()))]
    if None not in shape:
        return value
    return {**value, "shape": shape, "stride": [step if step in (0, 1) else None for step in value.get("stride", ())]}
