"""The decorator on a GPU: tuned by the whole runner, remembered, launched directly, and safe inside a capture."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import triton_ops
from triton_ops.device import gpu_missing
from triton_ops.exceptions import FixedGridWarning

pytestmark = pytest.mark.gpu

if gpu_missing() is None:
    import torch
    import triton
    import triton.language as tl

    from tests.tuned_kernels import add, grid

    CONFIGS = [triton.Config({"BLOCK": 128}, num_warps=4), triton.Config({"BLOCK": 1024}, num_warps=8)]

    @triton.jit
    def scale_in_place(x_ptr, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)

    @triton.jit
    def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        rows = tl.program_id(0) * BM + tl.arange(0, BM)
        columns = tl.program_id(1) * BN + tl.arange(0, BN)
        inner, total = tl.arange(0, BK), tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            a = tl.load(a_ptr + rows[:, None] * K + (k + inner)[None, :])
            b = tl.load(b_ptr + (k + inner)[:, None] * N + columns[None, :])
            total = tl.dot(a, b, total)
        tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(tl.float16))


def vectors(n=1 << 20):
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    return x, y, torch.empty_like(x)


def decorated(kernel=None, **more):
    return triton_ops.autotune(CONFIGS, ["n"], **more)(add if kernel is None else kernel)


def rungs(kernel):
    return [decision.found.rung for decision in kernel.decisions]


def test_the_first_launch_tunes_and_later_processes_remember(capfd):
    x, y, out = vectors()
    kernel = decorated()
    kernel[grid](x, y, out, out.numel())
    torch.testing.assert_close(out, x + y)
    assert rungs(kernel) == ["tuned"]
    capfd.readouterr()
    kernel[grid](x, y, out, out.numel())
    assert capfd.readouterr() == ("", "")
    again = decorated()
    again[grid](x, y, out, out.numel())
    assert rungs(again) == ["record"]
    assert again.best_config == kernel.best_config


def test_direct_launches_follow_alignment_size_stream_and_dtype():
    kernel = decorated(on_miss="default")
    for _ in range(3):
        for n, offset, dtype in [(4096, 0, torch.float32), (4095, 0, torch.float32), (4096, 1, torch.float32),
                                 (1, 0, torch.float32), (4096, 0, torch.float16)]:  # fmt: skip
            x, y, out = (torch.randn(n + offset, device="cuda", dtype=dtype)[offset:] for _ in range(3))
            kernel[grid](x, y, out, n)
            torch.testing.assert_close(out, x + y)
    stream = torch.cuda.Stream()
    x, y, out = vectors()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.add_(1)
        kernel[grid](x, y, out, out.numel())
    stream.synchronize()
    torch.testing.assert_close(out, x + y)


def test_a_kernel_that_works_in_place_is_tuned_and_runs_once():
    kernel = decorated(scale_in_place)
    x = torch.randn(1 << 20, device="cuda")
    before = x.clone()
    kernel[grid](x, x.numel())
    torch.testing.assert_close(x, before * 2)
    assert rungs(kernel) == ["tuned"]


def test_the_matmul_of_the_source_documents_is_tuned_by_three_configs():
    configs = [
        triton.Config({"BM": 128, "BN": 128, "BK": 32}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BN": 256, "BK": 32}, num_warps=8, num_stages=3),
        triton.Config({"BM": 64, "BN": 64, "BK": 64}, num_warps=4, num_stages=4),
    ]
    kernel = triton_ops.autotune(configs=configs, key=["M", "N", "K"])(product)
    M, N, K = 1024, 1024, 512
    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((M, K), (K, N)))
    c = torch.empty(M, N, device="cuda", dtype=torch.float16)
    kernel[lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))](a, b, c, M, N, K)
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    assert rungs(kernel) == ["tuned"]


def test_the_vector_addition_of_the_source_documents_and_its_grid(capsys, monkeypatch):
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    x, y, out = vectors()
    kernel = decorated()
    with pytest.warns(FixedGridWarning, match="are launched where a block is larger"):
        kernel[(triton.cdiv(out.numel(), 128),)](x, y, out, out.numel())
    torch.testing.assert_close(out, x + y)
    printed = capsys.readouterr().out
    assert printed.count("Autotuning kernel add with config BLOCK: ") == 2
    assert "Triton autotuning for function add,\nwith key as (1048576, 'torch.float32'" in printed


def test_a_capture_survives_a_miss_and_the_next_launch_tunes():
    kernel = decorated()
    x, y, out = vectors()
    add[grid](x, y, out, out.numel(), **CONFIGS[0].all_kwargs())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[grid](x, y, out, out.numel())
    out.zero_()
    graph.replay()
    torch.testing.assert_close(out, x + y)
    assert rungs(kernel) == []
    kernel[grid](x, y, out, out.numel())
    assert rungs(kernel) == ["tuned"]
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        kernel[grid](x, y, out, out.numel())
    graph.replay()
    torch.testing.assert_close(out, x + y)


def test_sixteen_threads_tune_each_problem_once(monkeypatch):
    kernel, failures = decorated(), []
    sizes = [(1 << 16) + 1024 * turn for turn in range(3)]

    def calls():
        try:
            x, y, out = vectors(sizes[-1])
            for turn in range(30):
                n = sizes[turn % len(sizes)]
                kernel[grid](x, y, out, n)
            torch.cuda.synchronize()
            torch.testing.assert_close(out[: sizes[-1]], (x + y)[: sizes[-1]])
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=calls, daemon=True) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(rungs(kernel)) == ["tuned"] * len(sizes)


def test_another_config_in_the_list_is_the_only_one_that_is_tried(capsys, monkeypatch):
    arguments = (*vectors(), 1 << 20)
    decorated()[grid](*arguments)
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    wider = triton_ops.autotune([*CONFIGS, triton.Config({"BLOCK": 512}, num_warps=4)], ["n"])(add)
    wider[grid](*arguments)
    assert rungs(wider) == ["tuned"]
    assert capsys.readouterr().out.count("Autotuning kernel add with config BLOCK: ") == 1


def test_a_profiler_sees_direct_launches():
    kernel = decorated(on_miss="default")
    x, y, out = vectors()
    for _ in range(3):
        kernel[grid](x, y, out, out.numel())
    seen = []
    hook = lambda metadata: seen.append(metadata.get()["name"])  # noqa: E731
    triton.knobs.runtime.launch_enter_hook.add(hook)
    try:
        kernel[grid](x, y, out, out.numel())
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(hook)
    assert seen == ["add"]


def test_two_gpus_have_their_own_launches():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    kernel = decorated(on_miss="default")
    for _ in range(3):
        for index in range(2):
            with torch.cuda.device(index):
                x, y, out = vectors()
                kernel[grid](x, y, out, out.numel())
                torch.testing.assert_close(out, x + y)


def test_install_takes_a_kernel_that_triton_decorated():
    theirs = triton.autotune(CONFIGS, key=["n"])(add)
    x, y, out = vectors()
    with triton_ops.install():
        theirs[grid](x, y, out, out.numel())
    torch.testing.assert_close(out, x + y)
    assert theirs.best_config in CONFIGS
    assert any(row.rung == "tuned" for row in triton_ops.launches())


REPORTED = """
import torch, triton, triton_ops
from tests.tuned_kernels import add, grid
configs = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 1024}, num_warps=8)]
kernel = triton_ops.autotune(configs, ["n"], on_miss="default")(add)
x, y = torch.randn(4096, device="cuda"), torch.randn(4096, device="cuda")
out = torch.empty_like(x)
for _ in range(5):
    kernel[grid](x, y, out, 4096)
"""


def test_a_process_tells_at_its_end_what_it_launched():
    done = subprocess.run(
        [sys.executable, "-c", REPORTED], env={**os.environ, "TRITON_OPS_REPORT": "1"}, capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    assert "triton-ops: 5 launches: 5 by default" in done.stderr
