"""Every environment variable this package reads, in one place; read when asked for, never at import.

| variable               | meaning                                             | default                           |
|------------------------|-----------------------------------------------------|-----------------------------------|
| `TRITON_OPS_CACHE_DIR` | folder of records and run logs; `~` is expanded     | the platform's user cache folder  |
| `TRITON_OPS_EFFORT`    | effort of a tune that names none: quick, full, exhaustive | quick                       |
| `NO_COLOR`             | any value: no colours (https://no-color.org)        | not set                           |
| `COLUMNS`              | width of tables, also in files and pipes            | the terminal's; no limit in files |
| `OMP_NUM_THREADS`      | threads on a CPU, part of a key, without torch      | one for each CPU                  |
| `TRITON_PTXAS_PATH`, `TRITON_PTXAS_BLACKWELL_PATH` | Triton's; the program's version is part of a key | Triton's own |

An explicit argument always wins over the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from triton_ops.exceptions import SettingsError

EFFORTS = ("quick", "full", "exhaustive")


def cache_dir() -> Path:
    """The folder of records and run logs; it need not exist yet."""
    named = os.environ.get("TRITON_OPS_CACHE_DIR", "").strip()
    return Path(named).expanduser() if named else Path(platformdirs.user_cache_dir("triton-ops"))


def colours() -> bool:
    """Whether text for people may have colours."""
    return not os.environ.get("NO_COLOR")


def columns() -> int | None:
    """The width that is asked for; None where there is none that is a number of 1 or more."""
    named = os.environ.get("COLUMNS", "").strip()
    return int(named) if named.isdecimal() and int(named) > 0 else None


def openmp_threads() -> int | None:
    """The number of threads that `OMP_NUM_THREADS` asks for; None where it names none."""
    named = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # one number for each level of nesting
    return int(named) if named.isdecimal() and int(named) > 0 else None


def triton_program(name: str) -> str | None:
    """The file that Triton is told to use as `ptxas` or `ptxas-blackwell`; None where it uses its own."""
    return os.environ.get(f"TRITON_{name.upper().replace('-', '_')}_PATH") or None


def for_child(changes: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is to be started: this one's, with `changes`."""
    return {**os.environ, **changes}


def effort() -> str:
    """The effort of a tune that names none.

    Raises:
        SettingsError: `TRITON_OPS_EFFORT` holds another word.
    """
    return checked_effort(os.environ.get("TRITON_OPS_EFFORT", "").strip() or "quick", "TRITON_OPS_EFFORT")


def checked_effort(name: str, source: str = "effort") -> str:
    """`name` if it is an effort.

    Raises:
        SettingsError: It is not; names `source`, the value and the allowed ones.
    """
    if name not in EFFORTS:
        raise SettingsError(f"{source} is {name!r}; allowed are {', '.join(EFFORTS)}", hint="choose one of these")
    return name
