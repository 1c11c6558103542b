"""Code of a user's runs as if a GPU were there: its launches are told, nothing is computed, and all is as before."""

from __future__ import annotations

import importlib
import os
import sys
import threading

import pytest

from tests.limits import ENOUGH_S

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from triton_ops.backend import standing_in  # noqa: E402
from triton_ops.backend.launcher import _when_imported  # noqa: E402
from triton_ops.device import Target  # noqa: E402

pytestmark = pytest.mark.triton
H100 = Target.named("sm_90")


@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, at < n), at < n)


def test_a_launch_is_told_and_a_warmup_is_compiled_and_told_when_it_is_launched():
    told = []
    with standing_in(H100, lambda *launch: told.append(launch)):
        x = torch.empty(100, device="cuda")
        double[(3,)](x, 100, BLOCK=64, num_warps=2)
        assert told == [(double, (3,), (x, 100), {"BLOCK": 64, "num_warps": 2})]
        warmed = double.warmup(x, 100, BLOCK=64, num_warps=2, grid=(3,))
        warmed._init_handles()
        assert len(told) == 1
        assert (warmed.n_regs > 0, warmed.n_spills) == (True, 0)
        assert warmed.metadata.num_warps == 2
        warmed[(5,)](x, 100)
        assert told[1:] == [(double, (5,), (x, 100), {"num_warps": 2})]


def test_launches_of_a_tuner_are_told_with_the_tuner_and_its_warmups_are_left_out():
    class Own(triton.runtime.autotuner.Autotuner):
        pass

    own, told = Own(double, ["x", "n", "BLOCK"], [triton.Config({"BLOCK": 64})], [], None, None), []
    with standing_in(H100, lambda *launch: told.append(launch), tuners=[Own]):
        assert own.run(1, 2, grid=(1,), warmup=True) is None
        assert not told
        own[(2,)](1, 2)
    assert told == [(own, (2,), (1, 2), {})]
    assert "run" not in vars(Own)


@pytest.mark.parametrize("memory", ["meta", "cpu"])
def test_tensors_on_the_gpu_say_that_they_are_there(memory):
    with standing_in(H100, print, memory):
        for x in (torch.empty(8, device="cuda"), torch.empty(8, device=torch.device("cuda:0")), torch.empty(8).cuda()):
            assert (x.device, x.is_cuda, x.get_device()) == (torch.device("cuda", 0), True, 0)
            assert x[4:].data_ptr() - x.data_ptr() == 16
        assert torch.empty(8, device="meta" if memory == "cpu" else "cpu").is_cuda is False
        assert memory == "meta" or torch.ones(2, device="cuda").tolist() == [1, 1]
    assert torch.empty(2).device.type == "cpu"


def test_an_address_has_64_bits():
    with standing_in(H100, print):
        assert torch.empty(8, device="cuda").data_ptr() >= 1 << 32


@pytest.mark.parametrize(("arch", "capability"), [("sm_90", (9, 0)), ("sm_120", (12, 0)), ("gfx942", (9, 4))])
def test_torch_answers_for_the_target_and_says_what_nobody_knows(arch, capability):
    before = torch.cuda.is_available(), torch.cuda.device_count
    with standing_in(target := Target.named(arch), print):
        assert (torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.current_device()) == (True, 1, 0)
        assert torch.cuda.get_device_capability() == capability
        facts = torch.cuda.get_device_properties(0)
        assert (facts.major, facts.minor) == capability
        assert (facts.warp_size, facts.shared_memory_per_block_optin) == (
            target.warp_size, target.shared_bytes_per_block,
        )  # fmt: skip
        assert getattr(facts, "multi_processor_count", None) == target.units
        if target.limits is not None:
            assert facts.max_threads_per_multi_processor == target.limits.warps * target.warp_size
        with pytest.raises(AttributeError, match="pass it as an argument"):
            _ = facts.total_memory
        assert torch.cuda.synchronize() is None
    assert (torch.cuda.is_available(), torch.cuda.device_count) == before


def test_a_file_that_ends_its_process_ends_only_its_own_run():
    end = os._exit
    with standing_in(H100, print):
        assert os._exit is not end
        with pytest.raises(SystemExit) as ended:
            os._exit(3)
    assert ended.value.code == 3
    assert os._exit is end


def test_a_thread_is_on_the_gpu_inside_of_the_block_and_as_others_after_it():
    seen, end = [], threading.Event()

    def work():
        seen.append(torch.zeros(1, device="cuda").is_cuda)
        double[(1,)](torch.empty(4, device="cuda"), 4, BLOCK=16)
        inside.set()
        end.wait(ENOUGH_S)
        seen.append(torch.zeros(1).device.type)

    inside, told = threading.Event(), []
    with standing_in(H100, lambda *launch: told.append(launch)):
        thread = threading.Thread(target=work)
        thread.start()
        inside.wait(ENOUGH_S)
    end.set()
    thread.join()
    assert seen == [True, "cpu"]
    assert [launch[0] for launch in told] == [double]
    assert threading.Thread.start.__module__ == "threading"


def test_a_thread_that_a_launch_ends_says_nothing(capfd):
    def told(*_):
        raise SystemExit

    with standing_in(H100, told):
        thread = threading.Thread(target=lambda: double[(1,)](torch.empty(4, device="cuda"), 4, BLOCK=16))
        thread.start()
        thread.join()
    assert capfd.readouterr().err == ""


def test_what_torch_would_compile_stays_as_it_is():
    def function():
        pass

    own = torch.compile, torch.compiler.disable
    with standing_in(H100, print):
        assert torch.compile(function) is torch.compile(dynamic=True)(function) is function
        assert torch.compiler.disable(function) is torch.compiler.disable(recursive=False)(function) is function
        assert torch.compile(model=function) is torch.compiler.disable(fn=function) is function
    assert (torch.compile, torch.compiler.disable) == own


def test_what_a_later_import_of_a_module_needs_is_done_once_it_has_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("imported_late", "never_imported"):
        (tmp_path / f"{name}.py").write_text("value = 1\n")
    seen, finders = [], list(sys.meta_path)
    with _when_imported("imported_late", lambda: seen.append(vars(sys.modules["imported_late"])["value"])):
        importlib.import_module("never_imported")
        assert not seen
        assert importlib.import_module("imported_late").value == 1
    with _when_imported("nowhere", lambda: seen.append("nowhere")), pytest.raises(ModuleNotFoundError):
        importlib.import_module("nowhere")
    assert seen == [1]
    assert sys.meta_path == finders
    for name in ("imported_late", "never_imported"):
        del sys.modules[name]
