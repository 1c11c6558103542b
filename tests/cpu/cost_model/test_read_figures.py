"""The model's figures for work that was read: of fixed texts of TTIR, so that no version of Triton has a say."""

from __future__ import annotations

import math

import pytest

from tests.cpu.kernel_ir.test_numbers import LOOP, TILE
from tests.cpu.kernel_ir.test_ttir import COPY, GIVEN
from tests.cpu.kernel_ir.test_work import MATMUL, SUM
from triton_ops.cost_model import Readings
from triton_ops.cost_model.inferred import InferredPrior
from triton_ops.cost_model.work_words import work_in_words
from triton_ops.device import DeviceSpec, Machine
from triton_ops.kernel_ir import KernelWork, LaunchWork, Operand
from triton_ops.space import Config

H200 = Machine.of(DeviceSpec.named("NVIDIA H200"))
A100 = Machine.of(DeviceSpec.named("NVIDIA A100-SXM4-80GB"))
CONFIG = Config(n=1, num_warps=4, num_stages=3)

ACROSS = TILE.replace(
    "    tt.return",
    """    %wide = arith.extf %v : tensor<16x64xf16> to tensor<16x64xf32>
    %s = "tt.reduce"(%wide) <{axis = AXIS : i32}> ({
    ^bb0(%p: f32, %q: f32):
      %t = arith.addf %p, %q : f32
      tt.reduce.return %t : f32
    }) : (tensor<16x64xf32>) -> tensor<LENGTHxf32>
    %again = tt.load %p : tensor<16x64x!tt.ptr<f16>>
    tt.return""",
)


def matmul(steps=10, grid=(400, 1, 1)):
    names = [Operand(name=name, bytes=1 << 20) for name in "abc"]
    return LaunchWork.of(MATMUL, grid, (*names, Operand(name="K", number=steps)))


def tile(axis):
    text = ACROSS.replace("AXIS", str(axis)).replace("LENGTH", "64" if axis == 0 else "16")
    return LaunchWork.of(text, (500, 1, 1), (Operand(name="x", bytes=1 << 22), *(Operand(number=64) for _ in range(3))))


def copied(body="", programs=8):
    given = (Operand(name="x", bytes=4000), Operand(name="y", bytes=4000), GIVEN[2])
    return LaunchWork.of(COPY.replace("BODY", body), (programs, 1, 1), given)


WORKS = {
    "copy": KernelWork((copied(),)),
    "sum": KernelWork((copied(SUM),)),
    "matmul": KernelWork((matmul(),)),
    "across rows": KernelWork((tile(0),)),
    "along rows": KernelWork((tile(1),)),
    "loop": KernelWork((LaunchWork.of(LOOP, (9, 1, 1), (Operand(name="x"), *(Operand(number=n) for n in (0, 9, 2)))),)),
    "three launches": KernelWork((copied(), matmul(), tile(0))),
    "silent": KernelWork(silent="it is no kernel"),
}


def readings_of(works):
    readings = Readings(("n",))
    for number, work in works.items():
        readings.works[readings.key(Config(n=number))] = work
    return readings


@pytest.mark.parametrize("name", WORKS)
def test_the_expected_time_of_work_that_was_read_with_its_terms(golden, name):
    lines = [f"{key}: {text}" for key, text in work_in_words(WORKS[name]).items()]
    for machine, config in ((H200, CONFIG), (A100, CONFIG), (H200, Config(n=1, num_warps=8, num_stages=1))):
        model = readings_of({1: WORKS[name]}).model(machine)
        forecast = model.explain(config)
        if forecast is None:
            lines.append(model.why_silent(config))
            continue
        terms = ", ".join(f"{term.name} {term.alone_ms:.4g}" for term in forecast.terms)
        lines.append(
            f"{forecast.expected_ms:.4g} ms, at least {forecast.lower_bound_ms:.4g}; {terms}; {forecast.waves:.4g} "
            f"waves, {forecast.registers:.4g} registers, {forecast.shared_bytes:.6g} shared"
        )
    golden(f"model_read_{name.replace(' ', '_')}.txt", "\n".join(lines) + "\n")


def test_the_least_work_is_that_of_all_launches():
    tiles = readings_of({1: WORKS["three launches"]}).model(H200).work.tiles
    flops, moved = tiles.least(CONFIG)
    assert flops == {"float16": 2.0 * 16 * 64 * 32 * 10 * 400}
    parts = [readings_of({1: KernelWork((launch,))}).model(H200).work.tiles.least(CONFIG)
             for launch in WORKS["three launches"].launches]  # fmt: skip
    assert moved == pytest.approx(sum(part[1] for part in parts))


def test_a_config_that_was_not_read_is_fitted_to_those_that_were_once_there_are_enough():
    configs = [Config(n=n, num_warps=4, num_stages=3) for n in range(1, 17)]
    readings = readings_of({n: KernelWork((matmul(4 * n, (100 * n, 1, 1)),)) for n in range(1, 12)})
    prior = InferredPrior(readings, H200, configs)
    times = prior.score(configs)
    assert all(map(math.isfinite, times[:11]))
    assert all(map(math.isnan, times[11:])), "eleven are too few"
    assert times[:11] == sorted(times[:11])
    for n in (12, 13):
        readings.works[readings.key(Config(n=n))] = KernelWork((matmul(4 * n, (100 * n, 1, 1)),))
    prior.renew()
    fitted = prior.score(configs)
    assert fitted[:11] == times[:11]
    assert all(map(math.isfinite, fitted))
    assert all(0.3 < ms / fitted[12] < 3 for ms in fitted[13:])
