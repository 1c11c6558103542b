"""Results in the format T4, which Kernel Tuner and other tuners write: every config of one problem with its times.

Facts used, of the schema T4 1.0.0: `results`, each with `configuration`, `times`, `invalidity` (`correct`, or how it
failed), `correctness` and `measurements`, of which `time` is in milliseconds; `compilation_time` is in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triton_ops.exceptions import CacheError
from triton_ops.ship.table import Table, TableRow, config_in, milliseconds_in, read_object, write_object
from triton_ops.space import Config

_NAME = "results.json"
_WORDS = {
    "": "correct", "timeout": "timeout", "compile": "compile", "resources": "compile", "constraint": "constraints",
    "wrong": "correctness",
}  # fmt: skip
_STATUS = {"constraints": "constraint", "correctness": "wrong"}
_TIME = "time"


class T4Results:
    """Files of results in the format T4."""

    def write(self, table: Table, folder: Path) -> Path:
        """Write every config, failed ones included; see `Format`."""
        content = {"schema_version": "1.0.0", "results": [_result(row) for row in table.rows]}
        return write_object(folder, str(table.facts.get("file", _NAME)), content)

    def read(self, path: Path) -> Table:
        """Every config of the file; see `Format`."""
        results = read_object(path).get("results")
        if not isinstance(results, list):
            raise CacheError(f"{path} has no results in the format T4", hint="its results stand under `results`")
        return Table({"file": path.name}, tuple(_row(result, path) for result in results))

    def look_up(self, folder: Path, facts: Mapping[str, Any], at: Sequence[Any]) -> Config | None:  # noqa: ARG002
        """The fastest config of the file; see `Format`."""
        path = folder / str(facts.get("file", _NAME))
        best = self.read(path).best() if path.is_file() else ()
        return best[0].config if best else None


def _result(row: TableRow) -> dict[str, Any]:
    correct = not row.failure
    times = [] if row.median_ms is None else [row.median_ms]
    return {
        "configuration": dict(row.config),
        "objectives": [_TIME],
        "times": {"compilation_time": 0.0, "runtimes": times},
        "invalidity": _WORDS.get(row.failure, "runtime"),
        "correctness": int(correct),
        "measurements": [{"name": _TIME, "value": each, "unit": "ms"} for each in times],
    }


def _row(result: Any, path: Path) -> TableRow:
    if not isinstance(result, dict) or not isinstance(result.get("configuration"), dict):
        raise CacheError(f"{path} has a result without a configuration", hint="name a file in the format T4")
    word = str(result.get("invalidity", "correct"))
    measurements = result.get("measurements")
    values = [
        each.get("value") for each in (measurements if isinstance(measurements, list) else [])
        if isinstance(each, dict) and each.get("name") == _TIME and each.get("unit", "ms") in ("ms", "milliseconds")
    ]  # fmt: skip
    median = next((milliseconds_in(value, path) for value in values if isinstance(value, (int, float))), None)
    failure = "" if word == "correct" else _STATUS.get(word, word)
    return TableRow((), config_in(result["configuration"], path), median_ms=median, failure=failure)
