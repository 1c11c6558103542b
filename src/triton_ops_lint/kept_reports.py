"""Reports of files that were read before, with all that they depend on: they are believed only while that is the same.

A report depends on the file and the modules of its package that its kernels use, and on other packages, Triton, Python
and this package. It depends on variables of the environment, on files that are opened, on paths whose state is asked
for, and on what is *not* there: a module that was looked for in vain. The process that reads a file records all of
these. Files that somebody works on count by their content, installed packages by name, size and times of each of their
files, which costs less.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pathlib
import platform
import re
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, wraps
from importlib.machinery import PathFinder
from pathlib import Path
from types import FrameType
from typing import Any

from triton_ops import settings
from triton_ops.base import NamedFile, SealedFile, fingerprint
from triton_ops_lint.findings import LintReport

FOLDER = "lint"
_VIRTUAL = ("/proc/", "/sys/", "/dev/")
_LATE_NS = 20_000_000  # by which the times of files, which are those of the system's last tick, may be behind
_STATS = ("stat", "lstat", "access", "readlink", "statvfs", "listxattr", "getxattr")
_LISTINGS = ("os.listdir", "os.scandir")
_UNFORESEEN = re.compile(r"subprocess\.|socket\.|sqlite3\.|ctypes\.dlopen|os\.(system|exec|fork|posix_spawn)")
"""The events by which code asks for what no later run can compare: programs, other hosts, libraries."""
_IMPORTS, _READS_SOURCES = "<frozen importlib", ("linecache.py", "inspect.py", "tokenize.py")
_OWN_TREE = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class Sources:
    """What a report depends on beside its file: other files, packages with their places, absent ones, variables."""

    files: tuple[str, ...]
    packages: Mapping[str, str]
    absent: tuple[str, ...]
    variables: tuple[str, ...]
    asked: tuple[str, ...]  # paths whose state the code of the file asked for, and folders that it listed


@dataclass(frozen=True)
class _Entry:
    """A report with the state of its sources when it was made."""

    state: str
    sources: Sources
    report: LintReport


class Recorder:
    """What this process uses."""

    def __init__(self) -> None:
        self._absent: set[str] = set()
        self._files: set[str] = set()
        self._asked: set[str] = set()
        self._comparable = True
        self._variables = settings.record_variables()
        sys.meta_path.append(self)  # asked last, for what no other finder knows
        sys.addaudithook(self._note)
        # These calls raise no audit event, other than `open` and listings.
        for name in _STATS:
            if (asks := getattr(os, name, None)) is not None:
                setattr(os, name, self._noting(asks))
        if (of_paths := getattr(pathlib, "_normal_accessor", None)) is not None:  # of Python 3.10, which has its own
            of_paths.stat, of_paths.readlink = os.stat, os.readlink

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Note a module that is not there."""
        self._absent.add(name.partition(".")[0])

    def _noting(self, asks: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(asks)
        def noting(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            self._ask(path)
            return asks(path, *args, **kwargs)

        return noting

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            path = os.fsdecode(arguments[0])
            self._files.add(path)
            if not path.endswith(".pyc") and _is_asked_by_the_file():
                self._comparable &= not path.startswith(_VIRTUAL) and not _writes(arguments[1:])
                self._asked.add(os.path.abspath(path))  # noqa: PTH100
        elif event in _LISTINGS:
            self._ask(arguments[0])
        elif _UNFORESEEN.match(event) and _is_asked_by_the_file():
            self._comparable = False

    def _ask(self, path: Any) -> None:
        if _is_asked_by_the_file():
            self._comparable &= not isinstance(path, int)
            place = "." if path is None or isinstance(path, int) else os.fsdecode(path)
            self._asked.add(os.path.abspath(place))  # noqa: PTH100

    def sources(self, compiled: str) -> Sources | None:
        """The sources so far, without what lies in the folder of a compiler; None if others cannot compare them."""
        if not self._comparable:
            return None
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
        files = tuple(path for path in own if NamedFile(Path(path)).exists)
        return Sources(files, packages, tuple(absent), tuple(sorted(self._variables())), tuple(sorted(self._asked)))


def _writes(mode_and_flags: tuple[Any, ...]) -> bool:
    mode, flags = mode_and_flags
    return bool(set(mode or "") & set("wax+") or (mode is None and flags & (os.O_WRONLY | os.O_RDWR)))


_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def _is_asked_by_the_file() -> bool:
    """Check whether code of the file that is read asks, or a library for it, and no import or reading of sources."""
    # The two frames below are this function's and that of the hook.
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        place = frame.f_code.co_filename
        if place.startswith(_IMPORTS) or place.endswith(_READS_SOURCES):
            return False
        if place.startswith(_OWN_TREE) and place != __file__:
            return False
        if not place.startswith((_OWN_TREE, *_LIBRARIES, "<")):
            return True
        frame = frame.f_back
    return False


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
        # Finders keep listings of folders, in which a file that is new would be missing.
        importlib.invalidate_caches()

    @staticmethod
    def place(target: str, root: Path, options: Any) -> SealedFile:
        """The place of the report of a target in a package below `root`, by the options of the lint."""
        key = fingerprint([target, settings.current_folder(), str(root), asdict(options), sys.path])
        return SealedFile(settings.cache_dir() / FOLDER / f"{key}.json", settings.cache_dir())

    def read(self, place: SealedFile, file: Path, root: Path) -> LintReport | None:
        """The report of a target in a file; None if there is none that still holds."""
        try:
            entry: _Entry = place.read(_Entry)
            return entry.report if entry.state == self._state(file, root, entry.sources) else None
        except (OSError, ValueError):
            return None  # there is none, it is another version's, or damaged

    def write(self, place: SealedFile, file: Path, root: Path, report: LintReport, sources: Sources) -> None:
        """Keep a report, unless a source is younger than this run."""
        state = self._state(file, root, sources)
        times = [_row(path)[-1] for path in (str(file), *sources.files, *sources.asked)]
        times += [self._tree(place)[1] for place in sources.packages.values() if _is_installed(place)]
        if max(times) > self._began_ns - _LATE_NS:
            return
        place.keep(asdict(_Entry(state, sources, report)))

    def _state(self, file: Path, root: Path, sources: Sources) -> str:
        variables = dict(settings.environment())
        files = [str(file), *sources.files]
        return fingerprint([
            [platform.python_version(), sys.executable, self._tree(_OWN_TREE)[0]],
            [self._found(name, str(root)) for name in (*sources.packages, *sources.absent)],
            [self._tree(place)[0] for place in sources.packages.values() if _is_installed(place)],
            [(path, self._content(path), _twin(path).exists()) for path in files],
            [_row(path) for path in sources.asked],
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
    if NamedFile(Path(place)).exists:
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
