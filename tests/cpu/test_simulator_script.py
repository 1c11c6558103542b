"""The page's model is Python's, translated: the page's own script gives the same figures and words as Python."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
from dataclasses import asdict, dataclass, replace
from math import ceil, log2
from typing import NamedTuple

import pytest

from tests.browser import node
from triton_ops.cost_model import spearman
from triton_ops.lab.simulator.advice import reasons
from triton_ops.lab.simulator.page import page_of
from triton_ops.lab.simulator.recorded import overlay_of
from triton_ops.lab.simulator.script.sources import UntranslatableError
from triton_ops.lab.simulator.script.translate import script_of
from triton_ops.lab.simulator.simulation import simulate
from triton_ops.lab.simulator.workloads import WORKLOADS, known_devices

from .test_simulator import RECORDINGS

CASES = 500


def run(script, given):
    """What a script makes of `given`, which it finds under that name."""
    text = f"const given = JSON.parse(require('fs').readFileSync(0, 'utf8'));\n{script}"
    said = subprocess.run(
        [node(), "-e", text], input=json.dumps(given), capture_output=True, text=True, check=False, timeout=120
    )
    assert said.returncode == 0, said.stderr[-2000:]
    return json.loads(said.stdout)


def calculating(page):
    """The page's own scripts but those that touch the document."""
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 7
    return "\n".join(scripts[:4])


def questions(devices):
    rng = random.Random(19)
    for _ in range(CASES):
        workload = rng.choice(list(WORKLOADS.values()))
        extents = [max(1, int(extent * 2 ** rng.uniform(-6, 3))) for extent in workload.shape]
        dtype = rng.choice(["bfloat16", "float16", "float32", "float8_e4m3fn"])
        yield workload, extents, dtype, rng.choice(list(devices)), [config(rng, workload) for _ in range(3)]


def config(rng, workload):
    rows = workload.family == "rows"
    found = {
        "BM": 2 ** rng.randint(0, 3 if rows else 8),
        "BN": 2 ** rng.randint(3, 13 if rows else 8),
        "BK": 2 ** rng.randint(4, 8),
        "num_warps": rng.choice([1, 2, 4, 8, 8, 16, 32, 3]),
        "num_stages": rng.randint(1, 6),
    }
    if workload.family == "product" and rng.random() < 0.5:
        found |= {
            "GROUP_M": rng.choice([1, 4, 8]),
            "ALGORITHM": rng.choice(["tiles", "persistent", "split_k", "stream_k"]),
            "PROGRAMS": rng.choice([0, 1, 2]),
            "SPLIT": rng.choice([1, 2, 4]),
            "SWAPPED": rng.random() < 0.5,
            "LOADS": rng.choice(["pointers", "host", "device"]),
            "HALVES": rng.random() < 0.5,
        }
    return found


ANSWERS = """
const rows = given.map(({ workload, ...rest }, at) => {
  const found = answer({ workload: workloadNamed(workload), ...rest });
  const { machine, work, sides, standings, extents, dtype, configs } = found;
  const shapes = MODEL.series(extents, 0, DATA.limits.shapes);
  return {
    advice: found.advice,
    standings: standings.map((one) => ({ ...one, reasons: MODEL.reasons(one, machine) })),
    dials: standings[0].place ? MODEL.dials(work, machine, standings[0].config, sides) : [],
    over: at % 10 ? [] : MODEL.over_shapes(found.workload.family, shapes, dtype, machine, configs),
  };
});
console.log(JSON.stringify(rows));
"""


def test_the_page_and_python_agree_over_500_random_cases():
    first, devices = simulate("gemm"), known_devices()
    asked, expected = [], []
    for workload, extents, dtype, device, configs in questions(devices):
        python = replace(
            first, workload=workload, shape=tuple(extents), dtype=dtype, device=device,
            machine=devices[device], configs=configs,
        )  # fmt: skip
        asked.append({
            "workload": workload.name, "extents": extents, "dtype": dtype, "device": device, "configs": configs,
        })  # fmt: skip
        expected.append(python)
    answers = run(calculating(page_of(first)) + ANSWERS, asked)
    able = 0
    for at, (python, page) in enumerate(zip(expected, answers, strict=True)):
        standings = python.standings
        able += sum(one.place > 0 for one in standings)
        assert page["advice"] == python.advice
        near([plain(one, python.machine) for one in standings], page["standings"])
        near([asdict(dial) for dial in python.dials], page["dials"])
        if at % 10 == 0:
            near([asdict(point) for point in python.over(python.workload.extents[0])], page["over"])
    assert able > CASES  # of 1,500 configs


def plain(one, machine):
    return {**asdict(one), "reasons": reasons(one, machine)}


def near(python, page, place=""):
    """Equal texts, whole numbers and forms; times within a millionth, where one percent is asked for."""
    if isinstance(python, dict):
        for name, value in python.items():
            near(value, page[name], f"{place}.{name}")
    elif isinstance(python, (list, tuple)):
        assert len(python) == len(page), place
        for at, (one, other) in enumerate(zip(python, page, strict=True)):
            near(one, other, f"{place}[{at}]")
    elif isinstance(python, float) and not math.isfinite(python):
        assert page is None, place  # as JSON has it
    elif isinstance(python, float):
        assert page == pytest.approx(python, rel=1e-6, abs=1e-12), place
    else:
        assert python == page, place


def test_recordings_have_the_same_correlation_on_the_page():
    files = ("matmul_bf16-2048x6144x3072", "flash_d64", "layer_norm_gradient")
    overlays = [overlay_of(RECORDINGS / f"{file}.json.gz") for file in files]
    script = calculating(page_of(simulate("gemm"), overlays))
    script += "const told = DATA.recordings.map(recordedAnswer).map(({ spearman, share }) => [spearman, share]);"
    found = run(f"{script}console.log(JSON.stringify(told));", None)
    for overlay, (rho, share) in zip(overlays, found, strict=True):
        assert rho == pytest.approx(overlay.spearman, abs=1e-6)
        assert share == pytest.approx(overlay.first_share)


class Pair(NamedTuple):
    one: float
    other: float


@dataclass(frozen=True)
class Tile:
    rows: int
    columns: int = 4
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Elements."""
        return self.rows * self.columns

    def times(self, factor: int) -> Tile:
        """A longer tile."""
        return replace(self, rows=self.rows * factor)


class OddError(ValueError):
    """An odd number."""


def halved(number):
    if number % 2:
        raise OddError(f"{number} is odd")
    return number // 2


def halves(numbers):
    for number in numbers:
        try:
            yield halved(number)
        except OddError:  # noqa: PERF203 - the form is what is translated
            yield -1


def everything(values, *, factor=3):
    """As many forms as fit into a function."""
    pairs = [Pair(value, -value) for value in values if value > 1]
    total, names = 0, {}
    for at, (one, other) in enumerate(pairs):
        total += one - other if at % 2 == 0 else one // 2
        names[f"v{at}"] = one
    tile = Tile(2, columns=len(values)).times(factor)
    low, *_ = [min(values)]
    steps = 0
    while steps * steps < max(values):
        steps += 1
    return [
        total, names, tile.size, tile.rows, low, steps, ceil(7 / 2), log2(8), 2**10, -7 // 2, -7 % 3,
        round(2.5), round(3.5), round(-0.5), round(0.125, 2), divmod(17, 5), values[-1], values[1:], values[:-1],
        [*values, *values][:2], sum(values), sum(one.one for one in pairs), max([], default=5), sorted(values),
        max(values, key=lambda one: -one), 1 < 2 < 3, 3 in values, "a" not in names, not values, values or [1],
        list(zip(values, values, strict=True)), {**names, "z": 1}.get("z", 2), names.get("none"), any(values),
        f"{0.5:.0f} {1.5:.0f} {2.675:.2f} {12.5:.0f} {1234567:,} {0.00001234:.3g} {123456.0:.3g} {0.2:.4g}",
        f"{1 / 3:.1%} {True} {None} {'text'!r}", list(halves([2, 3])), isinstance(True, int), int(-2.5), float("1.5"),
        [one for row in [[1, 2], [3]] for one in row], "-".join(["a", "b"]), "gemm".startswith("ge"), tile.names or low,
    ]  # fmt: skip


def test_translated_code_does_what_python_does():
    values = [3, 1, 2]
    script = script_of({"everything": everything}, "CODE")
    found = run(f"{script}console.log(JSON.stringify(CODE.everything(given)));", values)
    assert json.loads(json.dumps(everything(values))) == found


def slept(value):
    return value.hex()


def joined(value):
    with value:
        return 1


def shifted(value):
    return value << 1


@pytest.mark.parametrize("function", [slept, joined, shifted])
def test_code_that_is_not_translated_is_refused(function):
    with pytest.raises(UntranslatableError, match="has no translation to JavaScript"):
        script_of({"code": function}, "CODE")


def test_texts_of_files_never_become_markup_and_nothing_is_fetched():
    overlay = overlay_of(RECORDINGS / "flash_d64.json.gz")
    hostile = "</script><script>alert(1)</script><img src=https://example.org onerror=alert(2)>"
    page = page_of(simulate("gemm"), [replace(overlay, title=hostile, file=hostile)])
    assert hostile not in page
    assert "<img" not in page
    assert page.count("<script>") == 7
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    assert len(page) < 300_000


def test_spearman_is_one_thing():
    script = script_of({"spearman": spearman}, "CODE")
    rng = random.Random(3)
    lists = [[[rng.randint(0, 9) for _ in range(20)] for _ in range(2)] for _ in range(50)]
    found = run(f"{script}console.log(JSON.stringify(given.map(([a, b]) => CODE.spearman(a, b))));", lists)
    assert found == pytest.approx([spearman(*pair) for pair in lists])
