"""Calls of shipped kernels and modules that are repeated by a written function."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")


import triton_ops  # noqa: E402
import triton_ops.backend.taken as taken  # noqa: E402
import triton_ops.dispatch.operations as operations  # noqa: E402
from tests.cpu.dispatch.test_plans import added, by_blocks, operation, ordinary_of  # noqa: E402
from tests.cpu.dispatch.test_plans import launched as launched  # noqa: E402
from tests.cpu.dispatch.test_plans import recorders as recorders  # noqa: E402
from tests.forked import status_of_a_child  # noqa: E402
from triton_ops import choose, flash_attention, fused_gated_mlp, softmax  # noqa: E402
from triton_ops.backend import launches_taken  # noqa: E402

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton_ops.dispatch.plans as plans  # noqa: E402
from triton_ops.backend import Arguments  # noqa: E402

HALF = torch.float16
CONFIG = {"BLOCK_SIZE": 64, "ROWS": 1, "num_warps": 4}


def launches_of(launched, call):
    launched.made.clear()
    call()
    return len(launched.made)


def test_an_interrupt_as_a_recording_begins_leaves_no_plan_without_launches(launched):
    x = torch.zeros(4, 64)
    softmax(x)
    with mock.patch.object(taken, "_watch_runs", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        softmax(x)
    assert [launches_of(launched, lambda: softmax(x)) for _ in range(3)] == [1, 1, 1]


def test_what_is_launched_while_a_config_is_decided_is_not_repeated(launched):
    decide, done = operations._of_shipped, []

    def with_a_candidate(*args):
        if not done:  # as a tune in this process does for each candidate
            done.append(1)
            x, out = torch.zeros(4, 64), torch.empty(4, 64)
            kernel = softmax_module()._KERNEL
            kernel.launch(kernel.check(CONFIG, "softmax"), softmax_module().problems.launch_values(x, out), x.device)
        return decide(*args)

    x = torch.zeros(4, 64)
    softmax(x)
    operations._calls.shipped.clear()
    with mock.patch.object(operations, "_of_shipped", with_a_candidate):
        softmax(x)
    assert [launches_of(launched, lambda: softmax(x)) for _ in range(3)] == [1, 1, 1]


def softmax_module():
    import sys

    return sys.modules["triton_ops_kernels.softmax"]


@pytest.mark.filterwarnings("ignore")
def test_a_launch_inside_of_an_operator_of_torch_is_made_once(launched):
    def own(self, a, b, *, beta=1, alpha=1):
        added[(1,)](self, a, self.numel(), BLOCK=1024)
        return self

    library = torch.library.Library("aten", "IMPL")
    library.impl("addmm_", own, "CPU")
    weights = [torch.zeros(64, 64, dtype=HALF) for _ in range(2)]
    x = torch.zeros(1, 64, 64, dtype=HALF, requires_grad=True)
    try:
        counts = [launches_of(launched, lambda: fused_gated_mlp(x, *weights).sum().backward()) for _ in range(4)]
    finally:
        library._destroy()
    assert counts == [3, 3, 3, 3]


@pytest.mark.parametrize("hashable", [True, False])
def test_a_config_that_is_changed_in_place_is_noticed(launched, hashable):
    class Own(dict):
        __hash__ = object.__hash__

    config = (Own if hashable else dict)(CONFIG)
    own = choose({"first": partial(softmax, config=config), "second": softmax}, name="changed config")
    call = partial(softmax, config=config) if hashable else own
    x, grids = torch.zeros(4, 64), []
    for rows in (1, 1, 1, 1, 2, 2, 1):
        config["ROWS"] = rows
        launched.made.clear()
        call(x)
        grids.append(launched.made[-1][1][0])
    assert grids == [4, 4, 4, 4, 2, 2, 4]


def test_a_result_with_a_gradient_may_be_changed_in_place(launched):
    layer = triton_ops.FP8Linear(64, 32, dtype=torch.float32)
    for _ in range(3):
        layer.zero_grad()
        result = layer(torch.zeros(2, 3, 64)).add_(1).relu_()
        result.sum().backward()
        assert result.shape == (2, 3, 32)
        assert any(one.grad is not None for one in layer.parameters())


def test_a_call_that_is_recorded_keeps_no_tensor(launched):
    softmax(torch.zeros(4, 64))
    gc.collect()
    gc.disable()
    try:
        x = torch.zeros(4, 64)
        result = softmax(x)
        references = weakref.ref(x), weakref.ref(result)
        launched.made.clear()
        del x, result
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()


def test_a_call_that_fails_keeps_no_tensor(launched):
    x = torch.zeros(4, 64)
    reference = weakref.ref(x)
    with pytest.raises(triton_ops.KernelTypeError):
        softmax((x,))
    del x
    gc.collect()
    assert reference() is None


def test_layers_of_one_shape_keep_their_quantised_weights(launched):
    layers = [triton_ops.FP8Linear(64, 32, dtype=HALF).requires_grad_(False) for _ in range(4)]
    x = torch.zeros(8, 64, dtype=HALF)
    assert [[launches_of(launched, lambda: layer(x)) for layer in layers] for _ in range(2)] == [[3] * 4, [2] * 4]  # noqa: B023


def test_a_weight_is_kept_after_a_capture(launched):
    layer, x = triton_ops.FP8Linear(64, 32, dtype=HALF).requires_grad_(False), torch.zeros(8, 64, dtype=HALF)
    with mock.patch("triton_ops_kernels.modules.capturing", return_value=True):
        layer(x)
    assert [launches_of(launched, lambda: layer(x)) for _ in range(3)] == [3, 2, 2]


def test_layers_with_other_distances_of_their_weights_are_known(launched):
    config = {
        "BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2, "GROUP_SIZE_M": 8,
        "LOADS": "host", "JOINED": True,
    }  # fmt: skip
    weights = [(torch.zeros(64 + 16 * nth, 64, dtype=HALF)[:64], torch.zeros(64, 64, dtype=HALF)) for nth in range(3)]
    x = torch.zeros(1, 128, 64, dtype=HALF)

    def step():
        for pair in weights:
            fused_gated_mlp(x, *pair, config=config)

    step(), step()
    assert ordinary_of(step) == 0


def test_a_pattern_is_known_after_its_tune(launched):
    decide, x = operations._of_shipped, torch.zeros(4, 64)

    def tuned(*args):
        torch.equal(torch.zeros(1), torch.zeros(1))  # as a tune compares results
        return decide(*args)

    softmax(x)
    operations._calls.shipped.clear()
    with mock.patch.object(operations, "_of_shipped", tuned):
        softmax(x)
    assert ordinary_of(lambda: softmax(x)) == 0


@pytest.mark.processes
def test_a_child_that_was_forked_during_a_recording_has_known_calls(launched):
    begun, end = threading.Event(), threading.Event()

    def record():
        with launches_taken(lambda run, *args, **kwargs: run(*args, **kwargs)):
            begun.set()
            end.wait()

    def child():
        x = torch.zeros(4, 64)
        softmax(x), softmax(x)
        assert ordinary_of(lambda: softmax(x)) == 0

    thread = threading.Thread(target=record)
    thread.start()
    begun.wait()
    try:
        assert status_of_a_child(child) == 0
    finally:
        end.set()
        thread.join()


def test_known_calls_stay_known_while_another_thread_makes_a_first_call(launched):
    x, begun, end = torch.zeros(4, 64), threading.Event(), threading.Event()
    softmax(x), softmax(x)

    def record():
        with launches_taken(lambda run, *args, **kwargs: run(*args, **kwargs)):
            begun.set()
            end.wait()

    thread = threading.Thread(target=record)
    thread.start()
    begun.wait()
    try:
        assert ordinary_of(lambda: softmax(x)) == 0
    finally:
        end.set()
        thread.join()


def test_views_of_results_are_no_reason_to_record_under_autocast_each_time(launched):
    layer, x = triton_ops.FP8Linear(64, 32, dtype=HALF).requires_grad_(False), torch.zeros(2, 4, 64, dtype=HALF)
    layer(x), layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(x), layer(x)
        assert ordinary_of(lambda: layer(x)) == 0


def test_the_cache_folder_of_the_user_is_noticed(launched, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", "records")  # a relative folder
    x = torch.zeros(4, 64)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        softmax(x), softmax(x)
    assert len({place[0][1] for place in operations._calls.shipped}) == 2


def test_the_cache_folder_of_the_system_is_noticed(launched, monkeypatch, tmp_path):
    monkeypatch.delenv("TRITON_OPS_CACHE_DIR", raising=False)
    x = torch.zeros(4, 64)
    for folder in ("one", "two"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / folder))
        softmax(x), softmax(x)
    assert len({place[0][1] for place in operations._calls.shipped}) == 2


def test_calls_of_ever_new_sizes_are_recorded_once_for_a_class(launched, recorders):
    keys = torch.zeros(1, 1, 640, 64, dtype=HALF)
    for count in range(513, 640):
        flash_attention(keys[:, :, :1], keys[:, :, :count], keys[:, :, :count])
    assert recorders.call_count <= 6


def test_a_weight_that_changes_at_each_step_is_not_a_reason_to_record(launched, recorders):
    layer, x = triton_ops.FP8Linear(64, 32, dtype=HALF).requires_grad_(False), torch.zeros(8, 64, dtype=HALF)
    for _ in range(3):
        layer.refresh()
        layer(x)
    before = recorders.call_count
    for _ in range(4):
        layer.weight.add_(1)
        assert launches_of(launched, lambda: layer(x)) == 3
    assert recorders.call_count == before


def test_new_memory_is_filled_in_torchs_deterministic_mode(launched):
    torch.use_deterministic_algorithms(True)
    try:
        x = torch.zeros(4, 64)
        assert [bool(softmax(x).isnan().all()) for _ in range(4)] == [True] * 4  # nothing is launched here
    finally:
        torch.use_deterministic_algorithms(False)


def test_launches_that_are_taken_are_no_known_ones(launched):
    own, kernel, x = operation(), triton_ops.autotune([triton.Config({"BLOCK": 128})], ["n"])(added), torch.zeros(64)
    calls = [lambda: own(x, x, 1, 64, 0), lambda: softmax(x.view(4, 16)), lambda: kernel[by_blocks](x, x, 64)]
    taken = []
    for call in (*calls, *calls, *calls):
        call()
    with launches_taken(lambda run, kernel, *args, **kwargs: taken.append(kernel.__name__)):
        for call in calls:
            call()
    assert taken == ["scaled", "softmax_kernel", "added"]


def test_a_known_launch_encodes_descriptors_once_for_the_addresses_of_its_tensors(launched, monkeypatch):
    encoded, handed, known = [], [], {}

    def encode(addresses, arguments):
        bases = [each.base for each in arguments if Arguments.is_descriptor(each)]
        encoded.append((addresses, [each.data_ptr() for each in bases]))
        return known.setdefault(addresses, ("encoded", len(encoded)))

    own = plans.Encoded(lambda *given: handed.append(given), known.get, encode)
    monkeypatch.setattr(plans.Encoded, "of", lambda *_: own)
    config = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 2, "LOADS": "host"}
    one, other, b, out = (torch.zeros(64, 64).half() for _ in range(4))
    for a in (one, one, one, other, one, other):
        triton_ops.matmul(a, b, out=out, config=config)
    at = [{each.data_ptr(), b.data_ptr(), out.data_ptr()} for each in (one, other)]
    assert [{*addresses} for addresses, _ in encoded] == at
    assert [{*bases} for _, bases in encoded] == at
    assert [given[5:] for given in handed] == [("encoded", nth) for nth in (1, 2, 1, 2)]
    triton_ops.matmul(torch.zeros(128, 64).half(), b, out=torch.zeros(128, 64).half(), config=config)
    assert len(encoded) == 2, "another size is no known call of this plan"
