"""TODO of test_kinds.py"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
from tests.launches import ttgir_of  # noqa: E402
from tests.product_kinds import KINDS  # noqa: E402
from triton_ops.backend import Arguments, Packed  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.values import Status  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]
from tests.cpu.evaluation.test_kinds import TWO, ahead, sent  # noqa: E402


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_product_compiles_as_bytes_send_it(name):
    operation = KINDS[name]
    problem = operation.problem()
    space = operation.space_for(problem)
    given = dict(problem.arguments)
    operation.kernel.check(space.tunables, Arguments(keyword=given))
    result = sent(operation.kernel, **given).compile(space.default_config)
    assert (result.status, result.reason) == (Status.OK, "")
    assert space.size.valid <= 40
    assert result.resources.mma == "wgmma"


def test_warps_are_specialised_and_their_accumulator_is_not_taken_for_spilling():
    operation = KINDS["warp_specialized_matmul"]
    given = dict(operation.problem().arguments)
    config = Config({**operation.space.default_config, "BN": 256, "SPECIALIZED": True, "num_warps": 4})
    kernel = ahead(operation.kernel, **given)
    assert "ttg.warp_specialize" in ttgir_of(kernel, config)
    assert kernel.compile(config).status is Status.OK
    assert kernel.objection(config) is None
    assert kernel.objection(Config({**config, "SPECIALIZED": False})).deferred


def test_a_launcher_is_named_by_its_kernels_too():
    assert TWO.cache_key != KINDS["split_k_matmul"].kernel.cache_key
    assert set(TWO.identity) >= {"source", "triton", "ptxas"}
    assert Packed.loaded(Packed.of(TWO).content).cache_key == TWO.cache_key
    assert TWO.process_imports == ("triton", "torch")
