"""The code under Python 3.10: its syntax, and the types of what is read from files, which that Python checks more."""

import ast
import dataclasses
import inspect
import typing
from pathlib import Path

import msgspec

from triton_ops.benchmark.plain_configs import _StoredConfig
from triton_ops.cost_model import AttentionTiles, ElementTiles, GemmTiles, RowTiles
from triton_ops.device import Calibration
from triton_ops.dispatch import LaunchedConfig
from triton_ops.kernel_ir import KernelWork
from triton_ops.records.lockfile import Lockfile
from triton_ops.records.record import Record
from triton_ops.records.run_log import Event, Head
from triton_ops.values import Trial
from triton_ops_lab.recording import _RecordingFile
from triton_ops_lint.findings import LintReport
from triton_ops_torch.mode_process import Loaded

SOURCES = Path(inspect.getfile(Record)).parents[1]
READ = (
    AttentionTiles, Calibration, ElementTiles, GemmTiles, Head, KernelWork, LaunchedConfig, LintReport, Loaded,
    Lockfile, Record, RowTiles, Trial, Event, _RecordingFile, _StoredConfig,
)  # fmt: skip
"""What msgspec makes of files: it evaluates the annotations of these, and of all that they hold."""


def classes_within(kind, known):
    """The dataclasses and structs that a type names, with those of their fields."""
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    if (dataclasses.is_dataclass(kind) or is_struct) and kind not in known:
        known.add(kind)
        for each in typing.get_type_hints(kind).values():
            classes_within(each, known)
    for each in typing.get_args(kind):
        classes_within(each, known)
    return known


def fault_of(text):
    """The reason why a text is no syntax of Python 3.10; empty for one that is."""
    try:
        ast.parse(text, feature_version=(3, 10))
    except SyntaxError as error:
        return str(error)
    return ""


def test_every_file_is_syntax_of_python_3_10():
    assert fault_of("try:\n    x\nexcept* ValueError:\n    pass\n") != ""
    faults = {path.name: fault_of(path.read_bytes()) for path in SOURCES.rglob("*.py")}
    assert {name: fault for name, fault in faults.items() if fault} == {}


def test_annotations_of_what_is_read_are_types():
    """`ClassVar` without a type and `_: KW_ONLY` raise there, when a type checker or msgspec evaluates them."""
    known = set()
    for kind in READ:
        classes_within(kind, known)
    assert len(known) > len(READ)
    wrong = [
        f"{kind.__name__}.{name}: {text}"
        for kind in known
        for name, text in inspect.get_annotations(kind).items()
        if text in ("ClassVar", "KW_ONLY", "Final")
    ]
    assert wrong == []
