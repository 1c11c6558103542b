"""The plug-ins as engines load them: look-ups answered from a lockfile and counted, in engines that always start."""

import importlib
import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.cpu.serving.engines import write_engines
from tests.cpu.serving.test_tables import ROW, write_table
from tests.distributions import SERVING
from triton_ops.cli.app import main
from triton_ops.compilation import CompilePool
from triton_ops.dispatch import decision, launches
from triton_ops.records import Lockfile
from triton_ops.space import Config
from triton_ops.tuner.tuning import Tuning
from triton_ops_serving import plugins, ranks
from triton_ops_serving.plugins import DIGEST

VLLM = "vllm.model_executor.layers.fused_moe.fused_moe"
SGLANG = "sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config"
NAME_OF_OWN = "vllm/model_executor/layers/fused_moe/configs/E=8,N=14336,device_name=NVIDIA_H200.json"


@pytest.fixture(autouse=True)
def _counts_of_its_own(monkeypatch):
    monkeypatch.setattr(decision, "_counts", decision._Counts())


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """A lockfile that the plug-ins are told of, with two rows of vLLM's experts and of SGLang's second product."""
    path = tmp_path / "lock.json"
    table = write_table(tmp_path / "E=8,N=14336,device_name=NVIDIA_H200.json", [16, 64])
    down = write_table(tmp_path / "triton_3_8_0" / "E=8,N=14336,device_name=NVIDIA_H200_down.json", [16])
    assert not main(["exchange", "import", "vllm-moe", str(table), "--kernel", "vllm-moe", "--lockfile", str(path)])
    words = ["--kernel", "sglang-moe", "--lockfile", str(path), "--argument", "down"]
    assert not main(["exchange", "import", "sglang-moe", str(down), *words])
    monkeypatch.setenv("TRITON_OPS_LOCKFILE", str(path))
    return path


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """The stand-ins of both engines, whose plug-ins have not been called, with one table of vLLM's own."""
    folder = write_engines(tmp_path / "site")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(plugins, "_installed", set())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv(DIGEST, "")
    write_table(folder / NAME_OF_OWN, [1, 16]).write_text(
        json.dumps({size: {**ROW, "BLOCK_SIZE_M": 128} for size in ("1", "16")})
    )
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] in ("vllm", "sglang")]:
        del sys.modules[name]


def counted(kernel):
    return [(row.problem, row.rung, row.launches) for row in launches() if row.kernel == kernel]


def test_a_look_up_of_vllm_is_answered_and_counted(engines, lock, caplog):
    caplog.set_level("INFO", "vllm.triton_ops")
    plugins.vllm()
    module = importlib.import_module(VLLM)
    plugins.vllm()  # again, as in another part of the engine
    rows = module.get_moe_configs(8, 14336, None, 0, 0)
    assert rows == {1: {**ROW, "BLOCK_SIZE_M": 128}, 16: ROW, 64: ROW}  # where nothing is pinned, the engine's own row
    assert module.get_moe_configs(8, 14336, None, 0, 0) is rows
    assert module.config_for(8, 14336, None, 3) == rows[1]
    assert module.get_moe_configs(8, 7168, None, 0, 0) is None
    assert ("E=8,N=14336", "lockfile", 3) in counted("vllm-moe")
    assert ("E=8,N=7168", "default", 1) in counted("vllm-moe")
    texts = " ".join(row.text for row in launches() if row.kernel == "vllm-moe")
    assert "2 of 3 rows are pinned (vllm-moe: E=8,N=14336,device_name=NVIDIA_H200.json), in lockfile" in texts
    assert "the lockfile has no row for it on NVIDIA_H200; the engine's default serves" in texts
    assert "look-ups of vllm-moe are answered from lockfile" in caplog.text


def test_a_module_that_was_imported_before_is_changed_too(engines, lock):
    module = importlib.import_module(VLLM)
    plugins.vllm()
    assert module.get_moe_configs(8, 14336, None)[64] == ROW


def test_a_look_up_keeps_the_attributes_by_which_its_cache_is_cleared(engines, lock):
    plugins.vllm()
    module = importlib.import_module(VLLM)
    assert module.get_moe_configs(8, 14336, None)[1] == {**ROW, "BLOCK_SIZE_M": 128}
    assert (module.get_moe_configs.__name__, module.get_moe_configs.cache_info().misses) == ("get_moe_configs", 1)
    write_table(engines / NAME_OF_OWN, [1])
    module.get_moe_configs.cache_clear()
    assert module.get_moe_configs(8, 14336, None)[1] == ROW


def test_a_finder_of_an_old_kind_stops_no_import(monkeypatch):
    finder = plugins._AfterImport({"this": print})
    monkeypatch.setattr(sys, "meta_path", [finder, object(), *sys.meta_path])
    assert finder.find_spec("this").name == "this"


def test_a_plug_in_that_is_loaded_twice_stops_no_import(engines, lock, monkeypatch):
    for _ in range(2):  # as when an engine loads its plug-ins from two copies of this distribution
        monkeypatch.setattr(plugins, "_installed", set())
        plugins.vllm()
    assert importlib.import_module(VLLM).get_moe_configs(8, 14336, None)[16] == ROW


def test_a_mode_without_tables_stays_without(engines, lock):
    plugins.vllm()
    module = importlib.import_module(VLLM)
    module.envs.VLLM_BATCH_INVARIANT = True
    assert module.get_moe_configs(8, 14336, None, 0, 0) is None


def test_sglang_takes_its_own_hooks(engines, lock):
    plugins.sglang()
    plugins.sglang()
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry").HookRegistry
    assert [target for target, *_ in hooks.hooks] == [f"{SGLANG}.get_moe_configs"]
    hooks.apply_hooks()
    module = importlib.import_module(SGLANG)
    module.get_exec = lambda: importlib.import_module("types").SimpleNamespace(
        deterministic=importlib.import_module("types").SimpleNamespace(enable_deterministic_inference=False)
    )
    assert module.get_moe_configs(8, 14336, None, 0, 0, per_channel_quant=False, down_moe=True) == {16: ROW}
    assert module.get_moe_configs(8, 14336, None, 0, 0, per_channel_quant=False, down_moe=False) is None


@pytest.mark.parametrize("setting", [("TRITON_OPS_SERVING", "off"), ("TRITON_OPS_LOCKFILE", ""), (DIGEST, "other")])
def test_nothing_is_changed_where_it_is_not_wanted(setting, engines, lock, monkeypatch, caplog):
    monkeypatch.setenv(*setting)
    before = list(sys.meta_path)
    plugins.vllm()
    assert sys.meta_path == before
    assert len(importlib.import_module(VLLM).get_moe_configs(8, 14336, None)) == 2
    assert ("changed while the engine started" in caplog.text) == (setting[0] == DIGEST)


def test_rows_that_pin_no_class_of_bits_do_not_serve_where_launches_keep_to_one(engines, lock, monkeypatch, caplog):
    monkeypatch.setenv("TRITON_OPS_SAME_BITS", "1")
    plugins.vllm()
    assert set(importlib.import_module(VLLM).get_moe_configs(8, 14336, None)) == {1, 16}
    assert "3 of 3 entries of the lockfile pin no class of bits, and are not used" in caplog.text
    caplog.clear()
    monkeypatch.setattr(plugins, "_installed", set())
    monkeypatch.setenv(DIGEST, "")
    free = Lockfile.read(lock)
    replace(free, entries=tuple(replace(each, bits="a class", same_bits=True) for each in free.entries)).write(lock)
    assert [look_up.form for look_up, _ in plugins._ready("vllm")] == ["vllm-moe"]
    assert caplog.text == ""


def test_a_device_that_cannot_be_told_leaves_the_engine_its_own(engines, lock, caplog):
    plugins.vllm()
    module = importlib.import_module(VLLM)

    def no_device():
        raise RuntimeError("no GPU")

    module.get_device_name_as_file_name = no_device
    assert len(module.get_moe_configs(8, 14336, None, 0, 0)) == 2
    assert "it cannot be answered: RuntimeError: no GPU" in caplog.text


def test_a_look_up_of_another_version_is_answered_by_the_names_of_its_parameters(engines, lock):
    plugins.vllm()
    path = engines / f"{VLLM.replace('.', '/')}.py"
    path.write_text(path.read_text().replace("def get_moe_configs(", "def get_moe_configs(layout, "))
    module = importlib.import_module(VLLM)
    assert module.get_moe_configs("packed", 8, 14336, None)[1] == {**ROW, "BLOCK_SIZE_M": 128}  # all its own
    assert [(row, served) for _, row, served in counted("vllm-moe")] == [("default", 1)]


@pytest.mark.parametrize(
    ("depth", "cuda", "served"), [(32, True, 32), (32, False, 128), (48, True, 128), (256, 0, 256)]
)
def test_a_row_of_sglangs_linear_layers_steps_over_whole_scales(depth, cuda, served):
    look_up = next(each for each in plugins.LOOK_UPS if each.form == "sglang-linear")
    config = Config(BLOCK_SIZE_M=16, BLOCK_SIZE_K=depth)
    row = look_up.row(SimpleNamespace(_is_cuda=cuda), {"block_shape": [128, 128]}, config)
    assert row == {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_K": served}
    assert plugins.LOOK_UPS[0].row(None, {}, config) == dict(config)


def test_an_engine_without_the_look_up_starts(engines, lock, caplog):
    path = engines / f"{VLLM.replace('.', '/')}.py"
    path.write_text(path.read_text().replace("def get_moe_configs", "def other"))
    plugins.vllm()
    assert importlib.import_module(VLLM).other(8, 14336, None)
    assert "this vLLM has no" in caplog.text


def test_a_hundred_thousand_look_ups_while_the_lockfile_changes(engines, lock, monkeypatch):
    work = []
    monkeypatch.setattr(Tuning, "run", lambda _self: work.append("tune"))
    monkeypatch.setattr(CompilePool, "__init__", lambda *_args, **_named: work.append("compile"))
    plugins.vllm()
    module = importlib.import_module(VLLM)
    rows = module.get_moe_configs(8, 14336, None, 0, 0)
    served = {size: rows[min(rows, key=lambda known: abs(known - size))] for size in (1, 8, 16, 24, 48, 64, 256)}
    texts = [lock.read_text(), "torn", lock.read_text()[:-200], "{}"]
    begun_s, sizes, wrong = time.process_time(), list(served), 0
    for number in range(100_000):
        if number % 1000 == 0:
            lock.write_text(texts[number // 1000 % len(texts)])
        now = module.get_moe_configs(8, 14336, None, 0, 0)
        wrong += now is not rows
        if number % 10 == 0:
            size = sizes[number // 10 % len(sizes)]
            wrong += now[min(now, key=lambda known: abs(known - size))] != served[size]
    assert (wrong, work) == (0, [])
    assert time.process_time() - begun_s < 10  # 0.1 s on a quiet machine
    assert ("E=8,N=14336", "lockfile", 100_001) in counted("vllm-moe")


STARTED = """
import importlib, json, sys
from importlib.metadata import entry_points
for _ in range(2):
    for entry in entry_points(group="vllm.general_plugins"):
        entry.load()()
module = importlib.import_module("vllm.model_executor.layers.fused_moe.fused_moe")
rows = module.get_moe_configs(8, 14336, None)
heavy = {"torch", "triton", "numpy", "typer", "rich"} & sys.modules.keys()
print(json.dumps([len(rows), sorted(heavy)]))
"""


@pytest.mark.processes
def test_five_processes_of_an_engine_start(engines, lock):
    """Three with a lockfile and two with a torn one, each of which calls the plug-ins twice."""
    torn = lock.with_name("torn.json")
    torn.write_text(lock.read_text()[:-200])
    folders = [str(engines), str(SERVING), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders)), DIGEST: ""}
    command = [sys.executable, "-c", STARTED]
    paths = [lock, lock, lock, torn, torn]
    processes = [
        subprocess.Popen(
            command, env={**environment, "TRITON_OPS_LOCKFILE": str(path)}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for path in paths
    ]  # fmt: skip
    for path, process in zip(paths, processes, strict=True):
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert json.loads(out) == [2 if path == torn else 3, []]
        assert ("the engine's own tables serve" in err) == (path == torn)


RANK = """
import importlib, json, logging, sys, torch
logging.basicConfig(format="%(message)s")
rank, path = int(sys.argv[1]), sys.argv[2]
store = torch.distributed.FileStore(path, 2)
torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
from triton_ops_serving.plugins import vllm
vllm()
module = importlib.import_module("vllm.model_executor.layers.fused_moe.fused_moe")
if rank:
    torch.distributed.barrier()  # the other one asks first
rows = module.get_moe_configs(8, 14336, None)
module.get_moe_configs(8, 7168, "float16" if rank else None)
if not rank:
    torch.distributed.barrier()
print(json.dumps(sorted(rows)))
"""


@pytest.mark.processes
def test_ranks_serve_what_the_first_one_has(engines, lock, tmp_path):
    other = tmp_path / "other.json"
    table = write_table(tmp_path / "one" / "E=8,N=14336,device_name=NVIDIA_H200.json", [256])
    assert not main(["exchange", "import", "vllm-moe", str(table), "--kernel", "vllm-moe", "--lockfile", str(other)])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(engines), str(SERVING), *filter(None, sys.path)])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(tmp_path / "store")], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**environment, DIGEST: "", "TRITON_OPS_LOCKFILE": str(path)},
        )
        for rank, path in enumerate((lock, other))
    ]  # fmt: skip
    message = [process.communicate() for process in processes]
    assert [json.loads(out.splitlines()[-1]) for out, _ in message] == [[1, 16, 64]] * 2
    assert ["ranks have lockfiles" in err for _, err in message] == [False, True]
    assert "which serves: it was the first" in message[1][1]


def test_a_choice_that_differs_from_the_first_ranks_is_said(caplog, monkeypatch):
    texts = {}
    monkeypatch.setattr(ranks, "_first", lambda name, text: texts.setdefault(name, text))
    log = logging.getLogger("vllm.triton_ops")
    ranks.compare("vllm-moe E=8", {16: ROW}, log)
    assert not caplog.records
    ranks.compare("vllm-moe E=8", {16: {**ROW, "num_warps": 8}}, log)
    assert "ranks differ in vllm-moe E=8" in caplog.text
