"""Files of other tuners, which have configs by key or all that was tried.

Facts used, of the schema T4 1.0.0, of what Kernel Tuner 1.5 writes and of public files: `results`, each with
`configuration`, `times`, `invalidity` (`correct`, or how it failed), `correctness`, `objectives` and `measurements`
with name, value and unit; the value of a failed one is a word. An empty unit is the `timeunit` of `metadata`, as that
of `runtimes` in `times` is; public files spell it `ms`, `milliseconds` and `miliseconds`. No file says whether more of
its objective is better.

Facts used, of Triton 3.4 to 3.9 with `cache_results` or `TRITON_CACHE_AUTOTUNING=1`: the file stands in a folder of
Triton's disk cache that is named by a hash of the compiler, the target, the kernel's source, the environment, the key
and all configs; it holds `key`, which is not empty, and `configs_timings`, pairs of a config's fields and of its times,
which are a list or what the caller's `do_bench` gave; a config that could not run has `Infinity` three times. The least
times win, as Python's `min` compares them. The name of the folder needs the kernel itself, and is given as `folder`:
that of a file which Triton has written.

Facts used, of flash-linear-attention 0.5.1 to 0.6.0: `KERNEL.json` below `FLA_CONFIG_DIR`, else below
`fla/configs/GPU`, where all but letters and digits of the device's name are underlines; an entry is found by the MD5
of its key as compact JSON with sorted names; a key holds the values of the decorator's key and then the tensors'
dtypes, such as `torch.bfloat16`; a config has `kwargs`, `num_warps`, `num_stages`, `num_ctas` and more. Of the modes of
`FLA_CACHE_MODE`, `strict` takes the entry of the key, `fuzzy` else the first whose key differs in numbers only, `full`
else `default_config`, or a file that is one config; `default` and `always` take `default_config` alone. A file is not
used at all if an entry of it has no config.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.ship.rows import ANY_ROW
from triton_ops.ship.table import OPTIONS, Format, Table, TableRow, config_in, kind_called
from triton_ops.space import Config, as_tuples
from triton_ops.values import ITEM_BYTES, Status

_EARLIER = ("num_consumer_groups", "num_buffers_warp_spec", "reg_dec_producer", "reg_inc_consumer")  # of Triton 3.2
_LARGEST = 1e300
_UNMEASURED = "unmeasured"  # the failure of a config that ran, and whose time or objective is not usable


def flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `triton.Config` as one mapping, without those that are null and one thread block per cluster."""
    options = {name: value for name, value in fields.items() if name != "kwargs" and value is not None}
    if repr(options.get("num_ctas")) == repr(OPTIONS["num_ctas"]):  # the text tells True and 1.0 from 1
        del options["num_ctas"]
    return {**fields["kwargs"], **options}


def nested(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `triton.Config`; SettingsError for a tuple, which Triton reads back as a list that it refuses."""
    if tuples := [name for name, value in config.items() if isinstance(value, tuple)]:
        raise SettingsError(f"{tuples[0]} is a tuple, which the engine does not read back", hint="leave the config out")
    options = {name: config.get(name, default) for name, default in OPTIONS.items()}
    return {"kwargs": {name: value for name, value in config.items() if name not in OPTIONS}, **options}


def triton_key(at: Sequence[Any]) -> tuple[Any, ...]:
    """The values of a row as Triton's key has them: dtypes as `torch.bfloat16`."""
    return tuple(f"torch.{value}" if isinstance(value, str) and value in ITEM_BYTES else value for value in at)


def _config(fields: Any, path: Path, failure: str = "") -> Config:
    """A config in its fields, which is judged by its values unless it failed."""
    if not isinstance(fields, dict) or not isinstance(fields.get("kwargs"), dict):
        raise CacheError(f"{path} has a config without kwargs", hint="name a file that the engine has written")
    if strange := [name for name in fields if name not in (*OPTIONS, *_EARLIER, "kwargs")]:
        hint = f"it may have {', '.join(OPTIONS)}"
        raise CacheError(f"{path} has a config with the option {strange[0]:.60}", hint=hint)
    return config_in(flat(fields), path, None if failure else ANY_ROW)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numbers(value: Any) -> list[float]:
    """The finite numbers of a value or of a list."""
    values = value if isinstance(value, list) else [value]
    return [float(each) for each in values if _is_number(each) and -_LARGEST <= each <= _LARGEST]


def _unused(objects: Iterable[Mapping[str, Any]], *known: str) -> list[str]:
    """A remark on the names in some objects that are not among those which are known."""
    names = sorted({name for each in objects for name in each} - {*known})
    return [f"not known, and not used: {', '.join(names)}"] if names else []


def _check_tried(table: Table, what: str) -> None:
    """Check that a table is of one problem, with the times by which the engine compares configs."""
    if len({json.dumps(row.at) for row in table.rows}) > 1:
        raise SettingsError(f"{what} holds one problem, not several", hint="export one at a time")
    if any(not row.failure and row.median_ms is None for row in table.rows):
        raise SettingsError(f"a config has no time, and {what} compares configs by it", hint="export a run: --run FILE")


class T4Results(Format):
    """Files of results in the format T4."""

    facts, row = ("file",), ()

    def content(self, table: Table) -> Mapping[str, Any]:
        """Every config, failed ones included; see `Format`."""
        _check_tried(table, "a file in the format T4")
        (path,) = self.places(Path(), table.facts)
        if path.suffix == ".gz":
            raise SettingsError(f"{path.name} would not be compressed, but JSON", hint=f"--set file={path.stem}")
        results = [_t4_result(row) for row in table.rows]
        return {"schema_version": _SCHEMA, "metadata": {"timeunit": "milliseconds"}, "results": results}

    def read(self, path: Path) -> Table:
        """Every config of the file, with what its objective costs; see `Format`."""
        content = self.object_in(path)
        results, metadata = content.get("results"), content.get("metadata")
        if not isinstance(results, list):
            first = next(iter(content), "nothing")
            raise CacheError(f"{path} has {first}, and no list of results in the format T4", hint="it is `results`")
        unit = metadata.get("timeunit") if isinstance(metadata, dict) else None
        rows = [_t4_row(result, path) for result in results]
        words = Counter(row.failure for row in rows if row.failure and row.failure not in set(Status))
        remarks = _unused([content], "schema_version", "metadata", "results")
        if (version := content.get("schema_version", _SCHEMA)) != _SCHEMA:
            remarks.append(f"its schema is {version}; what is read is that of {_SCHEMA}")
        remarks += [f"{count} results ended as {word!r}, which T4 has not" for word, count in words.items()]
        rows, unclear = _with_costs(rows, results, str(unit or ""))
        return Table(self.named(path), tuple(rows), remarks=(*remarks, *unclear))

    def named(self, path: Path) -> dict[str, Any]:
        """The name of the file as it is when it is not compressed; see `Format`."""
        return {"file": path.name.removesuffix(".gz")}

    def places(self, folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
        """The one file; see `Format`."""
        return (folder / str(facts.get("file", "results.json")),)

    def choose(self, table: Table, _facts: Mapping[str, Any], _at: Sequence[Any]) -> TableRow | None:
        """The best config of the file; see `Format`."""
        return next(iter(table.best()), None)


_SCHEMA = "1.0.0"


def _t4_result(row: TableRow) -> dict[str, Any]:
    times = [] if row.median_ms is None else [row.median_ms]
    # Another engine may have named the status.
    words = (status.facts.t4 for status in Status if status.value == (row.failure or Status.OK))
    return {
        "configuration": dict(row.config),
        "objectives": ["time"],
        "times": {"runtimes": times},
        "invalidity": next(words, "runtime"),
        "correctness": int(not row.failure),
        "measurements": [{"name": "time", "value": each, "unit": "ms"} for each in times],
    }


def _t4_row(result: Any, path: Path) -> TableRow:
    if not isinstance(result, dict) or not isinstance(result.get("configuration"), dict):
        raise CacheError(f"{path} has a result without a configuration", hint="name a file in the format T4")
    status = Status.of_t4(str(result.get("invalidity", "correct")))
    if status == Status.OK:
        status = Status.WRONG if result.get("correctness") == 0 else ""
    config = config_in(result["configuration"], path, ANY_ROW if status == "" else None)
    return TableRow((), config, failure=str(status))


def _with_costs(
    rows: Sequence[TableRow], results: Sequence[Mapping[str, Any]], time_unit: str
) -> tuple[list[TableRow], list[str]]:
    """The rows with the costs by which they are compared, and what is to be said of the objective and its units."""
    name, sign, remarks = _objective(results)
    pairs = [None if row.failure else _measured(each, name, time_unit) for row, each in zip(rows, results, strict=True)]
    factors, unknown = _factors({unit for _, unit in filter(None, pairs)}, name)
    costed = []
    for row, result, pair in zip(rows, results, pairs, strict=True):
        if pair is None or pair[1] not in factors:
            costed.append(row if row.failure else replace(row, failure=_UNMEASURED))
        else:
            cost = (sign * pair[0] * factors[pair[1]],)
            value, unit = _measured(result, "time", time_unit) or pair
            factor = _factor(unit)
            costed.append(replace(row, cost=cost, median_ms=None if factor is None else value * factor))
    count, correct = (sum(row.failure == failure for row in costed) for failure in (_UNMEASURED, ""))
    missing = [f"{count} of {count + correct} correct results have no usable {name}"] if count else []
    return costed, [*remarks, *unknown, *missing]


def _objective(results: Sequence[Mapping[str, Any]]) -> tuple[str, int, list[str]]:
    """What decides, 1 if less of it is better or -1 if more is, and what is to be said of it."""
    lists = [each.get("objectives") for each in results]
    names = dict.fromkeys(str(each[0]) if isinstance(each, list) and each else "time" for each in lists)
    name = " or ".join(names) or "time"
    further = dict.fromkeys(str(other) for each in lists if isinstance(each, list) for other in each[1:])
    beside = [f"its further objectives are not compared: {', '.join(further)}"] if further else []
    if name == "time":
        return name, 1, beside
    pairs = filter(None, (_measured(each, name, "") for each in results))
    are_times = {_factor(unit) is not None for _, unit in pairs} == {True}
    if sign := _SIGNS.get(name, -1 if _RATE.fullmatch(name.lower()) else int(are_times)):
        return name, sign, [f"its objective is {name}: the {'least' if sign > 0 else 'most'} is the best", *beside]
    return "time", 1, [f"its objective is {name}, and it does not say if more of it is better: times decide", *beside]


def _factors(units: Set[str], name: str) -> tuple[dict[str, float], list[str]]:
    """The factors by which values in these units can be compared, and what is to be said of the other units."""
    if factors := {unit: factor for unit in units if (factor := _factor(unit)) is not None}:
        others = sorted(units - factors.keys())
        return factors, [f"{name} in {unit!r}, a unit that is not known, is left out" for unit in others]
    if len(units) > 1:
        return {}, [f"its {name} has several units, which are not known: {', '.join(map(repr, sorted(units)))}"]
    remark = [f"the unit {unit!r} of its times is not known: they decide, and are not kept" for unit in units]
    return dict.fromkeys(units, 1.0), remark if name == "time" else []


# 1 where less is better, and -1 where more is; rates are among the latter.
_SIGNS = {"energy": 1, "cost": 1, "loss": 1, "fitness": -1}
_RATE = re.compile(r"[kmgtp]?(?:i?b|flops?|ops?)/[swj]|[kmgtp]?(?:fl|i)?ops")
_UNIT = re.compile(r"(n|nano|u|µ|μ|micro|m|mill?i|)s(?:ec(?:ond)?s?)?")
_UNITS_MS = {"n": 1e-6, "nano": 1e-6, "u": 1e-3, "µ": 1e-3, "μ": 1e-3, "micro": 1e-3, "": 1e3}


def _factor(unit: str) -> float | None:
    """Milliseconds of a unit of time, by the spellings that people use; None if it is not known."""
    match = _UNIT.fullmatch(unit.strip().lower())
    return None if match is None else _UNITS_MS.get(match[1], 1.0)


def _measured(result: Mapping[str, Any], name: str, time_unit: str) -> tuple[float, str] | None:
    """The median of what a result has of a measurement, and its unit; None if it has nothing usable."""
    measurements = result.get("measurements")
    entries = [each for each in measurements if isinstance(each, dict)] if isinstance(measurements, list) else []
    times = result.get("times")
    if not entries and name == "time" and isinstance(times, dict):
        entries = [{"name": name, "value": times.get("runtimes")}]
    for each in entries:
        values = [value for value in _numbers(each.get("value")) if value >= 0 or name != "time"]
        if each.get("name") == name and values:
            return median(values), str(each.get("unit") or (time_unit if name == "time" else ""))
    return None


class TritonCache(Format):
    """The files of Triton's cache of autotuning."""

    facts, row = ("kernel_name", "folder"), ()

    def content(self, table: Table) -> Mapping[str, Any]:
        """The configs of one key, failed ones as Triton writes them; see `Format`."""
        _check_tried(table, "a file of Triton's cache")
        at = table.rows[0].at if table.rows else ()
        if not at:
            raise SettingsError("Triton keeps no file without a key", hint="name the values of its key: --row M")
        # Triton keeps three quantiles of a config, and infinity for one that fails: triton-lang/triton#6261.
        timings = [[nested(row.config), [math.inf if row.failure else row.median_ms] * 3] for row in table.rows]
        return {"key": list(triton_key(at)), "configs_timings": timings}

    def read(self, path: Path) -> Table:
        """The configs of one key with their times; see `Format`."""
        content = self.object_in(path)
        timings, key = content.get("configs_timings"), content.get("key")
        if not path.name.endswith(_ENDING) or not isinstance(timings, list) or not isinstance(key, list):
            raise CacheError(f"{path} is no file of Triton's cache of autotuning", hint=f"its name ends in {_ENDING}")
        rows = tuple(_triton_row(as_tuples(key), pair, path) for pair in timings)
        count = sum(row.failure == _UNMEASURED for row in rows)
        remarks = [f"{count} of {len(rows)} configs have no usable time"] if count else []
        return Table(self.named(path), rows, remarks=(*_unused([content], "key", "configs_timings"), *remarks))

    def named(self, path: Path) -> dict[str, Any]:
        """The kernel, and the folder that Triton has made; see `Format`."""
        return {"kernel_name": path.name.removesuffix(_ENDING), "folder": path.parent.name}

    def places(self, folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
        """The one file of the kernel and key; see `Format`."""
        kernel, hashed = self.needed(facts, "kernel_name", "folder")
        return (folder / str(hashed) / f"{str(kernel)[:_LONGEST]}{_ENDING}",)

    def choose(self, table: Table, _facts: Mapping[str, Any], at: Sequence[Any]) -> TableRow | None:
        """The config with the least times, if the file is of the key, or no key is given; see `Format`."""
        row = min(table.rows, key=lambda row: row.cost, default=None)  # with NaN, too, as Triton's `min` compares
        return row if row is not None and (not at or json.dumps(row.at) == json.dumps(triton_key(at))) else None


_ENDING = ".autotune.json"
_LONGEST = 150  # characters of the kernel's name


def _triton_row(at: tuple[Any, ...], pair: Any, path: Path) -> TableRow:
    times = pair[1] if isinstance(pair, list) and len(pair) == 2 else None
    times = times if isinstance(times, list) else [times]
    if not times or not all(map(_is_number, times)):
        raise CacheError(f"{path} has a config without times", hint="name a file that Triton has written")
    usable = _numbers(times[0])
    failure = "" if usable and usable[0] >= 0 else Status.COMPILE.value if times[0] == math.inf else _UNMEASURED
    config = _config(pair[0], path, failure)
    return TableRow(at, config, median_ms=None if failure else usable[0], cost=tuple(times), failure=failure)


class FlaTables(Format):
    """The tables of flash-linear-attention."""

    facts, row = ("kernel_name", "device_name", "triton_version", "mode"), ()

    def content(self, table: Table) -> Mapping[str, Any]:
        """The fastest config of each key, and the default one or else the commonest of them; see `Format`."""
        best = table.best()
        keyed = [row for row in best if row.at]
        if bare := [row.name for row in keyed if not row.dtypes]:
            message = f"the key {bare[0]} has no dtype, and the engine's have one of each tensor"
            raise SettingsError(message, hint="--row x")
        commonest = Counter(row.config for row in keyed).most_common(1)
        default = [row.config for row in best if not row.at] or [config for config, _ in commonest]
        return {
            "kernel_name": table.facts.get("kernel_name"),
            "triton_version": table.facts.get("triton_version"),
            "default_config": nested(default[0]) if default else None,
            "autotune_entries": {
                _fla_digest(row.at): {"autotune_key": list(triton_key(row.at)), "config": nested(row.config)}
                for row in keyed
            },
        }

    def read(self, path: Path) -> Table:
        """The table; the default config has an empty `at`; see `Format`."""
        content = self.object_in(path)
        facts = {**self.named(path), "triton_version": content.get("triton_version")}
        entries, default = content.get("autotune_entries"), content.get("default_config")
        if entries is None and default is None:  # an earlier version's, with its one config
            fields = {name: value for name, value in content.items() if name not in self.facts}
            return Table(facts, (TableRow((), _config(fields, path)),))
        entries = {} if entries is None else entries
        if not isinstance(entries, dict):
            raise CacheError(f"{path} has no autotune_entries by their MD5", hint="the engine reads no others")
        rows = {name: _fla_row(name, entry, path) for name, entry in entries.items()}
        if default is not None:
            rows[_DEFAULT] = TableRow((), _config(default, path), filed=_DEFAULT)
        keyed = tuple(row for row in rows.values() if row is not None)
        if not keyed:
            raise CacheError(f"{path} has no entry with an autotune_key", hint="name a file of flash-linear-attention")
        counts = {
            "have no autotune_key, and are left out": len(rows) - len(keyed),
            "are not under their key's MD5": sum(row.filed not in (_DEFAULT, _fla_digest(row.at)) for row in keyed),
        }
        unused = [*_unused([content], *_TOP), *_unused(entries.values(), "autotune_key", "config", "best_timing")]
        remarks = (*unused, *(f"{count} entries {what}" for what, count in counts.items() if count))
        return Table(facts, keyed, remarks=remarks)

    def named(self, path: Path) -> dict[str, Any]:
        """The kernel, and the device where the folder's name is one of a device; see `Format`."""
        device = {"device_name": path.parent.name} if kind_called(path.parent.name) else {}
        return {"kernel_name": path.stem, **device}

    def places(self, folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
        """The one file of the kernel, with the GPU's folder only in the engine's own package; see `Format`."""
        (kernel,) = self.needed(facts, "kernel_name")
        if folder.absolute().parts[-2:] != ("fla", "configs"):
            return (folder / f"{kernel}.json",)
        (device,) = self.needed(facts, "device_name")
        return (folder / (re.sub(r"[^0-9A-Za-z]+", "_", str(device)).strip("_") or "unknown_gpu") / f"{kernel}.json",)

    def choose(self, table: Table, facts: Mapping[str, Any], at: Sequence[Any]) -> TableRow | None:
        """The row of the key by the rule of the mode, which is `full` where none is given; see `Format`."""
        mode, key = facts.get("mode", "full"), triton_key(at)
        if mode not in _MODES:
            raise SettingsError(f"flash-linear-attention has no mode {mode}", hint=f"its modes: {', '.join(_MODES)}")
        entries = [row for row in table.rows if row.at]
        exact = (row for row in entries if row.filed == _fla_digest(key))
        alike = (row for row in entries if _alike(row.at, key))
        default = (row for row in table.rows if not row.at and (row.filed or mode == "full"))
        ways = {"strict": (exact,), "fuzzy": (exact, alike), "full": (exact, alike, default), "disabled": ()}
        return next((row for way in ways.get(mode, (default,)) for row in way), None)


_DEFAULT = "default_config"
_TOP = ("kernel_name", "triton_version", "autotune_entries", _DEFAULT)
_MODES = ("disabled", "strict", "fuzzy", "full", "default", "always")


def _fla_row(name: str, entry: Any, path: Path) -> TableRow | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("config"), dict):
        raise CacheError(f"{path} has an entry without a config", hint="flash-linear-attention uses no part of it")
    key, times = entry.get("autotune_key"), _numbers(entry.get("best_timing"))
    if not isinstance(key, list) or not key:
        return None
    return TableRow(as_tuples(key), _config(entry["config"], path), median_ms=times[0] if times else None, filed=name)


def _fla_digest(key: Sequence[Any]) -> str:
    text = json.dumps(list(triton_key(key)), sort_keys=True, separators=(",", ":"))
    # Systems whose policy forbids MD5 allow it where it secures nothing.
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _alike(one: Any, other: Any) -> bool:
    """True if two keys differ in numbers only."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
    return (_is_number(one) and _is_number(other)) or bool(one == other)
