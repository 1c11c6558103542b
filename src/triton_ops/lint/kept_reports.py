"""Reports of files that were read before, with all that they depend on: they are believed only while that is the same.

A report depends on the file and the modules of its package that its kernels use, on other packages, Triton, Python and
this package, on variables of the environment, on files that are opened, and on what is *not* there: a module that was
looked for in vain. The process that reads a file records all of these. Files that somebody works on count by their
content, installed packages by name, size and times of each of their files, which costs less.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import re
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import msgspec

from triton_ops import settings
from triton_ops.base import DamagedError, Folder, NamedFile, Sealed, StoredFile, canonical_json, fingerprint
from triton_ops.exceptions import CacheError
from triton_ops.lint.findings import LintReport

FOLDER = "lint"
_VIRTUAL = ("/proc/", "/sys/", "/dev/")
_LATE_NS = 20_000_000  # by which the times of files, which are those of the system's last tick, may be behind
_ASKS = re.compile(rb"\b(subprocess|exists|is_file|is_dir|listdir|scandir|iterdir|r?glob)\b")
"""What a file calls to ask for others without opening them, or to run a program: its sources do not show it."""
_OWN_TREE = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class Sources:
    """What a report depends on beside its file: other files, packages with their places, absent ones, variables."""

    files: tuple[str, ...]
    packages: Mapping[str, str]
    absent: tuple[str, ...]
    variables: tuple[str, ...]


class Recorder:
    """What this process uses."""

    def __init__(self) -> None:
        self._absent: set[str] = set()
        self._files: set[str] = set()
        self._variables = settings.record_variables()
        sys.meta_path.append(self)  # asked last, for what no other finder knows
        sys.addaudithook(self._note)

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Note a module that is not there."""
        self._absent.add(name.partition(".")[0])

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, os.PathLike)):
            self._files.add(os.fsdecode(arguments[0]))

    def sources(self, compiled: str) -> Sources:
        """The sources so far, without what lies in the folder of a compiler."""
        names = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
        packages = {name: place for name in sorted(names) if (place := _place(name)) is not None}
        folders = [place for place in packages.values() if _is_installed(place)]
        folders += [sysconfig.get_path("stdlib"), _OWN_TREE, compiled, tempfile.gettempdir()]
        modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        others = (*_VIRTUAL, *folders)
        rest = {path for path in (*self._files, *modules) if path and not path.startswith(others)}
        paths = {os.path.abspath(path) for path in rest}  # noqa: PTH100
        own = (path for path in sorted(paths) if not path.startswith(others) and not path.endswith(".pyc"))
        absent = sorted(self._absent - sys.stdlib_module_names - set(packages))
        files = tuple(path for path in own if StoredFile(path).exists)
        return Sources(files, packages, tuple(absent), tuple(sorted(self._variables())))


def _place(name: str) -> str | None:
    """The folder or file of a package that was imported; None for one that is made by code."""
    module = sys.modules.get(name)
    folders = list(getattr(module, "__path__", None) or ())
    place = folders[0] if folders else getattr(module, "__file__", None)
    return None if place is None else str(place)


def _is_installed(place: str) -> bool:
    return place.startswith(tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("purelib", "platlib")))


class KeptReports:
    """The reports in the folder of records, as one run of the lint finds them: what it has looked at stays as it was.

    Where nothing can be kept, nothing is.
    """

    def __init__(self) -> None:
        self._began_ns = time.time_ns()
        self._found, self._content, self._tree = cache(_found), cache(_content), cache(_tree)
        importlib.invalidate_caches()

    @staticmethod
    def place(target: str, root: Path, options: Any) -> StoredFile:
        """The place of the report of a target in a package below `root`, by the options of the lint."""
        key = fingerprint([target, settings.current_folder(), str(root), asdict(options), sys.path])
        return StoredFile(settings.cache_dir() / FOLDER / f"{key}.json")

    def read(self, place: StoredFile, file: Path, root: Path) -> LintReport | None:
        """The report of a target in a file; None if there is none that still holds."""
        try:
            Folder(Path(place.path).parent).within(settings.cache_dir())
            entry = Sealed.read(place.read())
            if entry["state"] != self._state(file, root, Sources(**entry["sources"])):
                return None
            return Sealed.typed(entry["report"], LintReport)
        except (OSError, DamagedError, LookupError, TypeError, ValueError, msgspec.ValidationError):
            return None  # there is none, it is another version's, or damaged

    def write(self, place: StoredFile, file: Path, root: Path, report: LintReport, sources: Sources) -> None:
        """Keep a report, unless a source is younger than this run, or its code asks for other files or programs."""
        state = self._state(file, root, sources)
        times = [_row(path)[-1] for path in (str(file), *sources.files)]
        times += [self._tree(place)[1] for place in sources.packages.values() if _is_installed(place)]
        if max(times) > self._began_ns - _LATE_NS:
            return
        entry = Sealed({"state": state, "sources": asdict(sources), "report": asdict(report)})
        try:
            if any(
                _ASKS.search(NamedFile(Path(one)).read()) for one in (str(file), *sources.files) if one[-3:] == ".py"
            ):
                return
            Folder(Path(place.path).parent).ensure(Folder(settings.cache_dir()).ensure())
            place.replace(canonical_json(entry))
        except (OSError, CacheError, ValueError):
            return

    def _state(self, file: Path, root: Path, sources: Sources) -> str:
        variables = dict(settings.environment())
        files = [str(file), *sources.files]
        return fingerprint([
            [platform.python_version(), sys.executable, self._tree(_OWN_TREE)[0]],
            [self._found(name, str(root)) for name in (*sources.packages, *sources.absent)],
            [self._tree(place)[0] for place in sources.packages.values() if _is_installed(place)],
            [(path, self._content(path), _twin(path).exists()) for path in files],
            [variables.get(name) if name else sorted(variables) for name in sources.variables],
        ])  # fmt: skip


def _found(name: str, root: str) -> str | None:
    """The place at which a package would be found now; None if there is none."""
    spec = PathFinder.find_spec(name, [root, *sys.path])
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    return None if spec is None else str(folders[0] if folders else spec.origin)


def _content(path: str) -> str | None:
    try:
        return hashlib.sha256(NamedFile(Path(path)).read()).hexdigest()
    except OSError:
        return None


def _tree(place: str) -> tuple[str, int]:
    """The state of a folder or a file, by names, sizes and times of all files, and the youngest of the times."""
    rows = sorted(_row(path) for path in _files_below(place))
    return fingerprint(rows), max((row[-1] for row in rows), default=0)


def _files_below(place: str) -> Iterable[str]:
    if not Folder(place).exists:
        yield place
        return
    for folder, folders, names in os.walk(place):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (f"{folder}{os.sep}{name}" for name in names)


def _row(path: str) -> tuple[str, int, int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path for each of ten thousand files takes longer than the call
    except OSError:
        return path, -1, 0, 0
    return path, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _twin(path: str) -> Path:
    """The path that may be taken in place of a module's."""
    place = Path(path)
    return place.parent.with_suffix(".py") if place.name == "__init__.py" else place.with_suffix("") / "__init__.py"
