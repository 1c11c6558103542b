"""Tunes that stay among the configs of equal bits, really compiled for a GPU that is not here; launches are planned."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from tests.planned_gpu import Planned  # noqa: E402
from triton_ops import Config, Operation, TensorSpec, TritonKernel, tune  # noqa: E402
from triton_ops.device import DeviceSpec  # noqa: E402
from triton_ops.evaluation import Stations  # noqa: E402
from triton_ops.exceptions import ConfigValueError, SettingsError, TuningFailedError  # noqa: E402
from triton_ops.request import TuneProblem, request  # noqa: E402
from triton_ops.tuner import Silent  # noqa: E402
from triton_ops.values import Measurement, Status, Trial  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]

DEFAULT = Config(BLOCK=256, num_warps=4, num_stages=3)
SAME, OTHER = Config(DEFAULT, num_stages=2), Config(DEFAULT, BLOCK=512)
SPACE = {"BLOCK": [256, 512], "num_warps": [4], "num_stages": [3, 2]}


@triton.jit
def row_sums(x, out, COLUMNS, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
    row, total = tl.program_id(0), 0.0
    for first in range(0, COLUMNS, BLOCK):
        column = first + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + row * COLUMNS + column, mask=column < COLUMNS, other=0.0), 0) * 3.0
    if ATOMIC:
        tl.atomic_add(out + row, total)
    else:
        tl.store(out + row, total)


def operation(atomic=False, space=SPACE):
    def arguments(rows=64, columns=4096, *, dtype="float32"):
        x = TensorSpec((rows, columns), dtype)
        return {"x": x, "out": TensorSpec((rows,), dtype), "COLUMNS": columns, "ATOMIC": atomic}

    kernel = TritonKernel(row_sums, lambda _: (64,), outputs=("out",))
    return Operation("row sums", kernel, space, arguments, dtypes=("float32",))


class Rows(Planned):
    """Tries configs at once: a larger block is faster, and so are fewer stages.

    `wrong` has configs of other bits, and `slower` those that are slower by far.
    """

    def __init__(self):
        self.tried, self.wrong, self.slower = [], (), ()

    def attempt(self, config, best):
        self.tried.append(config)
        if config in self.wrong:
            return Trial(config, Status.WRONG, error="its bits are others")
        ms = 100 / config["BLOCK"] + config["num_stages"] + 10 * (config in self.slower)
        return Trial(config, Status.OK, Measurement((ms,), "planned"))


@pytest.fixture
def station(monkeypatch):
    """The station of a GPU that is not here."""
    monkeypatch.setattr(request, "probe", lambda _: DeviceSpec.named("NVIDIA H200"))
    monkeypatch.setattr(request, "gpu_missing", lambda: "")
    here = Rows()
    monkeypatch.setattr(Stations, "begin", lambda *_, **__: lambda: here)
    return here


def tuned(target, folder, **options):
    return tune(target, effort="exhaustive", isolate=False, cache_dir=folder, listener=Silent(), **options)


def test_the_fastest_config_of_another_class_is_not_run_and_does_not_win(station, tmp_path):
    result = tuned(operation(), tmp_path, same_bits_as="default")
    assert set(station.tried) == {DEFAULT, SAME}
    assert (Config(result.best_config), result.default.config) == (SAME, DEFAULT)
    refused = {trial.config: trial for trial in result.trials if trial.status is Status.CONSTRAINT}
    assert set(refused) == {OTHER, Config(OTHER, num_stages=2)}
    assert refused[OTHER].error.startswith(f"other bits than ({DEFAULT}): a sum over 512: ")
    assert len(result.bits) > 8
    assert result.as_json["bits"] == result.bits
    again = tuned(operation(), tmp_path, same_bits_as="default")
    assert (again.from_cache, again.bits, again.best_config) == (True, result.bits, result.best_config)


def test_a_winner_that_was_found_free_does_not_answer(station, tmp_path):
    free = tuned(operation(), tmp_path)
    assert Config(free.best_config) == Config(OTHER, num_stages=2)
    bound = tuned(operation(), tmp_path, same_bits_as="default")
    assert (bound.from_cache, Config(bound.best_config)) == (False, SAME)
    assert len({free.bits, bound.bits, ""}) == 3, "a free winner names its own class"
    assert tuned(operation(), tmp_path).best_config == free.best_config


def test_a_named_config_is_the_default_of_the_tune(station, tmp_path):
    result = tuned(operation(), tmp_path, same_bits_as=dict(OTHER))
    assert set(station.tried) == {OTHER, Config(OTHER, num_stages=2)}
    assert result.default.config == OTHER
    with pytest.raises(ConfigValueError, match="is not in the space"):
        tuned(operation(), tmp_path, same_bits_as={**OTHER, "BLOCK": 1})


def test_other_bits_within_the_class_are_refused_and_told_as_a_fault_of_the_classes(station, tmp_path):
    station.wrong = [SAME]
    result = tuned(operation(), tmp_path, same_bits_as="default")
    assert Config(result.best_config) == DEFAULT
    (fault,) = [note for note in result.notes if "at fault" in note]
    assert f"({SAME}) is in that of ({DEFAULT}): its bits are others" in fault
    assert [(each.config, each.status) for each in result.failures if each.status is Status.WRONG] == [
        (SAME, Status.WRONG)
    ]


def test_where_the_class_cannot_be_told_the_default_is_kept_with_the_reason(station, tmp_path):
    result = tuned(operation(atomic=True), tmp_path, same_bits_as="default")
    assert station.tried == [DEFAULT]
    assert (Config(result.best_config), result.bits) == (DEFAULT, "")
    assert any(f"({DEFAULT}) is kept: it adds floating point atomically" in note for note in result.notes)


def test_a_default_that_does_not_compile_is_an_error_with_the_reason(station, tmp_path):
    space = {"BLOCK": [3, 256], "num_warps": [4], "num_stages": [2]}
    with pytest.raises(TuningFailedError, match=r"the bits of \(BLOCK=3 .*\) cannot be told: BLOCK is 3"):
        tuned(operation(space=space), tmp_path, same_bits_as="default")
    assert station.tried == []


def test_a_class_of_which_no_config_runs_is_an_error_and_no_other_config_wins(station, tmp_path, monkeypatch):
    def attempt(config, best):
        station.tried.append(config)
        return Trial(config, Status.CRASH, error="an illegal address")

    monkeypatch.setattr(station, "attempt", attempt)
    with pytest.raises(TuningFailedError, match="an illegal address"):
        tuned(operation(), tmp_path, same_bits_as="default")
    assert OTHER not in station.tried


def test_what_no_compiled_code_tells_is_refused_before_any_work():
    with pytest.raises(SettingsError, match="is not known"):
        TuneProblem(target=lambda x, *, n: x, args=(1,), space={"n": [1]}, same_bits_as="default").request()
    for word in ("first", triton.Config({"BLOCK": 512})):  # which raises where it is compared with a text
        with pytest.raises(SettingsError, match=r"same_bits_as is ('first'|<triton)"):
            replace(TuneProblem(target=lambda x, *, n: x, args=(1,), space={"n": [1]}), same_bits_as=word).request()
