"""A candidate in a trial process on a GPU: its work is waited for, on whichever stream, whatever it replaces."""

from __future__ import annotations

import pytest

from triton_ops.backend import Arguments
from triton_ops.benchmark.trial import TrialProcess
from triton_ops.typed import TypedTarget

pytestmark = pytest.mark.gpu

CANDIDATE = """
import torch

def impatient(x):
    torch.cuda.synchronize = torch._C._cuda_synchronize = lambda *_: None
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(200_000_000)
        return x + 1
"""


def test_work_on_a_side_stream_is_waited_for_where_a_candidate_has_replaced_waiting(tmp_path):
    import torch

    (tmp_path / "candidate.py").write_text(CANDIDATE, encoding="utf-8")
    target, x = TypedTarget(f"{tmp_path}/candidate.py:impatient"), torch.randn(1 << 16, device="cuda")
    with TrialProcess(target, device="cuda", arena_bytes=1 << 22) as process:
        for _ in range(3):
            done = process.run([Arguments((x,))])
            assert done.refused == ""
            assert torch.equal(done.results[0], x + 1)
            assert done.wall_ns >= done.calls_ns > 20e6
