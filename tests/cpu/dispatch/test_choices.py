"""`choose`: implementations of one operation are verified, raced, remembered, and run; bad ones are named."""

from __future__ import annotations

import copy
import gc
import importlib
import json
import os
import pickle
import sys
import time

import pytest
import torch

import triton_ops
from triton_ops import Implementation, Operation, TensorSpec, choose, on_miss, replaying, serve
from triton_ops.backend import Packed, Source
from triton_ops.dispatch import implementation as leaks
from triton_ops.dispatch import ladder as sources
from triton_ops.dispatch.implementation import kept_by_a_call
from triton_ops.exceptions import KernelTypeError, SettingsError, TuningFailedError, UntunedError
from triton_ops.records import Lockfile, store_in
from triton_ops.request import KnownCall, KnownCalls
from triton_ops.settings import cache_folder

RAN, KEPT = [], []
EYE = torch.eye(2)


def slow_product(a, b):
    RAN.append("slow")
    time.sleep(0.003)
    return torch.mm(a, b)


def product(x, y):
    RAN.append("product")
    return torch.mm(x, y)


@pytest.fixture(autouse=True)
def _nothing_known():
    sources._sources.ladders.clear()
    RAN.clear()
    KEPT.clear()


@pytest.fixture
def matrices():
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(12, 12, generator=generator) for _ in range(2))


def trials_of(result):
    return {trial.config["implementation"]: trial for trial in result.trials}


def keeps_memory(a, b):
    KEPT.append(torch.empty(250))
    return torch.mm(a, b)


def mutates(a, b):
    result = torch.mm(a, b)
    a.zero_()
    return result


def raises(a, b):
    raise ValueError("it cannot")


def test_wrong_implementations_are_named_with_the_reason_and_the_rest_goes_on(matrices, steady_clock):
    chooser = choose({
        "right": torch.mm, "too large": lambda a, b: torch.mm(a, b) * 1.01,
        "wider": lambda a, b: torch.mm(a, b).double(),
        "shorter": lambda a, b: torch.mm(a, b)[:-1], "listed": lambda a, b: [torch.mm(a, b)],
        "leaks": keeps_memory, "mutates": mutates, "raises": raises,
    }, name="product")  # fmt: skip
    result = chooser.tune(matrices)
    trials = trials_of(result)
    assert result.best_config == {"implementation": "right"}
    assert {name: str(trial.status) for name, trial in trials.items()} == {
        "right": "ok", "too large": "wrong", "wider": "wrong", "shorter": "wrong", "listed": "wrong",
        "leaks": "wrong", "mutates": "wrong",
        "raises": "runtime",
    }  # fmt: skip
    assert "error 0.0" in trials["too large"].error
    assert trials["too large"].excess > 100
    assert "float64 instead of float32" in trials["wider"].error
    assert "shape (11, 12) instead of (12, 12)" in trials["shorter"].error
    assert trials["listed"].error == "listed returns a tuple or list of 1, and right returns a tensor"
    assert trials["leaks"].error == "leaks leaks: every call keeps 1,000 more bytes of tensors"
    assert "changes a" in trials["mutates"].error
    assert "ValueError: it cannot" in trials["raises"].error
    assert "in float64" in result.verified


@pytest.mark.processes
def test_the_fastest_runs_and_says_why_and_later_processes_know_it(matrices):
    chooser = choose({"slow": slow_product, "fast": product}, name="remembered", budget_s=20)
    expected = torch.mm(*matrices)
    assert chooser.why(*matrices).found.rung == "default"
    torch.testing.assert_close(chooser(*matrices), expected)
    assert RAN == ["slow"]
    assert chooser.tune(matrices).best_config == {"implementation": "fast"}
    RAN.clear()
    torch.testing.assert_close(chooser(*matrices), expected)
    torch.testing.assert_close(chooser(a=matrices[0], b=matrices[1]), expected)
    assert RAN == ["product"] * 2
    again = choose({"slow": slow_product, "fast": product}, name="remembered", budget_s=20)
    assert again.why(*matrices).found.rung == "record"
    again(*matrices)
    assert RAN[-1] == "product"
    assert chooser.tune(matrices).from_cache
    (row,) = [row for row in triton_ops.launches() if row.kernel == "remembered" and row.rung == "record"]
    assert row.launches == 3
    with replaying(Lockfile()):
        again(*matrices)
        assert RAN[-1] == "slow"


class Cycle:
    def __init__(self, tensor):
        self.held = tensor
        self.own = self


def collects(a, b):
    gc.collect()
    return torch.mm(a, b)


@pytest.mark.parametrize(("call", "kept", "walked"), [
    (lambda: torch.ones(8), 0, False), (lambda: Cycle(torch.ones(8)), 0, True), (lambda: collects(EYE, EYE), 0, True),
    (lambda: KEPT.append(torch.ones(8)), 32, True), (lambda: KEPT.append(torch.nn.Parameter(torch.ones(8))), 32, True),
])  # fmt: skip
def test_only_a_call_after_which_a_new_tensor_may_be_alive_has_the_whole_process_searched(
    call, kept, walked, monkeypatch
):
    walks, on_cpu = [], leaks._on_cpu
    monkeypatch.setattr(leaks, "_on_cpu", lambda device: walks.append(device) or on_cpu(device))
    assert kept_by_a_call(call, "cpu") == kept
    assert bool(walks) is walked


def test_every_answer_of_a_predicate_is_understood(matrices):
    def broken(a, b):
        raise KeyError("oops")

    answers = {
        "none": None, "true": True, "text": "the tensors are small", "false": False, "pair": (False, "no such library"),
        "good pair": (True, ""),
    }  # fmt: skip
    made = {name: Implementation(torch.mm, applies=lambda a, b, said=said: said) for name, said in answers.items()}
    chooser = choose({**made, "broken": Implementation(torch.mm, applies=broken)}, name="asked")
    passed = [text for text in chooser.why(*matrices).passed if "does not apply" in text]
    assert passed == [
        "text: does not apply: the tensors are small",
        "false: does not apply: its predicate says that it does not apply",
        "pair: does not apply: no such library",
        "broken: does not apply: its predicate raised KeyError: 'oops'",
    ]


def test_where_none_applies_one_error_has_every_reason(matrices):
    chooser = choose(
        {"a": Implementation(torch.mm, applies=lambda a, b: "no"),
         "b": Implementation(torch.mm, applies=lambda a, b: "no again")},
        name="none",
    )  # fmt: skip
    for call in (lambda: chooser(*matrices), lambda: chooser.tune(matrices), lambda: chooser.why(*matrices)):
        with pytest.raises(TuningFailedError, match="a: no; b: no again") as caught:
            call()
        assert [config["implementation"] for config, _ in caught.value.failures] == ["a", "b"]


def test_where_none_works_one_error_has_every_reason(matrices, steady_clock):
    def also_raises(a, b):
        raise RuntimeError("neither")

    with pytest.raises(TuningFailedError) as caught:
        choose({"a": raises, "b": also_raises}, name="none works").tune(matrices)
    told = str(caught.value.failures)
    assert "it cannot" in told
    assert "neither" in told


def test_where_the_first_one_fails_the_others_judge_each_other(matrices, steady_clock):
    result = choose({"a": raises, "b": product, "c": torch.mm}, name="first fails").tune(matrices)
    assert result.best_config["implementation"] in ("b", "c")
    assert "it cannot" in trials_of(result)["a"].error


@pytest.mark.processes
def test_an_implementation_that_crashes_ends_only_itself(matrices):
    chooser = choose({"right": torch.mm, "crashes": lambda a, b: os.abort()}, name="crashing", budget_s=60)
    result = chooser.tune(matrices, isolate=True)
    assert result.best_config == {"implementation": "right"}
    assert str(trials_of(result)["crashes"].status) == "crash"


def writes(x, out):
    torch.mul(x, 2, out=out)


def returns(x, out):
    return x + x


def wrongly_returns(x, out):
    return (x + x).double()


def test_implementations_that_write_and_those_that_return_are_raced_together(steady_clock):
    chooser = choose(
        {
            "writes": writes, "returns": Implementation(returns, returns=True),
            "other dtype": Implementation(wrongly_returns, returns=True), "nothing": lambda x, out: None,
        },
        name="doubled", outputs=("out",),
    )  # fmt: skip
    x, out = torch.arange(8.0), torch.zeros(8)
    result = chooser.tune((x, out))
    told = {name: str(trial.status) for name, trial in trials_of(result).items()}
    assert told == {"writes": "ok", "returns": "ok", "other dtype": "runtime", "nothing": "wrong"}
    chooser.remove("writes")
    chooser(x, out)
    assert out.tolist() == (2 * x).tolist()
    chooser(x, out=out.zero_())
    assert out.tolist() == (2 * x).tolist()


def test_several_results_are_compared_one_by_one(steady_clock):
    chooser = choose(
        {"aten": lambda x: torch.std_mean(x, 0), "swapped": lambda x: torch.std_mean(x, 0)[::-1],
         "apart": lambda x: (x.std(0), x.mean(0))},
        name="two results",
    )  # fmt: skip
    trials = trials_of(chooser.tune((torch.randn(40, 3),)))
    assert {name: str(trial.status) for name, trial in trials.items()} == {
        "aten": "ok",
        "swapped": "wrong",
        "apart": "ok",
    }


def scaled(x, block=1):
    RAN.append(block)
    if block != 2:
        time.sleep(0.002)
    return x * 2


def test_an_operation_is_tuned_first_and_its_config_is_part_of_the_choice():
    inner = Operation("scaled", scaled, {"block": [1, 2, 3]}, lambda n=4: {"x": TensorSpec((n,), "float32")})

    def slower(x):
        time.sleep(0.004)
        return x * 2

    chooser = choose({"plain": slower, "tiled": inner}, name="with tiles", budget_s=20)
    x = torch.randn(16)
    result = chooser.tune((x,))
    assert result.best_config == {"implementation": "tiled", "tiles": (("block", 2),)}
    RAN.clear()
    torch.testing.assert_close(chooser(x), x * 2)
    assert RAN == [2]
    assert dict(triton_ops.recall(inner, kwargs={"x": x}).winner) == {"block": 2}


def test_a_public_function_takes_the_config_of_its_operation():
    given = []

    def public(x, *, config):
        given.append(dict(config))
        return x * 2

    inner = Operation("scaled", scaled, {"block": [3]}, lambda n=4: {"x": TensorSpec((n,), "float32")})
    tiled = Implementation(public, operation=inner, values=lambda x: {"x": x})
    chooser = choose({"tiled": tiled, "plain": lambda x: x + x}, name="public")
    chooser(torch.ones(2))
    assert given == [{"block": 3}]


def test_an_operation_that_cannot_be_used_takes_no_part(matrices):
    inner = Operation("scaled", scaled, {"block": [3]}, lambda n=4: {"x": TensorSpec((n,), "float32")})
    strange = Implementation(torch.mm, operation=inner, values=lambda a, b: {"x": 1 / 0})
    told = choose({"plain": torch.mm, "strange": strange}, name="strange").why(*matrices).passed
    assert "strange: does not apply: its `values` raised ZeroDivisionError: division by zero" in told


def test_a_decorated_function_gets_further_implementations_and_gives_them_back(matrices):
    @choose(name="decorated")
    def multiplied(a, b):
        RAN.append("decorated")
        return a @ b

    @multiplied.register("other", applies=lambda a, b: a.shape[0] > 4 or "it is small")
    def other(a, b):
        return torch.mm(a, b)

    assert list(multiplied.implementations) == ["multiplied", "other"]
    multiplied(*matrices)
    assert RAN == ["decorated"]
    multiplied.register("multiplied", torch.mm)
    multiplied(*matrices)
    assert RAN == ["decorated"]
    assert multiplied.remove("other").function is other
    with pytest.raises(KernelTypeError, match="'multiplied' cannot be removed"):
        multiplied.remove("multiplied")


def test_what_has_no_gradient_takes_no_part_where_one_is_recorded(matrices):
    a, b = matrices
    chooser = choose(
        {"without": Implementation(lambda a, b: torch.mm(a.detach(), b), gradient=False), "with": product},
        name="gradients", parameters=("a", "b"),
    )  # fmt: skip
    assert not chooser(a, b).requires_grad
    assert chooser(a.requires_grad_(), b).requires_grad
    assert "with" in str(chooser.why(a, b).found.config)
    with torch.no_grad():
        assert not chooser(a, b).requires_grad
    assert RAN == ["product"]


def test_under_autocast_the_first_one_runs(matrices):
    chooser = choose({"first": slow_product, "second": product}, name="autocast")
    with torch.autocast("cpu", torch.bfloat16):
        assert chooser(*matrices).dtype == torch.bfloat16
    assert chooser(*matrices).dtype == torch.float32
    told = [row.why for row in triton_ops.launches() if row.kernel == "autocast"]
    assert any("autocast" in why for why in told)


def test_a_miss_does_as_it_is_told(matrices, steady_clock):
    chooser = choose({"first": torch.mm, "second": product}, name="missed", on_miss="error")
    with pytest.raises(UntunedError, match="no winner is known for missed"):
        chooser(*matrices)
    with on_miss("tune"):
        chooser(*matrices)
    assert chooser.why(*matrices).found.rung == "record"
    chooser(*matrices)


def test_a_race_among_implementations_is_a_tune_of_little_effort(matrices, steady_clock):
    chooser = choose({"first": torch.mm, "second": product}, name="raced")
    with on_miss("race"):
        chooser(*matrices)
    assert chooser.why(*matrices).found.rung == "record"
    assert [record.effort for record in store_in(cache_folder(None))] == ["race"]


@pytest.mark.parametrize("change", [
    lambda a: a.double(), lambda a: a.t(), lambda a: a[:, :6], lambda a: a.flatten()[1:], lambda a: 3, lambda a: True,
    lambda a: 3.0, lambda a: None, lambda a: [1],
])  # fmt: skip
def test_calls_that_differ_in_anything_are_told_apart(change):
    known = KnownCalls(modes=("autocast", "gradients"))
    tensor = torch.randn(6, 12)
    known.keep(known.place((tensor,), {}), "first")
    known.keep(known.place((tensor,), {"x": 1}), "named")
    assert known[known.place((torch.zeros(6, 12),), {})] == "first"
    assert known[known.place((tensor,), {"x": 1})] == "named"
    assert known.get(known.place((tensor,), {"x": True})) is None
    assert known.get(known.place((tensor,), {"y": 1})) is None
    assert known.get(known.place((change(tensor),), {})) is None
    known.keep(known.place((change(tensor),), {}), "second")
    assert known[known.place((tensor,), {})] == "first"


def test_arguments_may_have_any_name():
    given = {"run": 1, "up": 2, "ask": 3, "known": 4, "args": 5, "kwargs": 6, "get": 7, "value_0": 8, "in": 9}
    calls = KnownCalls(lambda args, kwargs: pytest.fail("the call is known"))
    tensor = torch.zeros(2)
    calls.keep(calls.place((tensor,), given), KnownCall(lambda tensor, **named: (tensor, named), lambda: None))
    result, named = calls.call(tensor, **given)
    assert result is tensor
    assert named == given


def test_compiled_code_holds_the_winner_and_a_new_choice_reaches_it(matrices):
    chooser = choose(
        {"first": lambda a, b: torch.mm(a, b) + 0, "second": lambda a, b: torch.mm(a, b)}, name="traced",
        parameters=("a", "b"),
    )  # fmt: skip
    seen = []

    def backend(graph, _inputs):
        seen.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    expected = chooser(*matrices).relu()
    compiled = torch.compile(lambda a, b: chooser(a, b).relu(), backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(*matrices), expected)
    assert len(seen[-1]) == 2
    chooser.remove("first")
    torch.testing.assert_close(compiled(*matrices), expected)
    assert len(seen) == 2
    assert len(seen[-1]) == 1
    torch.testing.assert_close(compiled(matrices[0].t(), matrices[1]), torch.mm(matrices[0].t(), matrices[1]).relu())
    chooser.register("first", torch.mm)
    chooser.remove("second")
    by_name = torch.compile(lambda a, b: chooser(b=b, a=a).relu(), backend=backend, fullgraph=True)
    torch.testing.assert_close(by_name(*matrices), expected)
    torch._dynamo.reset()


@pytest.mark.processes
def test_a_compiled_function_is_an_implementation(matrices, steady_clock):
    compiled = torch.compile(lambda a, b: (a * b).relu(), backend="eager")
    chooser = choose({"plain": lambda a, b: torch.relu(a * b), "compiled": compiled}, name="compiled too")
    trials = trials_of(chooser.tune(matrices))
    assert {name: str(trial.status) for name, trial in trials.items()} == {"plain": "ok", "compiled": "ok"}
    assert chooser.tune(matrices).from_cache
    chooser.remove("plain")
    torch.testing.assert_close(chooser(*matrices), (matrices[0] * matrices[1]).relu())
    torch._dynamo.reset()


def test_what_writes_its_result_is_compiled_too():
    chooser = choose(
        {"returns": Implementation(returns, returns=True), "writes": writes},
        name="written in a graph",
        outputs=("out",),
    )
    x, out = torch.arange(4.0), torch.zeros(4)

    def twice(x, out):
        chooser(x, out)
        return out + 1

    compiled = torch.compile(twice, backend="eager")
    assert compiled(x, out).tolist() == [1, 3, 5, 7]
    chooser.remove("returns")
    assert compiled(x + 1, out).tolist() == [3, 5, 7, 9]
    torch._dynamo.reset()


def test_with_a_schema_compiled_code_of_dynamic_sizes_chooses_when_it_runs(matrices):
    def any_rows(a, b):
        RAN.append(a.shape[0])
        return torch.mm(a, b)

    chooser = choose(
        {"any": any_rows, "long": Implementation(product, applies=lambda a, b: a.shape[0] > 6 or "it is short")},
        name="dynamic sizes", schema="(Tensor a, Tensor b) -> Tensor",
    )  # fmt: skip
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    a, b = matrices
    compiled = torch.compile(lambda a, b: chooser(a, b) + 1, backend=backend, fullgraph=True, dynamic=True)
    for rows in (3, 5, 7, 9):
        torch.testing.assert_close(compiled(a[:rows], b), torch.mm(a[:rows], b) + 1)
    assert len(graphs) == 1
    assert [size for size in RAN if isinstance(size, int)][-4:] == [3, 5, 7, 9]
    assert {row.problem.split(",")[0] for row in triton_ops.launches() if row.kernel == "dynamic sizes"} >= {
        "3x12 float32", "9x12 float32",
    }  # fmt: skip
    torch._dynamo.reset()


def test_an_implementation_that_torch_must_not_trace_leaves_the_graph_whole_where_the_chooser_has_a_schema(matrices):
    hidden = torch.compiler.disable(product)
    chooser = choose({"hidden": hidden, "plain": product}, name="hidden", schema="(Tensor a, Tensor b) -> Tensor")
    for dynamic in (False, True):
        compiled = torch.compile(lambda a, b: chooser(a, b) + 1, backend="eager", fullgraph=True, dynamic=dynamic)
        assert torch.allclose(compiled(*matrices), torch.mm(*matrices) + 1)
        torch._dynamo.reset()
    without = choose({"hidden": hidden, "plain": product}, name="hidden, without a schema")
    assert torch.allclose(torch.compile(without, backend="eager")(*matrices), torch.mm(*matrices))
    torch._dynamo.reset()


def test_exports_and_transforms_of_functions_go_through_a_chooser(matrices):
    chooser = choose({"first": lambda a, b: torch.mm(a, b), "second": torch.mm}, name="exported")

    class Model(torch.nn.Module):
        def forward(self, a, b):
            return chooser(a, b)

    for strict in (False, True):
        exported = torch.export.export(Model(), matrices, strict=strict).module()
        torch.testing.assert_close(exported(*matrices), torch.mm(*matrices))
    stacked = [torch.stack([each, 2 * each]) for each in matrices]
    torch.testing.assert_close(torch.func.vmap(chooser)(*stacked), torch.bmm(*stacked))
    dynamic = torch.compile(chooser, backend="eager", dynamic=True)
    for rows in (3, 5, 7):
        torch.testing.assert_close(dynamic(matrices[0][:rows], matrices[1]), torch.mm(matrices[0][:rows], matrices[1]))
    torch._dynamo.reset()


def test_a_chooser_serves_an_operator_until_it_is_closed(matrices):
    a, b = matrices
    chooser = choose({"counting": product, "other": lambda a, b: torch.mm(a, b)}, name="served", parameters=("a", "b"))
    expected = torch.mm(a, b)
    with serve(chooser, "aten::mm", "CPU") as served:
        assert torch.equal(a @ b, expected)
        assert RAN == ["product"]
        a.requires_grad_()
        torch.mm(a, b).sum().backward()
        assert a.grad is not None
        assert len(RAN) == 3
    served.close()
    torch.mm(a, b)
    assert len(RAN) == 3
    with pytest.raises(SettingsError, match="no operator 'aten::nothing'"):
        serve(chooser, "aten::nothing", "CPU")
    with pytest.raises(KernelTypeError, match="is no chooser"):
        serve(torch.mm, "aten::mm", "CPU")


def test_a_tune_without_arguments_is_refused_where_nothing_makes_them(matrices):
    for given in ({}, {"shape": (4,)}):
        with pytest.raises(SettingsError, match="product was given no arguments, and does not know how to make them"):
            choose({"a": torch.mm, "b": product}, name="product").tune(**given)
    assert choose({"a": lambda: matrices[0] + 1}, name="bound").tune(budget_s=1).best_config == {"implementation": "a"}


def test_what_is_no_implementation_is_refused():
    for given in ({}, [torch.mm], 3, {1: torch.mm}, {"": torch.mm}):
        with pytest.raises(KernelTypeError, match="given by name, at least one"):
            choose(given, name="refused")
    for given in (3, Operation):
        with pytest.raises((KernelTypeError, TypeError)):
            choose({"a": given if given == 3 else Implementation()}, name="refused")
    with pytest.raises(KernelTypeError, match="applies is 3"):
        Implementation(torch.mm, applies=3)
    with pytest.raises(SettingsError, match="outputs are 'out'; they are a list of names"):
        choose({"a": writes}, outputs="out")
    with pytest.raises(SettingsError, match="outputs name y, and the parameters are x"):
        choose({"a": writes}, outputs=["y"], parameters=["x"])
    with pytest.raises(SettingsError, match="no option budget"):
        choose({"a": torch.mm}, budget=3)
    with pytest.raises(SettingsError, match="on_miss"):
        choose({"a": torch.mm}, on_miss="never")


TARGET = """
import torch
from triton_ops import Implementation, TensorSpec, choose
def plain(a, b): return torch.mm(a, b)
CHOOSER = choose(
    {"plain": plain, "gpu": Implementation(torch.mm, applies=lambda a, b: a.is_cuda or "it is on a CPU")},
    name="from a file", dtypes=("float32",),
    arguments=lambda m=4, dtype="float32": {"a": TensorSpec((m, m), dtype), "b": TensorSpec((m, m), dtype)},
)
"""


def test_the_command_line_tunes_and_explains_a_chooser(cli, tmp_path, steady_clock):
    (tmp_path / "chosen.py").write_text(TARGET)
    target = f"{tmp_path}/chosen.py:CHOOSER"
    assert cli("tune", target, "--shape", "8", "--json").code == 0
    sources._sources.ladders.clear()
    result = json.loads(cli("why", target, "--shape", "8", "--json").out)
    assert (result["rung"], result["config"]) == ("record", {"implementation": "plain"})
    assert "gpu: does not apply: it is on a CPU" in result["passed"]


def test_a_copy_of_a_module_that_holds_a_chooser_calls_the_same_chooser(matrices):
    layer = torch.nn.Module()
    layer.product = choose({"product": product}, name="held product")
    copied = copy.deepcopy(layer)
    assert copied.product is layer.product
    assert torch.equal(copied.product(*matrices), torch.mm(*matrices))


HELD = """
from triton_ops import choose

def twice(x):
    return 2 * x

CHOOSER = choose({"twice": twice}, name="held by a module")
"""


def test_a_chooser_is_pickled_by_the_variable_of_a_module_that_holds_it(tmp_path, monkeypatch):
    (tmp_path / "holds_a_chooser.py").write_text(HELD)
    monkeypatch.syspath_prepend(str(tmp_path))
    held = importlib.import_module("holds_a_chooser").CHOOSER
    content = pickle.dumps({"layer": held})
    assert pickle.loads(content)["layer"] is held
    assert (copy.copy(held), pickle.loads(Packed.of(held).content)) == (held, held)
    monkeypatch.delitem(sys.modules, "holds_a_chooser")  # as in another process
    again = pickle.loads(content)["layer"]
    assert again is not held
    assert again(torch.ones(2)).tolist() == [2.0, 2.0]


def test_a_chooser_that_no_module_holds_is_refused_by_pickle_with_the_reason(tmp_path, monkeypatch):
    local = choose({"product": product}, name="held by nothing")
    with pytest.raises(KernelTypeError, match="held by nothing cannot be pickled: it is no variable") as caught:
        pickle.dumps([local])
    assert "call `choose` there" in caught.value.hint
    monkeypatch.setattr(sys.modules["__main__"], "chooser", local, raising=False)
    with pytest.raises(KernelTypeError, match="held by nothing"):
        pickle.dumps(local)


def test_a_pickle_of_a_chooser_that_is_gone_says_which(tmp_path, monkeypatch):
    (tmp_path / "held_a_chooser.py").write_text(HELD)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("held_a_chooser")
    content = pickle.dumps(module.CHOOSER)
    module.CHOOSER = 3
    with pytest.raises(KernelTypeError, match="CHOOSER is 3 here, and no chooser"):
        pickle.loads(content)
    del module.CHOOSER
    with pytest.raises(KernelTypeError, match=r"held_a_chooser\.CHOOSER is not found here"):
        pickle.loads(content)


def test_the_reference_of_a_choice_is_the_first_function_whatever_this_package_does_around_it(monkeypatch):
    def first(a):
        return a

    def other(a):
        return a + 0

    def reference(*functions):
        chooser = choose({f"of place {place}": function for place, function in enumerate(functions)})
        return Source.of(chooser._operation.reference).fingerprint

    def placed(run, parameters, *args, **kwargs):
        return run(*args, **kwargs)

    before = reference(first, other)
    placed.__module__, placed.__qualname__ = "triton_ops.dispatch.chooser", "_placed"
    monkeypatch.setattr("triton_ops.dispatch.chooser._placed", placed)
    assert reference(first, other) == before
    assert reference(other, first) != before
