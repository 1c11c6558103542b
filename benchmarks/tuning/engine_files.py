"""Which files of vLLM's and SGLang's wheels make their kernels importable where the engines cannot be installed?

    pip install --dry-run --ignore-installed --no-deps --report wheels.json vllm==0.33.0 sglang==0.5.23
    python -m benchmarks.tuning.engine_files wheels.json --out engines.tgz

The archive has the engines' own files of their kernels, launchers, look-ups and tables, unchanged, and a stand-in for
each module that these import and that is not among them. A stand-in's names are false, and may be called; those that
decide what a kernel is launched with are written here: the platform, by `nvidia-smi`, since processes that compile have
no device. Unpack it and put the folder on `PYTHONPATH`.

Of a wheel that pip's report names by its address in an index only these files are fetched, with `remotezip`: 2 MiB of
the 360 that both wheels have. pip itself reads no more of it with `--use-feature=fast-deps`.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tarfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname
from zipfile import ZipFile

OWN = (
    "*.dist-info/METADATA",
    "vllm/envs.py",
    "vllm/triton_utils/*.py",
    "vllm/utils/math_utils.py",
    "vllm/utils/platform_utils.py",
    "vllm/utils/torch_utils.py",
    "vllm/utils/torch_version.py",
    "vllm/model_executor/layers/fused_moe/fused_moe.py",
    "vllm/model_executor/layers/fused_moe/utils.py",
    "vllm/model_executor/layers/fused_moe/configs/*device_name=*",
    "vllm/model_executor/layers/quantization/utils/fp8_utils.py",
    "vllm/model_executor/layers/quantization/utils/configs/*device_name=*",
    "vllm/model_executor/layers/mamba/ops/mamba_ssm.py",
    "vllm/model_executor/layers/mamba/ops/triton_helpers.py",
    "vllm/model_executor/layers/mamba/ops/configs/selective_state_update/*device_name=*",
    "vllm/lora/ops/triton_ops/kernel_utils.py",
    "vllm/lora/ops/triton_ops/lora_expand_op.py",
    "vllm/lora/ops/triton_ops/lora_kernel_metadata.py",
    "vllm/lora/ops/triton_ops/lora_shrink_op.py",
    "vllm/lora/ops/triton_ops/utils.py",
    "sglang/kernels/ops/lora/dense/chunked_sgmv_*.py",
    "sglang/kernels/ops/lora/dense/lora_tuning_config.py",
    "sglang/kernels/ops/lora/dense/csgmv_configs/*device=*",
    "sglang/kernels/ops/moe/fused_moe_triton_kernels.py",
    "sglang/kernels/ops/gemm/fp8_kernel.py",
    "sglang/kernels/ops/gemm/int8_kernel.py",
    "sglang/kernels/ops/gemm/configs/*device_name=*",
    "sglang/srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py",
    "sglang/srt/layers/moe/moe_runner/triton_utils/configs/*device_name=*",
)  # a `*` of `fnmatch` is folders too

_ABSENT = '''
class _Absent:
    """A name of a module that is not here: false, empty, and a decorator that changes nothing; and no tensor."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__") or name in ("data_ptr", "block_shape"):
            raise AttributeError(name)
        return _Absent(f"{self._name}.{name}")

    def __call__(self, *args, **named):
        return args[0] if len(args) == 1 and callable(args[0]) and not named else self

    def __bool__(self):
        return False

    def __mro_entries__(self, bases):
        return ()

    def __or__(self, other):
        return object

    __ror__ = __or__

    def __getitem__(self, key):
        return self

    def __repr__(self):
        return self._name


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    from importlib.util import find_spec

    if "__path__" in globals() and find_spec(f"{__name__}.{name}"):  # of `from package import module`
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    return _Absent(f"{__name__}.{name}")
'''
_GPU = '''
"""The GPU of this machine, also where it is hidden from this process."""
import functools, os, subprocess

_ASK = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]


@functools.cache
def gpu():
    text = os.environ.get("ENGINE_FILES_GPU")
    if text is None:
        try:
            text = subprocess.run(_ASK, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        except (OSError, subprocess.CalledProcessError, IndexError):
            text = ""
        os.environ["ENGINE_FILES_GPU"] = text
    name, _, capability = text.partition(", ")
    return name, tuple(map(int, capability.split("."))) if capability else (0, 0)
'''
_PLATFORM = """
from engine_files_gpu import gpu


class _Platform:
    dispatch_key = "CUDA"
    simple_compile_backend = "eager"

    def get_device_name(self, device_id=0):
        return gpu()[0]

    def is_cuda(self):
        return bool(gpu()[0])

    is_cuda_alike = is_cuda

    def is_device_capability(self, capability, device_id=0):
        wanted = capability if isinstance(capability, tuple) else divmod(capability, 10)
        return gpu()[1] == wanted

    def has_device_capability(self, capability, device_id=0):
        return gpu()[1] >= (capability if isinstance(capability, tuple) else divmod(capability, 10))

    def __getattr__(self, name):
        if not name.startswith(("is_", "has_", "support")):
            raise AttributeError(name)
        return lambda *args, **named: False


current_platform = _Platform()


def vllm_version_matches_substr(text):
    return False
"""
_LOGGER = """
import logging


class _Logger(logging.LoggerAdapter):
    def info_once(self, text, *args, scope=""):
        self.info(text, *args)

    def warning_once(self, text, *args, scope=""):
        self.warning(text, *args)


def init_logger(name):
    return _Logger(logging.getLogger(name), {})
"""
_SGLANG_UTILS = """
from engine_files_gpu import gpu


def get_device_name(device_id=0):
    return gpu()[0]


def is_cuda():
    return bool(gpu()[0])


def is_sm90_supported(device=None):
    return gpu()[1] == (9, 0)


def log_info_on_rank0(logger, text):
    logger.info(text)


def cached_triton_kernel(key_fn=None):
    return lambda kernel: kernel
"""
_SGLANG_ENVIRON = """
from types import SimpleNamespace

_OFF = SimpleNamespace(get=lambda: False)


class _Settings:
    def __getattr__(self, name):
        if not name.startswith("SGLANG_"):
            raise AttributeError(name)
        return _OFF


envs = _Settings()
"""
_SGLANG_CONTEXT = """
from engine_files_gpu import gpu


class _Platform:
    @property
    def is_sm90(self):
        return gpu()[1] == (9, 0)


def get_platform():
    return _Platform()
"""
STAND_INS = {
    "engine_files_gpu.py": _GPU,
    "regex.py": "from re import *\n",
    "vllm/logger/__init__.py": _LOGGER,
    "vllm/platforms/__init__.py": _PLATFORM,
    "vllm/v1/attention/backends/utils/__init__.py": "NULL_BLOCK_ID = 0\n",
    "sglang/kernels/jit/utils/__init__.py":
        "from engine_files_gpu import gpu\n\n\ndef is_arch_support_pdl():\n    return gpu()[1] >= (9, 0)\n",
    "sglang/srt/environ/__init__.py": _SGLANG_ENVIRON,
    "sglang/srt/layers/moe/utils/__init__.py": "def get_moe_padding_size(use_aiter):\n    return 0\n",
    "sglang/srt/lora/utils/__init__.py": "class LoRABatchInfo:\n    pass\n",
    "sglang/srt/runtime_context/__init__.py": _SGLANG_CONTEXT,
    "sglang/srt/utils/__init__.py": _SGLANG_UTILS,
}  # fmt: skip


def imported(text: str, module: str, engine: str) -> Iterator[str]:
    """The modules of an engine that a file imports, at its top or in a function; a name may be one too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith(f"{engine}."))
        elif isinstance(node, ast.ImportFrom):
            base = module.rsplit(".", node.level)[0] if node.level else ""
            name = ".".join(filter(None, (base, node.module)))
            if name.startswith(f"{engine}."):
                yield name


def opened(address: str) -> ZipFile:
    """A wheel on this machine, or one in an index, of which no more is fetched than what is read."""
    place = urlsplit(address)
    if place.scheme == "file":
        return ZipFile(url2pathname(place.path))
    import requests
    from remotezip import RemoteZip

    return RemoteZip(address, session=requests.Session())  # one connection for all files


def files_of(installation: dict[str, Any]) -> dict[str, str]:
    """What the archive has of one engine, by path."""
    engine, version = installation["metadata"]["name"], installation["metadata"]["version"]
    with opened(installation["download_info"]["url"]) as archive:
        names = [name for name in archive.namelist() if any(fnmatch(name, pattern) for pattern in OWN)]
        files = {name: archive.read(name).decode() for name in names if not name.endswith("/")}
    stand_ins = {path: text + _ABSENT for path, text in STAND_INS.items() if path.startswith(f"{engine}/")}
    stand_ins[f"{engine}/__init__.py"] = f"__version__ = {version!r}\n{_ABSENT}"
    for path, text in list(files.items()):
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in imported(text, module, engine) if path.endswith(".py") else ():
            place = name.replace(".", "/")
            if not {f"{place}.py", f"{place}/__init__.py"} & {*files, *stand_ins}:
                stand_ins[f"{place}/__init__.py"] = _ABSENT
    return {**files, **stand_ins}


def with_packages(files: dict[str, str]) -> dict[str, str]:
    """The files, and a stand-in for each package above a module."""
    folders = {f"{parent}/__init__.py" for path in files if path.endswith(".py") for parent in Path(path).parents}
    return {**dict.fromkeys(sorted(folders - {"./__init__.py"}), _ABSENT), **files}


def write(files: dict[str, str], path: Path) -> None:
    """Write the files as a compressed archive."""
    with tarfile.open(path, "w:gz") as archive:
        for name, text in sorted(files.items()):
            content = text.encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def main() -> int:
    """Write the archive and print what is in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="what pip would install")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    files = {name: text for name, text in STAND_INS.items() if "/" not in name}
    for installation in json.loads(options.report.read_text(encoding="utf-8"))["install"]:
        files |= files_of(installation)
    write(with_packages(files), options.out)
    own = sum(any(fnmatch(name, pattern) for pattern in OWN) for name in files)
    print(f"{own} files of the engines and {len(files) - own} stand-ins, {options.out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
