"""A CUDA driver that describes two GPUs and does nothing else, built with the C compiler."""

from __future__ import annotations

import shutil
import subprocess

import pytest

SOURCE = """
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *found) { *found = VERSION; return 0; }
int cuDeviceGetCount(int *found) { *found = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int room, int device) { name[0] = device ? 'B' : 'A'; name[1] = 0; return 0; }
int cuDeviceTotalMem_v2(unsigned long *found, int device) { *found = 1000; return 0; }
int cuDeviceGetAttribute(int *found, int which, int device) { *found = which; return BROKEN; }
"""


def build(folder, version=13000, broken=False):
    """`libcuda.so.1` and `libcuda.so` in a folder; skips the test where there is no compiler."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    source = folder / "driver.c"
    source.write_text(SOURCE)
    for name in ("libcuda.so.1", "libcuda.so"):
        subprocess.run(
            ["cc", "-shared", "-fPIC", f"-DVERSION={version}", f"-DBROKEN={int(broken)}", "-o", folder / name, source],
            check=True,
        )
    return folder
