"""The files of engines that a benchmark imports, and what it says of the rows that it has tuned."""

import json
import os
import subprocess
import sys
import tarfile
from zipfile import ZipFile

import pytest
from benchmarks.tuning import engine_files, serving_gpu

KERNELS = """
import vllm.envs as envs
from vllm import _custom_ops as ops
from vllm.logger import init_logger
from vllm.model_executor.layers.fused_moe.config import Quantisation
from vllm.platforms import current_platform
from .modular import Base, register

logger = init_logger(__name__)


class Experts(Base):
    pass


@register(name="experts")
def experts(config: Quantisation | None = None):
    if current_platform.is_rocm() or ops.has_it():
        raise RuntimeError
    return envs.NUMBER


register(op=experts)
"""
IMPORTED = """
from importlib.metadata import version
from vllm.model_executor.layers.fused_moe.fused_moe import current_platform, experts
import vllm
print(vllm.__version__, version("vllm"), experts())
print(current_platform.is_device_capability(90), current_platform.get_device_name())
"""


@pytest.mark.processes
def test_an_engines_own_files_import_without_the_rest_of_it(tmp_path, monkeypatch, capsys):
    wheel, folder = tmp_path / "vllm-0.33.0-cp38-abi3-any.whl", tmp_path / "site"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("vllm/envs.py", "NUMBER = 7\n")
        archive.writestr("vllm/model_executor/layers/fused_moe/fused_moe.py", KERNELS)
        archive.writestr("vllm/model_executor/layers/fused_moe/layer.py", "raise RuntimeError\n")
        archive.writestr("vllm-0.33.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n")
    installation = {"metadata": {"name": "vllm", "version": "0.33.0"}, "download_info": {"url": wheel.as_uri()}}
    report = tmp_path / "wheels.json"
    report.write_text(json.dumps({"install": [installation]}))
    monkeypatch.setattr(sys, "argv", ["engine_files", str(report), "--out", str(tmp_path / "engines.tgz")])
    assert engine_files.main() == 0
    assert capsys.readouterr().out.startswith("3 files of the engines and ")
    with tarfile.open(tmp_path / "engines.tgz") as archive:
        archive.extractall(folder, filter="data")
    environment = {**os.environ, "PYTHONPATH": str(folder), "ENGINE_FILES_GPU": "NVIDIA H100 80GB HBM3, 9.0"}
    ran = subprocess.run([sys.executable, "-c", IMPORTED], env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout == "0.33.0 0.33.0 7\nTrue NVIDIA H100 80GB HBM3\n", ran.stderr
    assert not (folder / "vllm/model_executor/layers/fused_moe/layer.py").exists()


def test_a_table_is_summed_up():
    faster = {"gain": 1.21, "interval": (1.1, 1.3), "tried": 20}
    rows = [faster, {"gain": 1.0, "interval": None, "tried": 10}, {"gain": None, "interval": None, "tried": None}]
    expected = {"rows": 3, "tuned": 2, "faster": 1, "proven": 1, "best": 1.21, "tried": 30}
    assert serving_gpu.summary(rows) == {**expected, "geometric_mean": pytest.approx(1.1)}


def test_every_case_has_tables():
    for case in serving_gpu.CASES.values():
        assert case.problems, case


def test_settings_of_sglang_are_off_and_no_others_are_there(capfd):
    scope = {}
    exec(engine_files.STAND_INS["sglang/srt/environ/__init__.py"], scope)
    assert not scope["envs"].SGLANG_USE_AITER.get()
    assert not hasattr(scope["envs"], "data_ptr")
    with serving_gpu.without_stderr():
        os.write(2, b"a program of many lines")
    os.write(2, b"said")
    assert capfd.readouterr().err == "said"
