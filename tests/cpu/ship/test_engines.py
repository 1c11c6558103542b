"""The look-ups of vLLM and SGLang, run from their installed files, find what is written for them."""

import __future__

import ast
import contextlib
import functools
import importlib.metadata
import io
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from triton_ops.cli.app import main
from triton_ops.records import Lockfile

MOE = "sglang/srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py"
GEMM = "sglang/kernels/ops/gemm"


def block(facts):
    return [int(extent) for extent in re.findall(r"\d+", facts.get("block_shape", ""))] or [0, 0]


WAYS = {  # per format: file, functions, the call of the last one
    "vllm-moe": (
        "vllm/model_executor/layers/fused_moe/fused_moe.py", ("get_config_file_name", "get_moe_configs"),
        lambda facts: (facts["E"], facts["N"], facts.get("dtype"), *block(facts)),
    ),
    "vllm-mamba": (
        "vllm/model_executor/layers/mamba/ops/mamba_ssm.py",
        ("get_ssm_config_file_name", "get_ssm_device_name", "_canonical_cache_dtype", "get_ssm_configs"),
        lambda facts: (facts["headdim"], facts["dstate"], facts["cache_dtype"]),
    ),
    "vllm-linear": (
        "vllm/model_executor/layers/quantization/utils/fp8_utils.py", ("get_w8a8_block_fp8_configs",),
        lambda facts: (facts["N"], facts["K"], *block(facts)),
    ),
    "sglang-moe": (
        MOE, ("get_config_file_name", "get_moe_configs"),
        lambda facts: (
            facts["E"], facts["N"], facts.get("dtype"), *block(facts), "per_channel_quant" in facts, "down" in facts
        ),
    ),
    "fp8_w8a8": (
        f"{GEMM}/fp8_kernel.py", ("get_w8a8_block_fp8_configs",), lambda facts: (facts["N"], facts["K"], *block(facts))
    ),
    "int8_w8a8": (
        f"{GEMM}/int8_kernel.py", ("get_w8a8_block_int8_configs",),
        lambda facts: (facts["N"], facts["K"], *block(facts)),
    ),
    "fp8_w8a8_channelwise": (
        f"{GEMM}/fp8_kernel.py", ("get_w8a8_channelwise_fp8_configs",), lambda facts: (facts["N"], facts["K"])
    ),
}  # fmt: skip
SHIPPED = {
    "vllm-moe": "vllm/model_executor/layers/fused_moe/configs/E=*.json",
    "vllm-mamba": "vllm/model_executor/layers/mamba/ops/configs/selective_state_update/*.json",
    "vllm-linear": "vllm/model_executor/layers/quantization/utils/configs/N=*.json",
    "sglang-moe": "sglang/srt/layers/moe/moe_runner/triton_utils/configs/triton_*/E=*.json",
    "sglang-linear": f"{GEMM}/configs/N=*.json",
}


def site(package):
    """The folder in which a package is installed; the test is skipped where it is not."""
    try:
        return Path(importlib.metadata.distribution(package).locate_file(""))
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")


class Silent:
    """A logger of which each method takes anything."""

    def __getattr__(self, _name):
        return lambda *_words, **_options: None


@functools.cache
def code(path, names):
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    return compile(tree, str(path), "exec", flags=__future__.annotations.compiler_flag)


def asked(format_name, facts, device, folder, monkeypatch):
    """The table that an engine's own code finds below a folder on a device; None if it finds none."""
    file, names, call = WAYS[facts["dtype"] if format_name == "sglang-linear" else format_name]
    root = site(file.partition("/")[0])
    version = facts.get("triton_version", "3.7.1")
    names_of = {
        "envs": SimpleNamespace(VLLM_BATCH_INVARIANT=False, VLLM_TUNED_CONFIG_FOLDER=str(folder)),
        "torch": SimpleNamespace(_dynamo=SimpleNamespace(is_compiling=bool)),
        "get_exec": lambda: SimpleNamespace(deterministic=SimpleNamespace(enable_deterministic_inference=False)),
        "triton": SimpleNamespace(__version__=version), "logger": Silent(), "log_info_on_rank0": Silent().info,
        "get_device_name": lambda: device, "_is_cuda": device.startswith("NVIDIA"), "_CONFIGS_DIR": os.devnull,
        "functools": functools, "cache": functools.cache, "json": json, "os": os, "re": re, "__file__": str(folder.parent / "kernel.py"),
    }  # fmt: skip
    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(folder))
    platform = SimpleNamespace(current_platform=SimpleNamespace(get_device_name=lambda _index: device))
    monkeypatch.setitem(sys.modules, "vllm.platforms", platform)
    if file.startswith("vllm"):
        exec(code(root / "vllm/utils/platform_utils.py", ("get_device_name_as_file_name",)), names_of)
    exec(code(root / file, names), names_of)
    return names_of[names[-1]](*call(facts))


def said(words):
    """What a command that ends well prints as JSON."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        assert main([*words, "--json"]) == 0, (words, err.getvalue())
    return json.loads(out.getvalue())


def round_trip(format_name, path, folder):
    """What the name of a table says, and the name of its device, once it went through a lockfile to a folder."""
    lock = ["--kernel", "k", "--lockfile", str(folder.parent / "lock.json")]
    row = ["--row", "batch"] if format_name == "vllm-mamba" else []
    folder.mkdir(parents=True)
    facts = said(["exchange", "import", format_name, str(path), *lock, *row])["facts"]
    typed = [word for name in facts if name != "device_name" for word in ("--set", f"{name}={facts[name]}")]
    said(["exchange", "export", format_name, str(folder), *lock, *row, *typed])
    return facts, Lockfile.read(folder.parent / "lock.json").devices[0].name


@pytest.mark.parametrize("format_name", SHIPPED)
def test_every_table_that_an_engine_ships_is_found_by_it_after_a_round_trip(format_name, tmp_path, monkeypatch):
    root, counts, lost = site(format_name.partition("-")[0]), dict.fromkeys(("found", "no device", "no look-up", "another kernel"), 0), []
    for index, path in enumerate(sorted(root.glob(SHIPPED[format_name]))):
        folder = tmp_path / str(index) / "configs"
        if "device_name=," in path.name:
            counts["no device"] += 1
        elif "backend=" in path.name:
            counts["another kernel"] += 1
        elif format_name == "vllm-linear" and "dtype=int8_w8a8" in path.name:
            counts["no look-up"] += 1
        else:
            facts, device = round_trip(format_name, path, folder)
            there = path.parents[2] if format_name == "sglang-moe" else path.parent
            theirs = asked(format_name, facts, device, there, monkeypatch)
            ours = asked(format_name, facts, device, folder, monkeypatch)
            assert theirs and len(theirs) >= len(json.loads(path.read_text())) - 1
            lost += [path.name] if ours != {size: config for size, config in theirs.items() if config} else []
            counts["found"] += 1
    print(format_name, counts)
    assert lost == []
