"""A step of a GPU is captured with each finalist, and what makes it faster is kept."""

from __future__ import annotations

import pytest

import triton_ops
from tests.records import record
from triton_ops.records import Timing, store_in
from triton_ops.settings import cache_folder
from triton_ops.space import Config

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = triton.language

BLOCKS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (16, 1024, 2048)]


@triton_ops.autotune(BLOCKS, key=["n"], on_miss="default")
@triton.jit
def doubled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


def double(x):
    out = torch.empty_like(x)
    doubled[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


@pytest.mark.parametrize("captures", [True, False])
def test_a_training_step_takes_the_faster_config_and_its_weights_stay(captures):
    model = torch.nn.Linear(1024, 1024, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    x = torch.randn(4096, 1024, device="cuda")

    def step():
        optimizer.zero_grad()
        loss = model(double(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss if captures else loss.item()

    step()
    call = doubled.launches.call_of((1,), (x, torch.empty_like(x), x.numel()), {})
    slow = call.space.default_config
    rivals = (Config({**slow, "BLOCK": 1024}), Config({**slow, "BLOCK": 2048}))
    times = {"timing": Timing(0.1, 0.1, 0.1, 9), "default": slow, "ties": rivals}
    store_in(cache_folder(None)).put(record(key=call.key, winner=slow, space=call.space.fingerprint, **times))
    before = [each.detach().clone() for each in model.parameters()]
    result = triton_ops.tune_in_place(step, [doubled], budget_s=20, name="training")
    (kernel,) = result.kernels
    assert result.mode == ("graph-warm" if captures else "event-warm")
    assert (kernel.before["BLOCK"], kernel.launches, len(kernel.gains)) == (16, 1, 2)
    if captures:  # else the host's own time hides the kernel's
        assert kernel.after["BLOCK"] > 16, kernel.whys
        assert result.gain.low > 0
    assert all(map(torch.equal, before, model.parameters()))
    assert "training" in doubled.why(x, torch.empty_like(x), x.numel()).found.why
