"""Properties that every kind of store must have."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from triton_ops.exceptions import CacheError
from triton_ops.records import RECORDS, DirectoryStore, LayeredStore, MemoryStore, Record, Store, Timing
from triton_ops.records.record import Verified
from triton_ops.records.store import open_store
from triton_ops.space import Config
from triton_ops.values import Key, Resources


def memory(folder: Path) -> Store[Record]:
    return MemoryStore(RECORDS)


def directory(folder: Path) -> Store[Record]:
    return DirectoryStore(folder, RECORDS)


def layered(folder: Path) -> Store[Record]:
    return open_store(folder)


def layered_over_shared(folder: Path) -> Store[Record]:
    return open_store(folder / "own", folder / "shared", folder / "not there")


def layered_that_cannot_write(folder: Path) -> Store[Record]:
    return LayeredStore(DirectoryStore(folder, RECORDS, read_only=True))


STORES = [memory, directory, layered, layered_over_shared, layered_that_cannot_write]


@pytest.fixture(params=STORES, ids=lambda make: make.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store[Record]:
    return request.param(tmp_path)


def record(kernel: str = "matmul", **changes: Any) -> Record:
    key = Key(
        kernel=kernel,
        problem={"M": 4096, "a": {"shape": [4096, 64]}},
        identity={"source": "ab"},
        device={"name": "H"},
        cache_state="cold",
    )
    return replace(Record(key=key, winner=Config(BLOCK=64), timing=Timing(1.0, 0.9, 1.1, 50)), **changes)


def test_an_id_that_was_not_put_is_a_miss(store: Store[Record]) -> None:
    assert store.get(record().id) is None
    assert store.get("no id at all") is None
    assert list(store) == []


def test_a_value_that_was_put_can_be_read(store: Store[Record]) -> None:
    store.put(record())
    store.put(record("softmax"))
    assert store.get(record().id) == record()
    assert store.get(record("softmax").id) == record("softmax")


def test_the_last_put_of_an_id_holds(store: Store[Record]) -> None:
    for block in (64, 128, 256):
        store.put(record(winner=Config(BLOCK=block)))
    result = store.get(record().id)
    assert result is not None
    assert result.winner == Config(BLOCK=256)
    assert len(list(store)) == 1


def test_iteration_gives_every_value_once(store: Store[Record]) -> None:
    kernels = [f"kernel{n}" for n in range(20)]
    for kernel in kernels:
        store.put(record(kernel))
        store.get(record(kernel).id)
    assert sorted(result.key.kernel for result in store) == sorted(kernels)


def test_a_change_after_putting_is_not_stored(store: Store[Record]) -> None:
    regimes = [1, 2]
    store.put(record(guard={"regimes": regimes}))
    regimes.append(3)
    result = store.get(record().id)
    assert result is not None
    assert result.guard == {"regimes": [1, 2]}


def test_a_change_of_a_value_that_was_read_is_not_stored(store: Store[Record]) -> None:
    store.put(record())
    for result in (store.get(record().id), next(iter(store))):
        assert result is not None
        result.guard["guarded"] = True
    assert store.get(record().id) == record()


def test_a_change_of_a_value_that_was_read_by_its_id_is_not_in_a_list(store: Store[Record]) -> None:
    store.put(record())
    own = store.get(record().id)
    assert own is not None
    own.guard["guarded"] = True
    assert list(store) == [record()]


@pytest.mark.parametrize("value", [float("nan"), object(), "\ud800"], ids=["nan", "object", "surrogate"])
def test_a_value_without_json_form_is_refused_and_changes_nothing(store: Store[Record], value: Any) -> None:
    store.put(record())
    with pytest.raises(CacheError, match="cannot be stored as JSON") as caught:
        store.put(record(guard={"reason": value}))
    assert caught.value.hint
    assert store.get(record().id) == record()


def test_threads_share_a_store(store: Store[Record]) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for block in range(20):
                mine = record(f"kernel{number}", winner=Config(BLOCK=block))
                store.put(mine)
                assert store.get(mine.id) == mine
                list(store)
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(store)) == 6


@pytest.mark.parametrize("make", [directory, layered, layered_over_shared])
def test_a_new_store_on_the_same_folder_finds_the_value(make: Callable[[Path], Store[Record]], tmp_path: Path) -> None:
    before, after = make(tmp_path), make(tmp_path)
    before.put(record())
    assert after.get(record().id) == record()
    assert list(make(tmp_path)) == [record()]


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
objects = st.dictionaries(names, scalars | names, max_size=4)
extents = st.lists(st.integers(0, 2**40), max_size=4)
tensors = st.fixed_dictionaries(
    {"shape": extents, "dtype": names}, optional={"stride": extents, "aligned": st.booleans()}
) | st.fixed_dictionaries({"float": st.sampled_from(["inf", "-inf", "nan"])})
fixed = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
configs = st.builds(
    Config,
    st.dictionaries(
        names,
        st.recursive(fixed | names, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5),
        max_size=4,
    ),
)
times = st.floats(min_value=1e-9, max_value=1e9)
timings = st.builds(Timing, times, times, times, st.integers(1, 10**6))
counts = st.none() | st.integers(0, 2**40)
keys = st.builds(
    Key,
    kernel=names,
    problem=st.dictionaries(names, scalars | names | tensors, max_size=4),
    identity=st.dictionaries(names, names, max_size=3),
    device=objects,
    cache_state=names,
    label=names,
)
records = st.builds(
    Record,
    key=keys,
    winner=configs,
    timing=timings,
    mode=names,
    run=names,
    verified=st.builds(Verified, names, st.none() | names),
    place=names,
    notes=st.lists(names, max_size=2).map(tuple),
    waited_s=times,
    default=st.none() | configs,
    default_timing=st.none() | timings,
    ties=st.lists(configs, max_size=3).map(tuple),
    noise=st.floats(0, 1),
    resources=st.none()
    | st.builds(Resources, registers=counts, spill_bytes=counts, shared_bytes=counts, binary=st.none() | names),
    space=names,
    totals=st.dictionaries(names, st.integers(0, 10**9), max_size=3),
    elapsed_s=times,
    versions=st.dictionaries(names, names, max_size=3),
)


@examples(20)
@given(st.lists(records, max_size=4))
def test_every_store_gives_records_as_they_were_put(given_records: list[Record]) -> None:
    last = {result.id: result for result in given_records}
    with tempfile.TemporaryDirectory() as folder:
        for make in STORES:
            store = make(Path(folder, make.__name__))
            for result in given_records:
                store.put(result)
            assert {result.id: result for result in store} == last
            assert all(store.get(record_id) == result for record_id, result in last.items())
