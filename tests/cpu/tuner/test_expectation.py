"""The effort `expected`: the model's first pick is compared with the default where the model is sure, else nothing."""

from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests import inferred_kernels as kernels  # noqa: E402
from tests.planned_gpu import Planned  # noqa: E402
from triton_ops import Config, Operation, TensorSpec, recall, tune  # noqa: E402
from triton_ops.backend import TritonKernel  # noqa: E402
from triton_ops.compilation import CompilePool  # noqa: E402
from triton_ops.device import DeviceSpec  # noqa: E402
from triton_ops.dispatch import would_run  # noqa: E402
from triton_ops.evaluation import Stations  # noqa: E402
from triton_ops.exceptions import SettingsError, UntunedError  # noqa: E402
from triton_ops.request import TuneProblem, request  # noqa: E402
from triton_ops.request.effort import PRESETS  # noqa: E402
from triton_ops.tuner import Silent  # noqa: E402
from triton_ops.tuner.expectation import Expectation  # noqa: E402
from triton_ops.values import Compiled, Measurement, Resources, Status, Trial  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]

EXPECTED = PRESETS["expected"]
SLOW, FAST = Config(BLOCK=32, num_warps=1), Config(BLOCK=1024, num_warps=1)  # 32 turns of a loop, and one


def rows_grid(_):
    return (4096,)


def arguments(rows=4096, columns=1024, *, dtype="bfloat16"):
    x = TensorSpec((rows, columns), dtype)
    return {"x": x, "y": x, "columns": columns, "eps": 1e-5}


NORM = TritonKernel(kernels.chunked_norm, rows_grid)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that is not here, on which a row that is read at once takes a tenth of the time."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setattr(request, "probe", lambda _: DeviceSpec.named("NVIDIA H200"))
    monkeypatch.setattr(request, "gpu_missing", lambda: "")
    tried = []

    class Rows(Planned):
        def attempt(self, config, best):
            tried.append(config)
            return Trial(config, Status.OK, Measurement((0.1 if config == FAST else 1.0,), "planned"))

    monkeypatch.setattr(Stations, "begin", lambda *_, **__: Rows)
    return tried


def operation(*blocks):
    return Operation("norm", NORM, {"BLOCK": list(blocks), "num_warps": [1]}, arguments, dtypes=("bfloat16",))


def expected(*blocks, **more):
    task = TuneProblem(target=operation(*blocks), device="cuda").request().checked()
    with CompilePool(task.compiler(), workers=2) as pool:
        effort = replace(EXPECTED, **more)
        return Expectation.of(task, effort, pool).worth(task, effort)


def test_a_model_that_is_sure_has_its_first_pick_compared_with_the_default_and_nothing_else(gpu, tmp_path):
    options = {"cache_dir": tmp_path, "isolate": False, "listener": Silent()}
    result = tune(operation(32, 1024), effort="expected", **options)
    assert gpu == [SLOW, FAST]
    assert (Config(result.best_config), result.default.config) == (FAST, SLOW)
    (order,) = result.ordered_by
    assert order.startswith("a model of the work, which expects ")
    assert f"({FAST}) and " in order
    answer = would_run(operation(32, 1024), device="cuda", cache_dir=tmp_path).found
    assert (answer.rung, answer.config) == ("record", FAST)
    assert answer.why.endswith(f"; chosen by {order}")
    gpu.clear()
    assert tune(operation(32, 1024), effort="expected", **options).from_cache
    assert gpu == []
    tune(operation(32, 1024), **options)  # a tune measures more, and replaces it
    assert set(gpu) == {SLOW, FAST}
    assert recall(operation(32, 1024), device="cuda", cache_dir=tmp_path).effort == "quick"


def test_where_the_model_is_not_sure_nothing_is_measured_and_nothing_is_kept(gpu, tmp_path):
    with pytest.raises(
        UntunedError, match=r"expected to be faster than the default: the model first picks the default"
    ):
        tune(operation(1024, 32), effort="expected", cache_dir=tmp_path, isolate=False, listener=Silent())
    assert gpu == []
    assert not list(tmp_path.rglob("*.json*"))


def test_the_gain_that_is_asked_for_decides_whether_the_model_is_sure(gpu):
    assert list(expected(32, 1024).pair) == [SLOW, FAST]
    with pytest.raises(
        UntunedError, match=r"the model expects \S+ ms of \(BLOCK=1024.* default, and is sure from 900%"
    ):
        expected(32, 1024, expected_gain=9.0)


MIDDLE = Config(BLOCK=512, num_warps=1)
GUESSED = {SLOW: 1.0, FAST: 0.5, MIDDLE: 0.6}


@pytest.fixture
def compiled_times(gpu, monkeypatch):
    """Times that a model expects of configs once it knows what the compiler made of them; `GUESSED` before."""
    times, known = dict(GUESSED), set()

    class Model:
        def score(self, configs):
            return [(times if config in known else GUESSED)[config] for config in configs]

        def tell(self, trials):
            known.update(trial.config for trial in trials if trial.resources.registers)

    answer = Future()
    answer.set_result([Model()])
    monkeypatch.setattr("triton_ops.tuner.expectation.coming_priors", lambda *_, **__: answer)
    return times


@pytest.mark.parametrize(("middle", "pick"), [(0.48, FAST), (0.47, MIDDLE)])
def test_another_pick_takes_the_place_of_the_first_if_it_is_ahead_by_more_than_the_error(compiled_times, middle, pick):
    compiled_times[MIDDLE] = middle
    expectation = expected(32, 512, 1024)
    assert list(expectation.pair) == [SLOW, pick]
    assert expectation.gain == pytest.approx(1.0)  # of the first pick
    first = ", 0.5 ms of its first pick" if pick == MIDDLE else ""
    assert f"ms of ({pick}){first} and 1 ms of the default" in expectation.forecast


def test_a_pick_that_was_not_the_first_makes_no_model_sure(compiled_times):
    compiled_times.update({FAST: 0.9, MIDDLE: 0.5})
    with pytest.raises(UntunedError, match=r"ms of its first pick and 1 ms of the default, and is sure from 15%"):
        expected(32, 512, 1024)


class Forecasts:
    """A model that expects given times, by BLOCK."""

    def __init__(self, times):
        self.times, self.told = times, []

    def tell(self, trials):
        self.told = [trial.config["BLOCK"] for trial in trials]

    def score(self, configs):
        return [self.times[config["BLOCK"]] for config in configs]


def made(block, status=Status.OK, reason=""):
    return Compiled(Config(BLOCK=block), status, reason, Resources(registers=32))


@pytest.mark.parametrize(("times", "block", "gain", "words"), [
    ({0: 1.0, 1: 0.5, 2: 0.6}, 1, 1.0, "expects 0.5 ms of (BLOCK=1) and 1 ms of the list"),
    ({0: 1.0, 1: 0.5, 2: 0.4}, 2, 1.0, "expects 0.4 ms of (BLOCK=2), 0.5 ms of its first pick and 1 ms of the list"),
    ({0: 1.0, 1: 1.05, 2: 1.0}, 2, 1 / 1.05 - 1,
     "expects 1 ms of (BLOCK=2), 1.05 ms of its first pick and 1 ms of the list"),
    ({0: 1.0, 1: 1.04, 2: 1.0}, 1, 1 / 1.04 - 1, "expects 1.04 ms of (BLOCK=1) and 1 ms of the list"),
    ({0: 1.0, 1: math.inf, 2: 0.5}, 2, math.nan,
     "expects 0.5 ms of (BLOCK=2), inf ms of its first pick and 1 ms of the list"),
])  # fmt: skip
def test_the_pick_and_the_gain_follow_the_times_once_the_compilers_figures_are_known(times, block, gain, words):
    model = Forecasts(times)
    result = Expectation._between(made(0), [made(1), made(2)], "the list", model)
    assert model.told == [0, 1, 2]
    assert [config["BLOCK"] for config in result.pair] == [0, block]
    assert result.forecast == words
    assert result.gain == pytest.approx(gain, nan_ok=True)


def test_a_default_that_has_no_launch_is_beaten_by_any_pick():
    large = made(0, Status.RESOURCES, "needs too much")
    result = Expectation._between(large, [made(1)], "the default", Forecasts({0: 1.0, 1: 9.0}))
    assert (result.gain, [config["BLOCK"] for config in result.pair]) == (math.inf, [0, 1])
    assert result.forecast == "expects 9 ms of (BLOCK=1) and no launch of the default, which needs too much"


@pytest.mark.parametrize(("default", "leaders"), [
    (made(0), []), (made(0), [made(0), made(1)]), (made(0, Status.COMPILE), [made(1)]),
    (made(0), [made(1, Status.COMPILE)]), (made(0), [replace(made(1), resources=None)]),
])  # fmt: skip
def test_a_pick_that_cannot_be_compared_makes_no_model_sure(default, leaders):
    result = Expectation._between(default, leaders, "the default", Forecasts({}))
    assert math.isnan(result.gain)
    assert result.forecast == "first picks the default itself, or the compiler has refused one of both"


def test_a_kernel_that_no_compiler_or_model_reads_is_not_expected_to_gain(gpu):
    task = TuneProblem(target=operation(32, 1024), device="cuda").request().checked()
    with pytest.raises(UntunedError, match="is not compiled ahead, so that no model can read it"):
        Expectation.of(task, EXPECTED, None)
    with pytest.raises(UntunedError, match="no model has a forecast of its configs on this device"):
        expected(32)


def test_an_expected_gain_below_zero_is_refused():
    with pytest.raises(SettingsError, match="expected_gain of effort expected is -1"):
        replace(EXPECTED, expected_gain=-1)
