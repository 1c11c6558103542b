"""The look-ups of vLLM and SGLang find what is written for them: their own code runs, on the tables that they ship."""

import __future__

import ast
import functools
import importlib.metadata
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from triton_ops.cli.app import main
from triton_ops.records import Lockfile
from triton_ops.ship.formats import FORMATS

VLLM, SGLANG = "vllm/model_executor/layers", "sglang/kernels/ops/gemm"
MOE = "sglang/srt/layers/moe/moe_runner/triton_utils"


def block(facts):
    return [int(extent) for extent in re.findall(r"\d+", facts.get("block_shape", ""))] or [0, 0]


def linear(facts):
    return facts["N"], facts["K"], *block(facts)


def experts(facts):
    return facts["E"], facts["N"], facts.get("dtype"), *block(facts)


SHIPPED = {  # per format: the engine's tables, the file with its look-up, the functions, and arguments of the last one
    "vllm-moe": (
        f"{VLLM}/fused_moe/configs/E=*.json", f"{VLLM}/fused_moe/fused_moe.py",
        ("get_config_file_name", "get_moe_configs"), experts,
    ),
    "vllm-mamba": (
        f"{VLLM}/mamba/ops/configs/selective_state_update/*.json", f"{VLLM}/mamba/ops/mamba_ssm.py",
        ("get_ssm_config_file_name", "get_ssm_device_name", "_canonical_cache_dtype", "get_ssm_configs"),
        lambda facts: (facts["headdim"], facts["dstate"], facts["cache_dtype"]),
    ),
    "vllm-linear": (
        f"{VLLM}/quantization/utils/configs/N=*.json", f"{VLLM}/quantization/utils/fp8_utils.py",
        ("get_w8a8_block_fp8_configs",), linear,
    ),
    "sglang-moe": (
        f"{MOE}/configs/triton_*/E=*.json", f"{MOE}/fused_moe_triton_config.py",
        ("get_config_file_name", "get_moe_configs"),
        lambda facts: (*experts(facts), "per_channel_quant" in facts, facts["down"]),
    ),
    "sglang-linear": (
        f"{SGLANG}/configs/N=*dtype=fp8_w8a8,*.json", f"{SGLANG}/fp8_kernel.py",
        ("get_w8a8_block_fp8_configs",), linear,
    ),
    "sglang-linear of int8": (
        f"{SGLANG}/configs/N=*dtype=int8_w8a8,*.json", f"{SGLANG}/int8_kernel.py",
        ("get_w8a8_block_int8_configs",), linear,
    ),
    "sglang-channelwise": (
        f"{SGLANG}/configs/N=*_channelwise.json", f"{SGLANG}/fp8_kernel.py",
        ("get_w8a8_channelwise_fp8_configs",), lambda facts: (facts["N"], facts["K"]),
    ),
}  # fmt: skip


def installed(file):
    """A file of a package."""
    return Path(importlib.metadata.distribution(file.partition("/")[0]).locate_file(file))


class Silent:
    """A logger whose methods take anything."""

    def __getattr__(self, _name):
        return lambda *_words, **_options: None


@functools.cache
def functions(path, names):
    """Functions of a file as code that can run without what else the file imports."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    return compile(tree, str(path), "exec", flags=__future__.annotations.compiler_flag)


def found(way, facts, device, folder, monkeypatch):
    """The table that an engine's own code finds on a device, where its tables are in a folder; None for none."""
    _, file, names, arguments = SHIPPED[way]
    scope = {
        "envs": SimpleNamespace(VLLM_BATCH_INVARIANT=False, VLLM_TUNED_CONFIG_FOLDER=str(folder)),
        "get_exec": lambda: SimpleNamespace(deterministic=SimpleNamespace(enable_deterministic_inference=False)),
        "torch": SimpleNamespace(_dynamo=SimpleNamespace(is_compiling=bool)),
        "triton": SimpleNamespace(__version__=facts.get("triton_version")),
        "get_device_name": lambda: device, "_is_cuda": device.startswith("NVIDIA"), "_CONFIGS_DIR": os.devnull,
        "logger": Silent(), "log_info_on_rank0": Silent().info, "functools": functools, "cache": functools.cache,
        "json": json, "os": os, "re": re, "__file__": str(folder.parent / "kernel.py"),
    }  # fmt: skip
    platform = SimpleNamespace(current_platform=SimpleNamespace(get_device_name=lambda _index: device))
    monkeypatch.setitem(sys.modules, "vllm.platforms", platform)
    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(folder))
    if way.startswith("vllm"):
        exec(functions(installed("vllm/utils/platform_utils.py"), ("get_device_name_as_file_name",)), scope)
    exec(functions(installed(file), names), scope)
    return scope[names[-1]](*arguments(facts))


def why_not(way, path):
    """The reason why a table that an engine ships is not found again; empty for none."""
    if "backend=" in path.name:
        return "of another kernel"
    if way == "vllm-linear" and "dtype=int8_w8a8" in path.name:
        return "of a dtype without a look-up"
    return "of a device without a name" if "device_name=," in path.name else ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.extras(way.split("-")[0])) for way in SHIPPED])
def test_every_table_that_an_engine_ships_is_found_by_it_after_a_round_trip(way, tmp_path, monkeypatch, capsys):
    glob, file, *_ = SHIPPED[way]
    name, root, counts = way.partition(" ")[0], installed(file).parents[file.count("/")], {}
    for index, path in enumerate(sorted(root.glob(glob))):
        folder = tmp_path / str(index) / "configs"
        folder.mkdir(parents=True)
        lock = ["--kernel", "k", "--lockfile", str(folder.parent / "lock.json"), "--json"]
        lock += ["--row", "batch"] if name == "vllm-mamba" else []
        capsys.readouterr()
        status = main(["exchange", "import", name, str(path), *lock])
        if not status:
            facts = json.loads(capsys.readouterr().out)["facts"]
            lock += ["--set", f"triton_version={facts['triton_version']}"] if name == "sglang-moe" else []
            status = main(["exchange", "export", name, str(folder), *lock])
        reason = why_not(way, path)
        assert bool(status) == bool(reason), (path, capsys.readouterr().err)
        counts[reason] = counts.get(reason, 0) + 1
        if not reason:
            device = Lockfile.read(folder.parent / "lock.json").devices[0].name
            there = path.parents[2] if name == "sglang-moe" else path.parent
            theirs = found(way, facts, device, there, monkeypatch)
            mine = found(way, facts, device, folder, monkeypatch)
            assert mine == {size: config for size, config in theirs.items() if config}, path  # null: another kernel's
            table = FORMATS[name].read(path)
            for size in (1, 12, 40, 100, 1000, 3000, 100_000):
                row = FORMATS[name].choose(table, facts, [size])
                assert (row and dict(row.config)) == theirs[min(theirs, key=lambda key: abs(key - size))], (path, size)
    sys.stdout.write(f"{way}: {counts.pop('')} found, others {counts}\n")  # shown with -rP
