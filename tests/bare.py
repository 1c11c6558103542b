"""A whole job where torch is not installed, such as in the environment of `make demo`: run by `make test-bare`.

What is tuned stands in a module that the command loads too. Each part asserts what it is for, and prints a line.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is imported; threads wait for CPUs that are busy
import numpy

from triton_ops import TensorSpec, operation, tune
from triton_ops.backend import FunctionKernel
from triton_ops.cli.app import main

PROJECT = Path(__file__).parents[1]
CPP = """
extern "C" void scaled(const float* x, float* out, long count, long step, float factor) {
    for (long begin = 0; begin < step; ++begin)
        for (long at = begin; at < count; at += step) out[at] = factor * x[at] + x[at] / 3;
}
"""


def product(a, b, *, step):
    """A product that adds up in another order for each step."""
    out = numpy.zeros((len(a), b.shape[1]), a.dtype)
    for k in range(0, a.shape[1], step):
        out += a[:, k : k + step] @ b[k : k + step]
    return out


def short(a, b, *, step):
    """A product that leaves out the last term for a step of 8."""
    return product(a[:, : a.shape[1] - (step == 8)], b[: len(b) - (step == 8)], step=step)


@dataclass
class Moments:
    """Results of several kinds in one."""

    mean: numpy.ndarray
    others: dict


def moments(x, *, parts):
    """Sums of float16 in other orders, with a plain number, a scalar, complex numbers, a mask, records and texts."""
    mean = sum(part.sum(0) for part in numpy.array_split(x.astype("float32"), parts)) / len(x)
    records = numpy.zeros(len(mean), [("mean", "f4"), ("name", "U4")])
    records["mean"] = mean
    hidden = numpy.ma.masked_array(mean.copy(), mean < 0)
    hidden.data[mean < 0] = parts  # what a mask hides does not count
    others = {"scalar": mean.sum(), "number": float(mean[0]), "complex": (mean * 1j,), "mask": hidden}
    return Moments(mean.astype("float16"), {**others, "records": records})


def fails(x, *, step):
    """Only the first config runs."""
    return [2 * x][step - 1]


def in_place(x, out, *, rows):
    """Writes an argument, and returns nothing; other rows add up in another order."""
    out[:] = sum(x[at : at + rows].sum(0, dtype="float32") for at in range(0, len(x), rows))


@operation(
    space={"step": [1, 512]}, dtypes=("float32",),
    arguments=lambda n=512, dtype="float32": {"a": TensorSpec((32, n), dtype), "b": TensorSpec((n, 32), dtype)},
    reference=lambda a, b: a @ b,
)  # fmt: skip
def by_shape(a, b, *, step):
    """An operation whose arguments are made from a shape."""
    return product(a, b, step=step)


def statuses(result):
    """The end of each trial, by the only tunable."""
    return {next(iter(trial.config.values())): trial.status.value for trial in result.trials}


def say(*words):
    """Write a line."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def run(*words):
    """The exit code of a command."""
    say("$ triton-ops", *words)
    return int(main([*words, "--device", "cpu"]))


def readme():
    """The first example of the README, which needs what its first install brings."""
    code = re.search(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    exec(code, {"__name__": "readme"})


def products():
    """Sums in another order are right, one that lacks a term is wrong; the fastest wins, in its own process too."""
    rng = numpy.random.default_rng(0)
    for dtype in ("float16", "float64", "complex64"):
        a = rng.standard_normal((32, 1024)).astype(dtype)
        a.flags.writeable = False
        result = tune(short, (a, a.T.copy()), space={"step": [1024, 256, 8]}, reference=lambda a, b: a @ b)
        assert statuses(result) == {1024: "ok", 256: "ok", 8: "wrong"}, (dtype, result)
    slow = tune(product, (a, a.T.copy()), space={"step": [1, 1024]}, isolate=True)
    assert slow.best_config == {"step": 1024}, slow
    assert slow.gain > 1, slow
    assert statuses(slow) == {1: "ok", 1024: "ok"}


def kinds():
    """Results of all kinds, returned and written."""
    x = numpy.random.default_rng(0).standard_normal((300, 64)).astype("float16")
    for reference in (None, lambda x: moments(x, parts=1)):
        result = tune(moments, (x,), space={"parts": [1, 7, 300]}, reference=reference)
        assert statuses(result) == {1: "ok", 7: "ok", 300: "ok"}, result
    declared, space = FunctionKernel(in_place, outputs=("out",)), {"rows": [300, 7, 1]}
    for kernel, reference in (
        (in_place, None), (in_place, lambda x, out: in_place(x, out, rows=300)), (declared, None),
        (declared, lambda x, out: x.sum(0, dtype="float64")),
    ):  # fmt: skip
        result = tune(kernel, (x, numpy.zeros(64, "float32")), space=space, reference=reference, keep=False)
        assert statuses(result) == {300: "ok", 7: "ok", 1: "ok"}, result


def cpp():
    """A function of C++ that writes an argument."""
    if (compiler := shutil.which("g++")) is None:
        say("left out: there is no g++")
        return
    source, library = Path("scaled.cpp"), Path("scaled.so").resolve()
    source.write_text(CPP, encoding="utf-8")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    launch = ctypes.CDLL(str(library)).scaled
    launch.argtypes = [*[numpy.ctypeslib.ndpointer("float32")] * 2, *[ctypes.c_long] * 2, ctypes.c_float]

    def scaled(x, out, *, step, factor=2.0):
        launch(x, out, len(x) - (step == 3), step, factor)

    x = numpy.random.default_rng(0).standard_normal(1 << 16).astype("float32")
    result = tune(
        scaled, (x, numpy.zeros_like(x)), space={"step": [4096, 1, 3]}, reference=lambda x, out: 2 * x + x / 3
    )
    assert statuses(result) == {4096: "ok", 1: "ok", 3: "wrong"}, result


def commands():
    """The command with arrays of a shape, from a file and from a list; what fails says so by its exit code."""
    numpy.save("a.npy", numpy.random.default_rng(0).standard_normal((32, 512)))
    target, space = f"{__file__}:product", "step=1,512"
    assert run("tune", target, "--shape", "32x512,512x32", "--space", space) == 0
    assert run("tune", target, "--arg", "a=a.npy", "--shape", "512x32", "--space", space) == 0
    assert run("tune", f"{__file__}:by_shape", "--shape", "256") == 0
    assert run("tune", f"{__file__}:fails", "--arg", "x=[1,2,3]", "--space", "step=1,2") == 1
    pair = ("--shape", "32x512,512x32", "--config-b", "step=512", "--seconds", "1")
    assert run("bench", target, "--config", "step=1", *pair) == 0
    assert run("bench", f"{__file__}:short", "--config", "step=8", *pair) == 5
    assert run("tune", target, "--shape", "8x8,8x8", "--dtype", "bf16", "--space", space) == 3


def whole_job():
    """Run all parts in an empty folder."""
    for part in (readme, products, kinds, cpp, commands):
        say(f"{part.__name__}:")
        part()
    assert sys.modules.get("torch") is None


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["TRITON_OPS_CACHE_DIR"] = str(Path(folder, "cache"))
        whole_job()
        os.chdir(PROJECT)
