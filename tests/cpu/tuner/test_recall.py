"""Stored winners are found by `tune`, by `recall` and by other processes, and never where a part of the key differs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

import triton_ops
from triton_ops import FunctionKernel, TensorSpec, operation, recall, tune
from triton_ops.base import StoredFile
from triton_ops.records import DirectoryStore

pytestmark = pytest.mark.usefixtures("steady_clock")

SPACE = {"n": [1, 2]}


def doubled(x, *, n):
    return x * 2 if n == 1 else x + x


def twice(x):
    return 2 * x


def times_two(x):
    return x * 2


@operation(
    space=SPACE, arguments=lambda N=8: {"x": TensorSpec((N,), "float32")}, name="doubles", reference=twice, device="cpu"
)
def doubles(x, *, n):
    return doubled(x, n=n)


@pytest.fixture
def tuned(tmp_path):
    """A function that tunes a callable in its own folder, and says whether the winner was known."""

    def known(target, *args, space=SPACE, **options):
        return tune(target, args, space=space, cache_dir=tmp_path, **options).from_cache

    return known


def test_recall_gives_the_record_that_tune_left(tmp_path):
    x = torch.ones(4)
    assert recall(doubled, (x,), cache_dir=tmp_path) is None
    result = tune(doubled, (x,), space=SPACE, cache_dir=tmp_path)
    record = recall(doubled, (x,), cache_dir=tmp_path)
    assert dict(record.winner) == result.best_config
    assert (record.mode, record.place, record.verified.against) == (result.mode, result.place, result.verified)
    assert recall(doubled, (torch.ones(5),), cache_dir=tmp_path) is None
    assert recall(doubled, (x,), cache_dir=tmp_path, cold=False) is None


def test_recall_of_a_folder_that_is_missing_makes_none(tmp_path):
    assert recall(doubles, cache_dir=tmp_path / "none") is None
    assert not (tmp_path / "none").exists()


def test_recall_takes_any_space_unless_one_is_named(tmp_path):
    tune(doubles, space={"n": [1, 2, 3]}, cache_dir=tmp_path)
    assert recall(doubles, cache_dir=tmp_path) is not None
    assert recall(doubles, cache_dir=tmp_path, space={"n": [1, 2, 3]}) is not None
    assert recall(doubles, cache_dir=tmp_path, space=SPACE) is None


def test_a_record_that_was_checked_against_another_reference_is_a_miss(tmp_path):
    x = torch.ones(4)
    tune(doubled, (x,), space=SPACE, cache_dir=tmp_path)
    assert recall(doubled, (x,), cache_dir=tmp_path) is not None
    assert recall(doubled, (x,), cache_dir=tmp_path, reference=lambda x: 2 * x) is None
    first = tune(doubled, (x,), space=SPACE, cache_dir=tmp_path, reference=twice)
    assert not first.from_cache
    again = tune(doubled, (x,), space=SPACE, cache_dir=tmp_path, reference=twice)
    assert (again.from_cache, again.verified) == (True, first.verified)
    assert recall(doubled, (x,), cache_dir=tmp_path, reference=times_two) is None
    assert tune(doubled, (x,), space=SPACE, cache_dir=tmp_path).from_cache, "a checked winner serves who asks for less"


def test_an_operation_is_recalled_with_its_own_reference(tmp_path):
    tune(doubles, cache_dir=tmp_path)
    assert recall(doubles, cache_dir=tmp_path).verified.reference
    assert recall(doubles, cache_dir=tmp_path, reference=times_two) is None


@pytest.mark.parametrize(
    "look", [lambda folder: tune(doubles, cache_dir=folder), lambda f: recall(doubles, cache_dir=f)]
)
def test_a_hit_reads_one_file(tmp_path, monkeypatch, look):
    tune(doubles, cache_dir=tmp_path)
    loaded, read, holds = [], DirectoryStore._read, StoredFile.holds
    monkeypatch.setattr(DirectoryStore, "_read", lambda self, path: loaded.append(path) or read(self, path))
    monkeypatch.setattr(StoredFile, "holds", lambda self, text: loaded.append(self.path) or holds(self, text))
    look(tmp_path)
    assert len(loaded) == 1


@pytest.mark.processes
def test_another_process_recalls_the_record(tmp_path):
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
            import sys
            import time
            from triton_ops import operation, recall, tune
            HOW = {"twice": lambda x: 2 * x, "sum": lambda x: x + x}
            @operation(space={"how": ["twice", "sum"]}, arguments=lambda x=8: {"x": x}, name="mine", device="cpu")
            def mine(x, *, how):
                time.sleep(1e-3)
                return HOW[how](x)
            if sys.argv[1] == "tune":
                tune(mine, cache_dir=sys.argv[2])
            else:
                found = recall(mine, cache_dir=sys.argv[2])
                print(None if found is None else dict(found.winner))
        """)
    )

    def ran(*arguments, seed):
        path = os.pathsep.join([str(Path(triton_ops.__file__).parents[1]), *sys.path])
        done = subprocess.run(
            [sys.executable, "mine.py", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    folder = str(tmp_path / "cache")
    assert ran("recall", folder, seed="1") == "None"
    ran("tune", folder, seed="2")
    assert ran("recall", folder, seed="3") in ("{'how': 'twice'}", "{'how': 'sum'}")


# What differs is never a hit


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = torch.nn.Linear(width, width)

    def forward(self, x, *, n):
        return x if n else None


def test_networks_of_two_widths_are_two_kernels(tuned):
    x = torch.ones(2)
    assert not tuned(Net(8).forward, x)
    assert tuned(Net(8).forward, x)
    assert not tuned(Net(16).forward, x)


def test_a_network_as_an_argument_is_told_from_another(tuned):
    def run(net, *, n):
        return n

    assert not tuned(run, Net(8))
    assert tuned(run, Net(8))
    assert not tuned(run, Net(16))


def test_an_implementation_that_is_chosen_from_a_dict_is_told_from_an_edited_one(tuned):
    def choosing(implementations):
        return lambda x, *, which: implementations[which](x)

    def which(target):
        return tuned(target, torch.ones(2), space={"which": ["a"]})

    assert not which(choosing({"a": twice}))
    assert which(choosing({"a": twice}))
    assert not which(choosing({"a": times_two}))


def test_arrays_of_another_memory_order_are_another_problem(tuned):
    assert not tuned(doubled, np.ones((4, 4)))
    assert tuned(doubled, np.ones((4, 4)))
    assert not tuned(doubled, np.ones((4, 4), order="F"))


def test_dtypes_as_arguments_are_told_apart(tuned):
    def cast(dtype, *, n):
        return n

    assert not tuned(cast, torch.float16)
    assert not tuned(cast, torch.float32)
    assert tuned(cast, torch.float16)


def test_a_dtype_among_an_operations_arguments_is_a_part_of_its_problem(tuned):
    def cast_to(dtype):
        arguments = lambda N=8: {"x": TensorSpec((N,), "float32"), "dtype": dtype}  # noqa: E731 - as in a decorator
        return operation(space=SPACE, arguments=arguments, name="cast", device="cpu")(lambda x, dtype, *, n: x)

    assert not tuned(cast_to(torch.bfloat16))
    assert not tuned(cast_to(torch.float16))
    assert tuned(cast_to(torch.bfloat16))


def test_another_number_of_threads_is_another_problem(tuned):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert not tuned(doubled, torch.ones(4))
        assert tuned(doubled, torch.ones(4))
        torch.set_num_threads(2)
        assert not tuned(doubled, torch.ones(4))
    finally:
        torch.set_num_threads(before)


def test_a_kept_kernel_whose_global_is_bound_anew_is_another_kernel(tuned, monkeypatch):
    kernel = FunctionKernel(doubles.kernel.function)
    assert not tuned(kernel, torch.ones(4))
    assert tuned(kernel, torch.ones(4))
    monkeypatch.setitem(globals(), "doubled", lambda x, n: x * 2)
    assert not tuned(kernel, torch.ones(4))


# What cannot be told apart


def test_a_kernel_that_cannot_be_told_from_others_is_tuned_and_never_recalled(tmp_path, caplog):
    with (tmp_path / "log").open("w") as file:

        def kernel(x, *, n):
            file.write("")
            return x

        results = [tune(kernel, (torch.ones(2),), space=SPACE, cache_dir=tmp_path / "cache") for _ in range(2)]
        assert [result.from_cache for result in results] == [False, False]
        for result in results:
            [note] = [note for note in result.notes if "not remembered" in note]
            assert "TextIOWrapper gives no account of its state" in note
        assert recall(kernel, (torch.ones(2),), cache_dir=tmp_path / "cache") is None
    assert not list((tmp_path / "cache").rglob("*.record.json"))
    assert sum("not remembered" in record.getMessage() for record in caplog.records) == 1


def test_a_kernel_that_changes_while_it_is_tuned_is_not_remembered(tmp_path):
    class Counting:
        def __init__(self):
            self.calls = 0

        def __call__(self, x, *, n):
            self.calls += 1
            return x

    counting = Counting()
    result = tune(counting, (torch.ones(2),), space=SPACE, cache_dir=tmp_path)
    assert any("changed while it was tuned" in note for note in result.notes)
    assert not list(tmp_path.glob("*.record.json"))
