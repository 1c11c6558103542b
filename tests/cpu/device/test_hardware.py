"""The table's rows for devices, and the description of the device of this machine."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from triton_ops.base import host
from triton_ops.benchmark.auto_tuner import A100_BANDWIDTH_GBPS
from triton_ops.device import DeviceSpec, Target, gpu_missing, probe
from triton_ops.device.limits import LIMITS
from triton_ops.device.specs import TARGETS, datasheet_of, datasheets
from triton_ops.device.vendor_facts import VENDOR_FACTS
from triton_ops.exceptions import DeviceError

SOURCE = Path(__file__).parents[3] / "src"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 3090 Ti", "RTX 3090 Ti"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("NVIDIA H20-3e", "H20"),
        ("NVIDIA GB10", "GB10"),
        ("NVIDIA B300 SXM6 AC", "B300"),
    ],
)
def test_a_device_in_the_table_has_its_datasheet_peaks(name, row):
    assert datasheet_of(name) is datasheets()[row]


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GH200 480GB",
        "NVIDIA GH200 144G HBM3e",
        "NVIDIA H200 NVL",
        "NVIDIA H100 NVL",
        "NVIDIA H200 MIG 1g.18gb",
        "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
        "NVIDIA A10G",
        "NVIDIA L2",
        "NVIDIA H20 NVL",
        "NVIDIA GB300",
        "NVIDIA H2000",
        "NVIDIA GB200",
        "NVIDIA GeForce RTX 4080 SUPER",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "Quadro RTX 6000",
        "AMD Instinct MI300XL",
        "AMD Instinct MI300A",
        "",
    ],
)
def test_a_device_outside_the_table_has_no_peaks(name):
    assert datasheet_of(name) is None


@pytest.mark.parametrize("model", datasheets())
def test_every_row_has_a_source_and_plausible_figures(model):
    sheet = datasheets()[model]
    row = sheet.spec
    assert re.search("datasheet|whitepaper", sheet.source)
    assert 250 < row.bandwidth_gbps <= 8000
    assert row.units >= 40
    half = row.tflops.get("float16")
    assert half is None or half > 1.9 * row.tflops["float32"] or "RTX" in model or model in ("L40", "A40")
    assert (half is None) == (
        model.split()[0] in ("GB10", "MI308X") or "PRO" in model
    )  # of which nobody has published it
    assert row.tflops.get("bfloat16", half) == half
    assert row.tflops.get("float8_e4m3fn", 1e9) > 1.9 * (half or 0)
    assert datasheet_of(row.name) is sheet
    spec = DeviceSpec.named(row.name)
    assert spec == row
    assert spec.shared_bytes_per_block == Target.of(spec).shared_bytes_per_block
    assert spec.limits.registers == spec.registers_per_unit


@pytest.mark.parametrize(
    ("model", "mhz", "per_cycle"),
    [
        ("RTX 3090", 1695, {"float16": 512, "tfloat32": 256, "int8": 2048, "int4": 4096}),
        ("RTX 4080", 2505, {"float16": 512, "tfloat32": 256, "float8_e4m3fn": 1024, "int8": 2048, "int4": 4096}),
        ("A10", 1695, {"float16": 1024, "tfloat32": 512, "int8": 2048, "int4": 4096}),
        ("MI300X", 2100, {"float16": 2048, "tfloat32": 1024, "float8_e4m3fn": 4096, "int8": 4096}),
    ],
)
def test_rates_are_what_the_units_do_at_the_boost_clock(model, mhz, per_cycle):
    row = datasheets()[model].spec
    for dtype, operations in per_cycle.items():
        assert row.tflops[dtype] == pytest.approx(row.units * mhz * operations / 1e6, rel=3e-3)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("a100", "NVIDIA A100-SXM4-80GB"),
        ("A100 40GB", "NVIDIA A100-SXM4-40GB"),
        ("rtx  4090", "NVIDIA GeForce RTX 4090"),
        ("amd instinct mi300x", "AMD Instinct MI300X"),
        ("NVIDIA B200", "NVIDIA B200"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
    ],
)
def test_a_person_may_name_a_model_in_any_case(typed, name):
    assert DeviceSpec.called(typed).name == name
    assert DeviceSpec.called(typed + " NVL") is None


@pytest.mark.parametrize(
    ("model", "dtype", "taken", "tflops"),
    [  # the datasheet's matrix rate of operands of a dtype, on CDNA 2 twice its vector rate of float32
        ("MI210", "tfloat32", "tfloat32", 45.3),
        ("MI250X", "tfloat32", "tfloat32", 47.85),
        ("MI300X", "tfloat32", "tfloat32", 653.7),
        ("MI355X", "tfloat32", "float32", 157.3),
        ("RTX 3080", "bfloat16", "bfloat16", 59.5),
        ("RTX 5080", "float8_e4m3fn", "float8_e4m3fn", 225.1),
        ("RTX A6000", "int8", "int8", 309.7),
        ("A10", "float8_e4m3fn", "float16", 125.0),
    ],
)
def test_products_take_the_matrix_rate(model, dtype, taken, tflops):
    assert DeviceSpec.called(model).rate_of(dtype) == (taken, tflops)


def test_the_documented_default_is_the_a100():
    assert datasheet_of("NVIDIA A100-SXM4-80GB").spec.bandwidth_gbps == A100_BANDWIDTH_GBPS == 2039.0


@pytest.mark.parametrize(
    ("arch", "registers", "shared_bytes", "warps", "blocks", "limited_by"),
    [  # NVIDIA: as its occupancy calculator says; AMD: as LLVM's comment `Occupancy` says, four blocks' worth
        ("sm_80", 128, 0, 4, 4, ["registers"]),
        ("sm_80", 255, 98_304, 4, 1, ["shared memory"]),
        ("sm_90", 168, 0, 8, 1, ["registers"]),
        ("sm_90", 96, 0, 1, 20, ["registers"]),  # 21 warps' registers, handed out to four parts alike
        ("sm_90", 32, 0, 1, 32, ["blocks"]),
        ("sm_90", 32, 116_224, 4, 1, ["shared memory"]),  # 1 KiB of every block is the system's
        ("sm_90", 32, 115_712, 4, 2, ["shared memory"]),
        ("sm_89", 32, 0, 8, 6, ["warps"]),
        ("sm_75", 64, 65_536, 4, 1, ["shared memory"]),
        ("gfx942", 216, 0, 4, 2, ["registers"]),
        ("gfx942", 64, 0, 1, 32, ["registers", "warps", "blocks"]),
        ("gfx942", 8, 65_537, 4, 0, ["shared memory"]),
    ],
)
def test_occupancy_follows_from_what_a_block_takes(arch, registers, shared_bytes, warps, blocks, limited_by):
    limits = LIMITS[arch]
    result = limits.residents(registers, shared_bytes, warps)
    assert (result.blocks, list(result.limited_by)) == (blocks, limited_by)
    assert result.occupancy == blocks * warps / limits.warps


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "warps", "beside"),
    [
        (56, 16, 4, (64, 48)),  # nine blocks: eight with more registers, ten with fewer
        (158, 49_664, 4, (168, 128)),  # three blocks, four with fewer, as many as shared memory holds
        (120, 49_664, 4, (128,)),  # four, and no more than that with any number of registers
        (32, 0, 4, (40,)),  # as many warps as there are places
        (255, 0, 8, (128,)),
        (168, 200_000, 8, ()),  # shared memory holds one
    ],
)
def test_limits_of_registers_are_the_most_with_which_so_many_blocks_fit(registers, shared_bytes, warps, beside):
    limits = LIMITS["sm_90"]
    assert limits.register_limits(registers, shared_bytes, warps) == beside
    for limit in beside:
        fits, more = (limits.residents(each, shared_bytes, warps).blocks for each in (limit, limit + 1))
        assert fits > more


def test_the_cpu_is_known_without_figures_that_nobody_measured():
    spec = probe("cpu")
    assert spec.kind == "cpu"
    assert spec.name
    assert 1 <= spec.units <= os.cpu_count()
    assert (spec.bandwidth_gbps, spec.tflops, spec.l2_bytes) == (None, {}, None)
    assert probe("cpu") == spec
    hash(spec)


def test_a_gpu_that_is_not_there_is_a_typed_error_with_the_reason():
    if (reason := gpu_missing()) is None:
        pytest.skip("a GPU is here")
    assert probe() == probe("cpu")
    with pytest.raises(DeviceError) as caught:
        probe("cuda:3")
    assert reason in str(caught.value)
    assert caught.value.expected_device == "cuda:3"


@pytest.mark.parametrize("name", ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "CUDA"])
def test_a_word_that_names_no_device_is_refused(name):
    with pytest.raises(DeviceError, match="is not known"):
        probe(name)


@pytest.mark.gpu
def test_a_gpu_is_described_by_torch():
    torch = pytest.importorskip("torch")
    spec = probe()
    assert spec == probe("cuda") == probe(f"cuda:{torch.cuda.current_device()}")
    assert spec.name == torch.cuda.get_device_name()
    assert spec.units > 0
    assert spec.memory_bytes > 2**30
    assert spec.shared_bytes_per_block is None or spec.shared_bytes_per_block >= 48 * 1024
    with pytest.raises(DeviceError, match="no GPU 99"):
        probe("cuda:99")


PROBED = """
import sys
{first}
from triton_ops.device import gpu_missing, probe
assert gpu_missing() is None
specs = [probe(name) for name in (None, "cuda", "cuda:0")]
print(sys.modules.get("torch") is None or not sys.modules["torch"].cuda.is_initialized(), set(specs))
"""


@pytest.mark.gpu
def test_the_driver_says_of_a_gpu_what_torch_says_without_a_context():
    message = []
    for first in ("", "import torch", "import torch; torch.ones(1, device='cuda')"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROBED.format(first=first)], capture_output=True, text=True,
            check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path])},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        message.append(done.stdout.partition(" "))
    assert [untouched for untouched, _, _ in message] == ["True", "True", "False"]
    assert len({specs for _, _, specs in message}) == 1


HALF = """
import sys, threading
from triton_ops.device import gpu_missing

threading.Thread(target=lambda: __import__("torch")).start()
while "torch" not in sys.modules:
    pass
print(gpu_missing())
"""


@pytest.mark.processes
def test_a_torch_that_another_thread_is_importing_is_no_error():
    if gpu_missing() is None:
        pytest.skip("a GPU is here")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HALF], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, gpu_missing()), done.stderr


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("__version__ = '2.99.0+cpu'\n", "torch 2.99.0+cpu is a CPU build"),
        ("from typing import Optional\n\n__version__ = '2.99.0+cpu'\ncuda = None\n", "torch 2.99.0+cpu is a CPU build"),
        ("__version__ = '2.99.0+cu130'\n", "it was imported"),
        ("__version__ = '2.99.0'\n", "it was imported"),
        ("\0", "it was imported"),
        (None, "it was imported"),
    ],
)
def test_a_torch_for_cpus_alone_is_told_by_its_version_and_not_imported(version, said, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[probe.__module__], "_by_driver", tuple)
    monkeypatch.setattr(host, "_failures", {})  # a process does not try torch again
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('it was imported')")
    if version is not None:
        (tmp_path / "torch" / "version.py").write_text(version)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert said in gpu_missing.__wrapped__()


def test_an_older_torch_is_no_error(monkeypatch):
    torch = pytest.importorskip("torch")
    expected = gpu_missing.__wrapped__()
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(is_available=torch.cuda.is_available))
    assert gpu_missing.__wrapped__() == expected


def test_the_target_of_a_device_has_the_limits_that_the_device_reports():
    h200 = DeviceSpec("cuda", "NVIDIA H200", "sm_90", 132, shared_bytes_per_block=232448)
    assert Target.of(h200) == replace(Target.named("SM_90 "), units=132)
    assert Target.of(replace(h200, shared_bytes_per_block=1000)).shared_bytes_per_block == 1000
    assert Target.of(replace(h200, shared_bytes_per_block=None)) == Target.of(h200)
    newer = Target.of(replace(h200, arch="sm_107"))
    assert (newer.capability, newer.warp_size, newer.shared_bytes_per_block) == (107, 32, 232448)
    mi300 = DeviceSpec("hip", "AMD Instinct MI300X", "gfx942", 304)
    assert (Target.of(mi300).warp_size, Target.of(mi300).shared_bytes_per_block) == (64, 65536)
    with pytest.raises(DeviceError, match="target 'sm_60' is not known; close are sm_"):
        Target.of(replace(h200, arch="sm_60", shared_bytes_per_block=None))
    with pytest.raises(DeviceError, match="is no target for Triton kernels"):
        Target.of(DeviceSpec("cpu", "AMD EPYC", "x86_64", 2))


@pytest.mark.parametrize(
    ("typed", "is_meant"),
    [("NVIDIA H200", True), ("h200", True), ("sm_90", True), ("H100", False), ("sm_80", False), ("H200 NVL", False)],
)
def test_a_device_of_a_record_is_meant_by_its_name_its_model_or_its_architecture(typed, is_meant):
    assert DeviceSpec.is_meant(typed, {"name": "NVIDIA H200", "arch": "sm_90"}) is is_meant


def test_a_target_is_an_architecture_or_a_gpu():
    assert Target.named("h200") == Target.of(DeviceSpec.called("H200"))
    assert Target.named("sm_90").units is None
    assert DeviceSpec.called("sm_90").arch == "sm_90"


def test_a_target_answers_for_its_vendor():
    nvidia, amd = Target.named("sm_90").vendor, Target.named("gfx942").vendor
    assert (nvidia.binary, nvidia.assembly, nvidia.triton_arch("sm_90")) == ("cubin", "ptx", 90)
    assert (amd.binary, amd.assembly, amd.triton_arch("gfx942")) == ("hsaco", "amdgcn", "gfx942")
    assert (nvidia.registers_per_thread, amd.registers_per_thread) == (255, 512)
    assert (nvidia.allots_registers, amd.allots_registers) == (False, True)
    assert Target.binary_among({"ttir": "", "hsaco": b"code"}) == b"code"
    assert Target.binary_among({"ttir": ""}) is None
    for name, target in TARGETS.items():
        assert (target.warp_size, target.registers_per_block) == (
            target.vendor.warp_size, target.vendor.registers_per_block,
        ), name  # fmt: skip


def test_a_vendor_tells_the_generation_of_an_architecture():
    archs = {"sm_90": 9, "sm_100": 10, "sm_103a": 10, "gfx90a": 9, "gfx942:sramecc+": 9, "gfx1100": 11, "tpu": None}
    assert {arch: VENDOR_FACTS["cuda"].generation(arch) for arch in archs} == archs


def test_a_device_answers_for_its_vendor():
    assert DeviceSpec.named("NVIDIA H200").vendor.units == "multiprocessors"
    assert DeviceSpec.named("AMD Instinct MI300X").vendor.warps == "wavefronts"
    cpu = DeviceSpec(kind="cpu", name="CPU", arch="x86_64", units=4)
    assert cpu.is_cpu
    assert cpu.vendor is None
    names = {"AMD Instinct MI300X": "AMD", "NVIDIA GeForce RTX 4090": "NVIDIA", "Tesla T4": None, "": None}
    for name, vendor in names.items():
        facts = DeviceSpec.vendor_of_name(name)
        assert (facts and facts.name) == vendor, name
