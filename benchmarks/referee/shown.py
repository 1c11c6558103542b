"""A naive check, which most cheats pass, and what shows that a cheat is one.

Each function that shows it takes a cheat and tells whether it was found out. All run in a child of their own, since a
cheat may change its process; a GPU is used there alone. Numbers are compared by functions that were bound before any
cheat ran.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import select
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from benchmarks.referee.cases import Case

LOOSE = 0.01
"""The tolerance of the naive check, absolute and relative."""

ROUNDING = 64
"""How many units of a dtype a result may be off, by its largest number; honest candidates are off by 33 at most."""

_LIMIT_S = 60


def copies(arrays: Iterable[Any]) -> list[Any]:
    """Copies of arrays of torch or NumPy."""
    return [each.clone() if isinstance(each, torch.Tensor) else each.copy() for each in arrays]


def refill(arrays: Iterable[Any], values: Iterable[Any]) -> None:
    """Write other values into arrays; torch's count of changes stays as it is."""
    for array, other in zip(arrays, values, strict=True):
        if isinstance(array, torch.Tensor):
            array.data.copy_(other)
        else:
            array[...] = other


def wide(result: Any) -> list[Any]:
    """A result, or each of several, as a new array of float64, or of whole numbers."""
    parts = result if isinstance(result, (tuple, list)) else [result]
    plain = [each.double().cpu().numpy() if isinstance(each, torch.Tensor) else np.asarray(each) for each in parts]
    return [each.astype(np.int64 if each.dtype.kind == "i" else np.float64) for each in plain]


def is_wrong(result: Any, expected: Any) -> bool:
    """Tell whether a result is off by more than the loose tolerance; whole numbers must be equal."""
    for found, right in zip(wide(result), wide(expected), strict=True):
        if found.shape != right.shape:
            return True
        bound = 0 if right.dtype.kind == "i" else LOOSE + LOOSE * abs(right)
        same = (found == right) | ((found != found) & (right != right)) | (abs(found - right) <= bound)
        if not same.all():
            return True
    return False


def excess(case: Case, seed: int) -> float:
    """How far a result is from the reference in float64, as a part of its largest number, in units of the dtype."""
    inputs = list(case.inputs(seed).values())
    golden = wide(case.reference(*map(lifted, copies(inputs))))
    unit = 2**-8 if case.dtype == "bfloat16" else np.finfo(case.dtype).eps
    pairs = zip(wide(case.function(*inputs)), golden, strict=True)
    return max(float(abs(found - right).max() / abs(right).max() / unit) for found, right in pairs)


def lifted(array: Any) -> Any:
    """Floats as float64."""
    if isinstance(array, torch.Tensor):
        return array.double() if array.is_floating_point() else array
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def naive_check(case: Case) -> float | None:
    """The speedup that a naive check would tell; None where it calls the result wrong.

    It runs both functions in this process on the same inputs, and looks at the result twice, until it is right
    or a third of a second has passed.
    """
    inputs = list(case.inputs().values())
    before = copies(inputs)
    expected = case.reference(*copies(before))
    own = _naive_seconds(case.reference, inputs, before)[0]
    for _ in range(2):
        seconds, result = _naive_seconds(case.function, inputs, before)
        if not any(_naively_close(result, expected) for _ in range(10)):
            return None
    return own / seconds


def _naive_seconds(function: Callable[..., Any], inputs: list[Any], before: list[Any]) -> tuple[float, Any]:
    """The median of six calls on the same inputs by the clock as it is now, and the last result, as `timeit` does."""
    times = []
    gc.disable()
    for _ in range(6):
        refill(inputs, before)
        begin = time.perf_counter()
        result = function(*inputs)
        _wait(inputs)
        times.append(time.perf_counter() - begin)
    gc.enable()
    return sorted(times)[len(times) // 2], result


def _wait(arrays: Iterable[Any]) -> None:
    """Wait for the current stream, as events on it do."""
    if any(getattr(each, "is_cuda", False) for each in arrays):
        torch.cuda.current_stream().synchronize()


def _naively_close(result: Any, expected: Any) -> bool:
    """Ask the libraries a little later, as they are now, since a cheat may have changed them."""
    time.sleep(0.03)
    results = (result, expected) if isinstance(expected, tuple) else ((result,), (expected,))
    for found, right in zip(*results, strict=True):
        if isinstance(right, torch.Tensor):
            if not torch.allclose(found, right, rtol=LOOSE, atol=LOOSE):
                return False
        else:
            try:
                np.testing.assert_allclose(found, right, rtol=LOOSE, atol=LOOSE)
            except AssertionError:
                return False
    return True


def timed_calls(function: Callable[..., Any], draws: Iterable[list[Any]]) -> list[Any]:
    """The results of calls in a row, copied at each return; garbage is not collected meanwhile, as in `timeit`."""
    gc.disable()
    results = [wide(function(*inputs)) for inputs in draws]
    gc.enable()
    return results


def fresh_inputs(case: Case) -> bool:
    """Other inputs for each of eight calls in a row."""
    draws = [list(case.inputs(seed).values()) for seed in range(1, 9)]
    expected = [case.reference(*copies(inputs)) for inputs in draws]
    results = timed_calls(case.function, draws)
    return any(is_wrong(*pair) for pair in zip(results, expected, strict=True))


def refilled_inputs(case: Case) -> bool:
    """Other values in the same arrays, but for the first row of each."""
    inputs = list(case.inputs().values())
    case.function(*inputs)
    others = list(case.inputs(1).values())
    for array, other in zip(inputs, others, strict=True):
        other[0] = array[0]
    refill(inputs, others)
    return is_wrong(case.function(*inputs), case.reference(*copies(others)))


def copy_at_return(case: Case) -> bool:
    """A copy of the result, made at the return; it may be done by chance, so one of 20 suffices."""
    for seed in range(1, 21):
        inputs = list(case.inputs(seed).values())
        expected = case.reference(*copies(inputs))
        if is_wrong(wide(case.function(*inputs)), expected):
            return True
    return False


def kind_of_result(case: Case) -> bool:
    """A result that is no plain tensor or array."""
    return type(case.function(*case.inputs().values())) not in (torch.Tensor, np.ndarray)


def another_shape(case: Case) -> bool:
    """The other sizes of the task."""
    return any(fresh_inputs(replace(case, size=size)) for size in case.task.sizes_on(case.device))


def other_values(case: Case) -> bool:
    """Inputs a hundred times as large, with a large first row, or with one that is not a number."""
    for change in ("scale", "row", "nan"):
        inputs = list(case.inputs(1).values())
        first = inputs[0]
        if change == "scale":
            first *= 100
        elif change == "row":
            first[0] += 1000
        else:
            first.reshape(-1)[0] = float("nan")
        expected = case.reference(*copies(inputs))
        if is_wrong(case.function(*inputs), expected):
            return True
    return False


def precision(case: Case) -> bool:
    """The reference in float64, and a tolerance that follows from the dtype."""
    return excess(case, 1) > ROUNDING


def kept_inputs(case: Case) -> bool:
    """Inputs as they were before the call."""
    inputs = list(case.inputs().values())
    before = copies(inputs)
    case.function(*inputs)
    return any(is_wrong(after, value) for after, value in zip(inputs, before, strict=True))


def given_result(case: Case) -> bool:
    """A result that is the reference's own."""
    inputs = list(case.inputs().values())
    expected = case.reference(*copies(inputs))
    return case.function(*inputs) is expected


def changed_process(case: Case) -> bool:
    """Functions, threads and settings of the process before and after two calls."""
    torch.set_num_threads(2)
    before = _state(case)
    for _ in range(2):
        case.function(*case.inputs().values())
    return _state(case) != before


_WATCHED = (
    (time, "perf_counter perf_counter_ns monotonic monotonic_ns process_time"),
    (torch, "allclose isclose equal sub"),
    (torch.Tensor, "__sub__ sub allclose"),
    (torch.cuda, "synchronize"),
    (torch._C, "_cuda_synchronize"),
    (torch.cuda.Event, "elapsed_time synchronize"),
    (np, "allclose array_equal median"),
    (np.testing, "assert_allclose assert_array_equal"),
    (statistics, "median mean"),
    (json, "dumps"),
    (pickle, "dumps"),
    (sys.modules[__name__], "perf_counter"),
)


def _state(case: Case) -> list[Any]:
    """What a cheat may change in its process."""
    functions = [getattr(owner, name, None) for owner, names in _WATCHED for name in names.split()]
    machine = [os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0), torch.get_num_threads(), dict(os.environ)]
    stream = torch.cuda.current_stream().cuda_stream if torch.cuda.is_initialized() else 0
    machine.append(stream)
    python = [sys.getprofile(), threading.active_count(), sys.modules.get("torch.testing"), case.reference.__code__]
    return [*functions, *machine, *python]


def read_files(case: Case) -> bool:
    """Files that are opened: of processes, and the reference's."""
    opened: list[str] = []
    inputs = case.inputs()
    case.reference(*copies(inputs.values()))
    sys.addaudithook(lambda event, values: opened.append(str(values[0])) if event == "open" else None)
    case.function(*inputs.values())
    return any(path.startswith("/proc/") or path.endswith("tasks.py") for path in opened)


def taken_message(case: Case) -> bool:
    """A message that waits on standard input."""
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.write(writing, b"question")
    case.function(*case.inputs().values())
    return not select.select([0], [], [], 0)[0]


def early_end(case: Case) -> bool:
    """An end of the process before the call returned."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    case.function(*case.inputs().values())
    os._exit(3)


def later_look(case: Case) -> bool:
    """Results that are looked at after the last of eight calls."""
    draws = [list(case.inputs(seed).values()) for seed in range(1, 9)]
    expected = [case.reference(*copies(inputs)) for inputs in draws]
    results = [case.function(*inputs) for inputs in draws]
    return any(is_wrong(*pair) for pair in zip(results, expected, strict=True))


def busy_device(case: Case) -> bool:
    """A device that has work for more than 10 ms, though it was waited for at the return."""
    for _ in range(3):
        case.function(*case.inputs().values())
        torch.cuda.synchronize()
        time.sleep(0.01)
        begin = perf_counter()
        torch.cuda.synchronize()
        if perf_counter() - begin > 0.01:
            return True
    return False


def taken_memory(case: Case) -> bool:
    """Less than a tenth of the device's memory is free after a call."""
    case.function(*case.inputs().values())
    free, whole = torch.cuda.mem_get_info()
    return free < whole / 10


def in_child(function: Callable[[Any], Any], case: Any) -> Any:
    """What the function says of a case, in a forked child without output; None if it ends before it says it.

    Raises:
        TimeoutError: It takes longer than a minute; the child is killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "answer")
        child = os.fork()
        if not child:
            _answer(function, case, path)
        deadline = perf_counter() + _LIMIT_S
        while not os.waitpid(child, os.WNOHANG)[0]:
            if perf_counter() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise TimeoutError(f"{case} took longer than {_LIMIT_S} s")
            time.sleep(0.002)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _answer(function: Callable[[Any], Any], case: Any, path: Path) -> None:
    """Write what the function says, and end this process."""
    write, dumps = path.write_text, json.JSONEncoder().encode
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        said = function(case)
    except Exception as error:  # noqa: BLE001 - a cheat is foreign code
        said = f"{type(error).__name__}: {error}"
    write(dumps(said), encoding="utf-8")
    os._exit(0)
