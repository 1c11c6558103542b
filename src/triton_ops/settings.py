"""Every environment variable that this package reads. Each is read when it is needed, never at import.

| variable               | meaning                                             | default                           |
|------------------------|-----------------------------------------------------|-----------------------------------|
| `TRITON_OPS_CACHE_DIR` | folder of records and run logs; `~` is expanded     | the platform's user cache folder  |
| `TRITON_OPS_SHARED_DIRS` | further folders of records, and URLs of exports; `:` between them (Windows: `;`) | none |
| `TRITON_OPS_TRUSTED_KEYS` | files of public keys, `:` between them: who may sign what a URL serves | none |
| `TRITON_OPS_LOCK_DIR`  | folder of the locks by which measurements take turns | `/tmp/triton-ops-UID`             |
| `TRITON_OPS_EFFORT`    | effort of a tune that names none: expected, race, quick, full, exhaustive | quick       |
| `TRITON_OPS_MEMORY`    | most memory that a tune takes, such as `2 GiB`; a number is bytes | no limit   |
| `TRITON_OPS_ON_MISS`   | tune, race, expected, background, default, error or queue, without a winner | `tune` |
| `TRITON_OPS_LOCKFILE`  | the lockfile whose configs launches use             | none                              |
| `TRITON_OPS_REPLAY`    | a lockfile from which alone launches take configs; nothing tunes | not set              |
| `TRITON_OPS_REPORT`    | a file for what the process launched, written at its end; `1` is stderr | not told  |
| `TRITON_OPS_RANKS`     | whether the processes of a job agree on winners: agree, off | agree              |
| `TRITON_OPS_SERVING`   | whether plug-ins of serving engines answer their look-ups: on, off | on     |
| `TRITON_OPS_SAME_BITS` | 1: launches keep to a lockfile's class of bits, else to the default's: 1, 0 | 0  |
| `TRITON_OPS_PROGRESS`  | progress of runs on stderr, where that is a terminal: on, off | on               |
| `NO_COLOR`             | any value, or `dumb` as `TERM`: no colours          | not set                           |
| `COLUMNS`              | width of tables, also in files and pipes            | the terminal's; no limit in files |
| `RAY_ADDRESS`, `RAY_USE_TLS` | the cluster that Ray takes, and whether it encrypts | Ray's own |
| `OMP_NUM_THREADS`      | threads on a CPU, part of a key, without torch      | one for each CPU                  |
| `TMPDIR`               | where folders for temporary files of child processes are made | `/tmp`                  |
| `TORCHINDUCTOR_CACHE_DIR` | torch's; children are given its default by name  | a folder in `TMPDIR`              |
| `TRITON_CACHE_DIR`, `TRITON_HOME` | Triton's; children are given the folder by name | `~/.triton/cache`          |
| `TRITON_PTXAS_PATH`, `TRITON_PTXAS_BLACKWELL_PATH` | Triton's; the program's version is part of a key | Triton's own |
| `PTXAS_OPTIONS`, `TRITON_DEBUG` | Triton's; part of a key                    | not set                           |
| `TRITON_INSTRUMENTATION_MODE`, `TRITON_KERNEL_OVERRIDE` | Triton's; part of a key | not set                      |
| `TEARDOWN_CUPTI`       | torch's; set to 0 before its profiler runs          | not set                           |
| `RANK`, `LOCAL_RANK`   | set by launchers of distributed programs: no process is started early | not set   |
| `TRITON_OPS_FAMILY`    | set for the processes that this package starts: whose they are | not set                |

An explicit argument always wins over the environment.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

from triton_ops.exceptions import CacheError, SettingsError, nearest


def _temporary(name: str) -> Path:
    import tempfile  # this, platformdirs and getpass take 8 ms in sum, and most launches need none of them

    return Path(tempfile.gettempdir(), name)


OWN_LOCKS = Path(f"/tmp/triton-ops-{os.getuid()}") if hasattr(os, "getuid") else _temporary("triton-ops-locks")
FAMILY = "TRITON_OPS_FAMILY"
_BY_LIBRARIES = frozenset({
    ("CUDA_MODULE_LOADING", "LAZY"),  # torch, when it first uses a GPU
    ("KMP_DUPLICATE_LIB_OK", "True"), ("KMP_INIT_AT_FORK", "FALSE"),  # threadpoolctl and scikit-learn, when imported
    ("TEARDOWN_CUPTI", "0"),  # this package, and torch's compiler
})  # fmt: skip
_START_NAMES = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"})
_START_FAMILIES = (
    "AMD_", "CUDA_", "GOMP_", "GPU_", "HIP_", "HSA_", "KMP_", "LC_", "LD_", "MALLOC_", "MKL_", "NVIDIA_", "OMP_",
    "OPENBLAS_", "PYTHON", "PYTORCH_", "ROCM_", "ROCR_", "TORCH_", "TORCHINDUCTOR_", "TRITON_", "XDG_",
)  # fmt: skip
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]+://"
# Of a URL in a list the host may be followed by a port, whose `:` ends nothing.
_URL = rf"(?:(?<={os.pathsep})|^)\s*{_SCHEME}[^/]*(?:/[^{os.pathsep}]*)?"
_NO_NAMES = str.maketrans(dict.fromkeys('\\/:*?"<>|', "_"))  # characters that torch replaces in a user's name
_NAMES = (
    "CACHE_DIR", "SHARED_DIRS", "TRUSTED_KEYS", "LOCK_DIR", "EFFORT", "ON_MISS", "LOCKFILE", "REPLAY", "REPORT",
    "RANKS", "SERVING", "SAME_BITS", "PROGRESS", "FAMILY", "MEMORY",
)  # fmt: skip
_OPTIONS = ("PTXAS_OPTIONS", "TRITON_DEBUG", "TRITON_INSTRUMENTATION_MODE", "TRITON_KERNEL_OVERRIDE")
ON_MISS = ("tune", "race", "expected", "background", "default", "error", "queue")
RANKS = ("agree", "off")
EFFORTS = ("expected", "race", "quick", "full", "exhaustive")
HELP_OF_CACHE_DIR = "Folder of records; default TRITON_OPS_CACHE_DIR."


def misspelt() -> dict[str, str]:
    """Variables that are set and that nothing reads, each with the one that was probably meant."""
    names = [f"TRITON_OPS_{name}" for name in _NAMES]
    strange = [name for name in os.environ if name.startswith("TRITON_OPS") and name not in names]
    return meant(strange, names)


def meant(strange: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """Of variables that nothing reads, those that are close to a known one, each with that one."""
    return {name: near[0] for name in strange if (near := nearest(name, known, 0.85))}


def is_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    """True if a value can name a file: a text or a path object without a null character, which no name has."""
    return isinstance(value, (str, os.PathLike)) and "\0" not in str(value)


def is_url(place: object) -> TypeGuard[str]:
    """True if a text is a URL, such as `https://host/winners.json`, and no path; a drive's letter is no scheme."""
    return isinstance(place, str) and "://" in place and re.match(_SCHEME, place) is not None


def shown(place: str | os.PathLike[str]) -> str:
    """A path as it is, and a URL without what may be secret: user and password, query, fragment."""
    if not is_url(place):
        return os.fspath(place)
    scheme, _, rest = place.partition("://")
    host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def teller_of_cache_dir() -> Callable[[], tuple[object, ...]]:
    """The function that tells at little cost what the cache folder follows from, while that is as it is now.

    Facts used, from Python 3.10 to 3.14: `os.environ` has its variables in `_data`, below what decodes them.
    """
    relative = any(value is not None and value[:1] not in ("/", b"/") for value in _variables_of_cache_dir())
    return _variables_and_folder if relative else _variables_of_cache_dir


_variable = getattr(os.environ, "_data", os.environ).get
_OWN, _XDG, _HOME = map(getattr(os.environ, "encodekey", str), ("TRITON_OPS_CACHE_DIR", "XDG_CACHE_HOME", "HOME"))


def _variables_of_cache_dir() -> tuple[Any, ...]:
    return _variable(_OWN), _variable(_XDG), _variable(_HOME)


def _variables_and_folder() -> tuple[object, ...]:
    folder = os.stat(".")  # noqa: PTH116 - a path object takes longer
    return *_variables_of_cache_dir(), folder.st_dev, folder.st_ino


def cache_dir() -> Path:
    """The folder of records and run logs; it need not exist yet.

    A user without a home folder, as in a container that runs as any number, gets one that can never exist: nothing is
    found there, and nothing is kept.
    """
    if (folder := _path("TRITON_OPS_CACHE_DIR")) is not None:
        return folder
    import platformdirs

    try:
        return Path(platformdirs.user_cache_dir("triton-ops"))
    except RuntimeError:  # it could not determine the home folder
        return Path(os.devnull) / "triton-ops"


def lock_dir() -> Path:
    """The folder of the locks by which measurements on a GPU take turns; it need not exist yet.

    Users and containers that share a GPU take turns only if they share this folder. The default, `OWN_LOCKS`, is this
    user's alone, under a name that everybody knows: whoever uses it asks whose it is. It does not follow
    `TMPDIR` or `XDG_RUNTIME_DIR`, which differ from job to job and from login to login of one user.
    """
    return _path("TRITON_OPS_LOCK_DIR") or OWN_LOCKS


def cache_folder(folder: str | os.PathLike[str] | None) -> str:
    """The absolute path of the folder of records; None takes `TRITON_OPS_CACHE_DIR`, else the user's cache folder."""
    if folder is not None and not is_path(folder):
        message = f"cache_dir is {folder!r}; it must be a folder's path, as text or as a Path"
        raise CacheError(message, hint="leave it out to take TRITON_OPS_CACHE_DIR, else the user's cache folder")
    path = os.fspath(cache_dir() if folder is None else folder)
    if path.startswith("~"):
        path = str(expanded(path))
    try:
        return os.path.abspath(path)  # noqa: PTH100 - as text: a path object takes longer
    except OSError as error:
        message = f"the current folder is gone, in which {path} would be"
        raise CacheError(message, hint="name an absolute folder, or go elsewhere") from error


def expanded(path: str | os.PathLike[str], source: str = "") -> Path:
    """The path with `~` and `~USER` expanded; `source` is the variable that holds it, for the message.

    Raises:
        SettingsError: There is no such user, or the user has no home folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        subject = f"{source} is " if source else ""
        message = f"{subject}{os.fspath(path)!r}: {Path(path).parts[0]} has no home folder here"
        raise SettingsError(message, hint="write the whole path") from error


def _text(name: str) -> str:
    return os.environ.get(name, "").strip()


def _path(name: str) -> Path | None:
    text = _text(name)
    return expanded(text, name) if text else None


def colours() -> bool:
    """True if text for people may have colours; a terminal that is `dumb` would show their codes."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns() -> int | None:
    """The number of columns in `COLUMNS`; None if it is no whole number of 1 or more."""
    return _positive(os.environ.get("COLUMNS", ""))


def openmp_threads() -> int | None:
    """The number of threads in `OMP_NUM_THREADS`; None if it is no whole number of 1 or more."""
    return _positive(os.environ.get("OMP_NUM_THREADS", "").partition(",")[0])  # one for each level of nesting


def _positive(text: str) -> int | None:
    number = text.strip()
    return int(number) if number.isdecimal() and int(number) > 0 else None


def ray_address() -> str:
    """`RAY_ADDRESS`, the cluster that Ray takes where none is named; empty if it is not set."""
    return os.environ.get("RAY_ADDRESS", "")


def ray_is_encrypted() -> bool:
    """True if `RAY_USE_TLS` has Ray encrypt what its processes send each other."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


def openmp_text() -> str | None:
    """`OMP_NUM_THREADS` as it stands; None if it is not set."""
    return os.environ.get("OMP_NUM_THREADS")


def triton_program(name: str) -> str | None:
    """The file that the environment names as Triton's `ptxas`, `nvdisasm` or the like; None if Triton uses its own.

    What torch's compiler has named by itself does not count: see `torchs_ptxas`.
    """
    if name == "ptxas" and torchs_ptxas() is not None:
        return None
    return os.environ.get(f"TRITON_{name.upper().replace('-', '_')}_PATH") or None


def torchs_ptxas() -> str | None:
    """The ptxas that torch's compiler has named for all of Triton, in the middle of a process; None if it has not.

    It is the one that came with torch, in `TRITON_PTXAS_PATH` alone: torch 2.11 with CUDA 13.0 names it when it
    compiles its first kernel. Who means it names it in both variables, as `use_ptxas` does.
    """
    path = os.environ.get("TRITON_PTXAS_PATH")
    if not path or path == os.environ.get("TRITON_PTXAS_BLACKWELL_PATH"):
        return None
    return path if _came_with_torch(path) else None


@lru_cache(maxsize=16)
def _came_with_torch(path: str) -> bool:
    if (spec := find_spec("torch")) is None or spec.origin is None:
        return False
    return Path(spec.origin).resolve().parent in Path(path).resolve().parents


def triton_options() -> dict[str, str]:
    """The variables that are set of those from which Triton takes options of its compiler without counting them itself.

    Those that it counts are `get_cache_invalidating_env_vars` of its library.
    """
    return {name: value for name in _OPTIONS if (value := os.environ.get(name))}


def set_variable(variable: str, text: str | None) -> None:
    """Set a variable of the environment, for this process and for those that it starts; with None, remove it."""
    if text is None:
        os.environ.pop(variable, None)
    else:
        os.environ[variable] = text


def keep_cupti() -> None:
    """Have torch's profiler leave CUPTI as it is when it ends: a process with CUDA graphs may crash where it is gone.

    Source: `torch.profiler.profiler` does the same where torch's compiler uses CUDA graphs.
    """
    os.environ.setdefault("TEARDOWN_CUPTI", "0")


def environment(*but: str) -> frozenset[tuple[str, str]]:
    """All of the environment, which a process that is started now inherits, but these variables."""
    return frozenset((name, value) for name, value in os.environ.items() if name not in but)


def users_environment(*but: str) -> frozenset[tuple[str, str]]:
    """The environment but for these variables, and but for what libraries set by themselves in the midst of a program.

    A program that has imported them has the same environment as it had before.
    """
    return environment(*but) - _BY_LIBRARIES


def starting_environment() -> frozenset[tuple[str, str]]:
    """The part of `users_environment` that an interpreter, its loader, torch, Triton and drivers read when they start.

    A process that waits for a task has no other part, which may hold secrets.
    """
    return frozenset(
        (name, value) for name, value in users_environment() if name in _START_NAMES or name.startswith(_START_FAMILIES)
    )


def restore_environment(before: Mapping[str, str]) -> None:
    """Make the environment what it was, except for what libraries have set by themselves."""
    additions = environment() & _BY_LIBRARIES
    os.environ.clear()
    os.environ.update({**dict(additions), **before})


def leave_variables(names: Collection[str], beginnings: tuple[str, ...]) -> dict[str, str]:
    """Take all variables out of the environment but those of these names and beginnings, which it gives.

    These are set anew, so that a program that is started has them, whatever becomes of the memory where they were.
    """
    left = {name: text for name, text in os.environ.items() if name in names or name.startswith(beginnings)}
    os.environ.clear()
    os.environ.update(left)
    return left


def one_of_several() -> bool:
    """True if this is a process of a distributed job, as launchers mark it, of `multiprocessing` or of this package."""
    processes = sys.modules.get("multiprocessing.process")  # imported in each that it has started
    own = processes and processes.current_process()  # which imports the user's script before it knows its parent
    is_child = bool(processes and processes.parent_process()) or getattr(own, "_inheriting", False)
    return is_child or any(name in os.environ for name in ("RANK", "LOCAL_RANK", FAMILY))


def for_child(
    changes: Mapping[str, str], family: str, temporary: Path | None = None, *, starting: bool = False
) -> dict[str, str]:
    """The environment for a new process: that of this process, with `changes`, and without what torch's compiler named.

    `family` is the mark by which the process and all that it starts are told; it has the marks of the processes above
    it too. `temporary` is for its temporary files; None takes the folder of this process. With `starting` it is
    `starting_environment`.
    """
    inherited = dict(starting_environment()) if starting else os.environ
    marked = {**inherited, FAMILY: f"{os.environ.get(FAMILY, '')} {family}".strip()}
    if torchs_ptxas() is not None:  # what is compiled there is kept as compiled by Triton's own
        del marked["TRITON_PTXAS_PATH"]
    return {**marked, **({} if temporary is None else {"TMPDIR": str(temporary)}), **changes}


def starters() -> list[int]:
    """The numbers of the programs for which this package has started this process, which may be no child of theirs."""
    marks = os.environ.get(FAMILY, "").split()
    return [int(number) for _, _, number in (mark.partition(".") for mark in marks) if number.isdecimal()]


def code_folders() -> dict[str, tuple[Path, str]]:
    """The variables that name folders of compiled code, each with the folder that holds now and a short name.

    Triton's is as the environment says; a program may have told Triton otherwise.
    """
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~/")  # noqa: PTH111 - without a home folder it stays
    return {
        "TRITON_CACHE_DIR": (Path(os.environ.get("TRITON_CACHE_DIR") or Path(home, ".triton", "cache")), "triton"),
        "TORCHINDUCTOR_CACHE_DIR": (inductor_cache_dir(), "inductor"),
    }


def inductor_cache_dir(named: str | os.PathLike[str] | None = None) -> Path:
    """Inductor's folder of compiled code: that named, else the variable's, else one in that for temporary files."""
    if named is not None:
        return expanded(named)
    if folder := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(folder)
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):  # a container's user without a name
        user = f"uid_{os.getuid()}" if hasattr(os, "getuid") else "unknown_user"
    return _temporary("torchinductor_" + user.translate(_NO_NAMES))


def effort() -> str:
    """The effort of a tune for which the caller names none; a `SettingsError` if the variable holds another word."""
    return one_of(EFFORTS, _text("TRITON_OPS_EFFORT") or "quick", "TRITON_OPS_EFFORT")


def on_miss() -> str | None:
    """The policy of a launch without a known winner, as the environment says; None if it says nothing."""
    policy = _text("TRITON_OPS_ON_MISS")
    return one_of(ON_MISS, policy, "TRITON_OPS_ON_MISS") if policy else None


def one_of(allowed: Sequence[str], name: str, source: str) -> str:
    """`name`, if it is an allowed word; else a `SettingsError` with `source`, the value and the allowed words."""
    if name not in allowed:
        raise SettingsError(f"{source} is {name!r}; allowed are {', '.join(allowed)}", hint="choose one of these")
    return name


def lockfile() -> Path | None:
    """The lockfile that the environment names; None if it names none."""
    return _path("TRITON_OPS_LOCKFILE")


def replay() -> Path | None:
    """The lockfile from which alone launches take their configs; None if the environment names none."""
    return _path("TRITON_OPS_REPLAY")


def shared_dirs() -> tuple[Path, ...]:
    """Further folders of records, which are only read: those of a site, of an image, or of a package, in this order."""
    text = _text("TRITON_OPS_SHARED_DIRS")
    paths = map(str.strip, (re.sub(_URL, "", text) if "://" in text else text).split(os.pathsep))
    return tuple(expanded(path, "TRITON_OPS_SHARED_DIRS") for path in paths if path)


def shared_urls() -> tuple[str, ...]:
    """URLs of exported records, which are only read and are asked after the folders, in this order."""
    text = _text("TRITON_OPS_SHARED_DIRS")
    return tuple(map(str.strip, re.findall(_URL, text))) if "://" in text else ()


def trusted_keys() -> tuple[Path, ...]:
    """The files of the public keys whose signatures are believed."""
    paths = map(str.strip, _text("TRITON_OPS_TRUSTED_KEYS").split(os.pathsep))
    return tuple(expanded(path, "TRITON_OPS_TRUSTED_KEYS") for path in paths if path)


def memory_bytes(given: int | str | None = None) -> int | None:
    """The most memory of a tune, as given, else as the environment says, in bytes; None for no limit.

    A text is a number with a unit, `B`, `kB`, `MB`, `GB`, `TB`, or `KiB`, `MiB`, `GiB`, `TiB`, or without one, which is
    bytes; anything else, and less than one byte, is a `SettingsError`.
    """
    source, value = ("memory_bytes", given) if given is not None else ("TRITON_OPS_MEMORY", _text("TRITON_OPS_MEMORY"))
    if value == "" and given is None:
        return None
    if isinstance(value, str) and (size := re.fullmatch(r"(?i)(\d+\.?\d*|\.\d+)\s*(?:([kmgt])(i?))?b?", value.strip())):
        step = 1024 if size[3] else 1000
        value = int(float(size[1]) * step ** " kmgt".index((size[2] or " ").lower()))
    hint = "write a number of bytes, or a text such as 2 GiB"
    return int(SettingsError.checked(source, value, 1, whole=True, hint=hint))


def report() -> str:
    """The place where a process tells at its end what it launched: `1` is stderr, else a path; empty for nowhere."""
    return _text("TRITON_OPS_REPORT")


def ranks() -> str:
    """The agreement of the processes of one job on winners: `agree` or `off`; else a `SettingsError`."""
    return one_of(RANKS, _text("TRITON_OPS_RANKS") or RANKS[0], "TRITON_OPS_RANKS")


def same_bits() -> str:
    """`1` if launches keep to configs of the same bits, `0` if not; else a `SettingsError`."""
    return one_of(("1", "0"), _text("TRITON_OPS_SAME_BITS") or "0", "TRITON_OPS_SAME_BITS")


def progress() -> bool:
    """True if runs may show their progress in a terminal: `on` or `off`; else a `SettingsError`."""
    return one_of(("on", "off"), _text("TRITON_OPS_PROGRESS") or "on", "TRITON_OPS_PROGRESS") == "on"


def serving() -> bool:
    """True if plug-ins of serving engines may answer look-ups: `on` or `off`; else a `SettingsError`."""
    return one_of(("on", "off"), _text("TRITON_OPS_SERVING") or "on", "TRITON_OPS_SERVING") == "on"


def current_folder() -> str | None:
    """The folder that relative paths begin at; None if it was deleted meanwhile."""
    try:
        return os.getcwd()  # noqa: PTH109 - as text
    except OSError:
        return None


def named_folder_and_effort() -> tuple[str | None, ...]:
    """The variables, as they are, from which the cache folder and the effort of a tune follow."""
    names = ("TRITON_OPS_CACHE_DIR", "TRITON_OPS_EFFORT", "XDG_CACHE_HOME", "HOME")
    return (*map(os.environ.get, names), current_folder())
